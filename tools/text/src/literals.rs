//! User-defined tokens: taken out of the text as they stand, before anything else looks at it.
//!
//! The NeoX family has its runs of spaces this way, others their markers. The longest goes first through the whole text,
//! then the next: so llama.cpp cuts, and where two overlap it differs from the leftmost match. One pass of an automaton
//! finds out which tokens occur at all, for there may be thousands and few do.

use aho_corasick::AhoCorasick;
use estream_pack::{Error, Result};
use std::collections::BTreeSet;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    /// Text between user-defined tokens, not empty.
    Text(&'t str),
    /// A token.
    Token(u32),
}

/// The user-defined tokens of a vocabulary.
#[derive(Debug, Default)]
pub(crate) struct Literals {
    /// Text and id; the longest first, of equal lengths the lower id.
    tokens: Vec<(String, u32)>,
    finder: Option<AhoCorasick>,
}

impl Literals {
    pub(crate) fn new(mut tokens: Vec<(String, u32)>) -> Result<Self> {
        if tokens.is_empty() {
            return Ok(Self::default());
        }
        tokens.sort_by_key(|(text, id)| (std::cmp::Reverse(text.len()), *id));
        let finder = AhoCorasick::new(tokens.iter().map(|(text, _)| text)).map_err(|error| {
            Error::input("vocabulary-too-large", format!("too many user-defined tokens: {error}"))
        })?;
        Ok(Self { tokens, finder: Some(finder) })
    }

    /// Cuts `text` at the tokens that occur in it.
    pub(crate) fn cut<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        fragments.extend((!text.is_empty()).then_some(Fragment::Text(text)));
        let occurrences = self.finder.iter().flat_map(|finder| finder.find_overlapping_iter(text));
        let occurring: BTreeSet<usize> = occurrences.map(|found| found.pattern().as_usize()).collect();
        for (token, id) in occurring.into_iter().filter_map(|rank| self.tokens.get(rank)) {
            let pieces =
                fragments.iter().flat_map(|&fragment| Pieces { fragment: Some(fragment), token, id: *id });
            fragments = pieces.collect();
        }
        fragments
    }
}

/// What one token makes of a fragment.
struct Pieces<'t, 's> {
    fragment: Option<Fragment<'t>>,
    token: &'s str,
    id: u32,
}

impl<'t> Iterator for Pieces<'t, '_> {
    type Item = Fragment<'t>;

    fn next(&mut self) -> Option<Fragment<'t>> {
        let Fragment::Text(text) = self.fragment? else { return self.fragment.take() };
        let rest = |from: usize| Some(Fragment::Text(&text[from..])).filter(|_| from < text.len());
        match text.find(self.token) {
            None => self.fragment.take(),
            Some(0) => {
                self.fragment = rest(self.token.len());
                Some(Fragment::Token(self.id))
            }
            Some(at) => {
                self.fragment = rest(at);
                Some(Fragment::Text(&text[..at]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fragment::{Text, Token};
    use super::*;

    #[test]
    fn the_longest_goes_first_through_the_whole_text() {
        let tokens = [("  ", 1), ("    ", 2), ("ab", 3), ("bcd", 4), ("é", 5)];
        let literals = Literals::new(tokens.map(|(text, id)| (text.to_owned(), id)).to_vec()).expect("few");
        let cases: [(&str, &[Fragment<'_>]); 7] = [
            ("", &[]),
            ("x", &[Text("x")]),
            ("     ", &[Token(2), Text(" ")]),
            ("x       y", &[Text("x"), Token(2), Token(1), Text(" y")]),
            // The leftmost match would be "ab".
            ("abcd", &[Text("a"), Token(4)]),
            ("ababcd", &[Token(3), Text("a"), Token(4)]),
            ("naïf é", &[Text("naïf "), Token(5)]),
        ];
        for (text, expected) in cases {
            assert_eq!(literals.cut(text), expected, "{text:?}");
        }
        assert_eq!(Literals::default().cut("ab"), [Text("ab")]);
    }
}
