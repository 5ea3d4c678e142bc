//! Merging: neighbours are joined, the most urgent pair first, until no pair can be joined.
//!
//! Both kinds of vocabulary merge this way and differ only in what makes a pair urgent: the rank of a merge rule, or the
//! score of the token that comes out. A queue holds every pair that can be joined; one that was overtaken (a side was
//! joined otherwise) is passed over when its turn comes, which its length betrays: a side only ever grows. So a text of
//! n characters takes O(n log n), whatever stands in it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No symbol, or no piece.
pub(crate) const NONE: u32 = u32::MAX;

/// A stretch of the text: at first one character, in the end one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// First byte.
    pub(crate) start: u32,
    /// Bytes; 0 once it was joined to its left neighbour.
    pub(crate) bytes: u32,
    /// What the vocabulary calls it, or [`NONE`].
    pub(crate) piece: u32,
    left: u32,
    right: u32,
}

/// What two neighbours become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    /// The lower, the sooner; of equal ones the leftmost.
    pub(crate) urgency: u32,
    /// What the vocabulary calls both together.
    pub(crate) piece: u32,
}

/// A pair in the queue; compared in the order of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    urgency: u32,
    left: u32,
    bytes: u32,
    piece: u32,
}

/// The symbols of one word, kept from word to word so that their memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Pair>>,
}

impl Merger {
    /// Begins another word.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a character of `bytes` bytes.
    pub(crate) fn push(&mut self, bytes: u32, piece: u32) {
        let index = self.symbols.len() as u32;
        let (start, left) = match self.symbols.last_mut() {
            Some(last) => {
                last.right = index;
                (last.start + last.bytes, index - 1)
            }
            None => (0, NONE),
        };
        self.symbols.push(Symbol { start, bytes, piece, left, right: NONE });
    }

    /// Joins all that `join` says can be joined, and returns what is left, in order.
    pub(crate) fn merge(
        &mut self,
        join: impl Fn(&Symbol, &Symbol) -> Option<Joined>,
    ) -> impl Iterator<Item = &Symbol> {
        for left in 0..self.symbols.len() as u32 {
            self.offer(left, &join);
        }
        while let Some(Reverse(pair)) = self.queue.pop() {
            let left = self.symbols[pair.left as usize];
            let Some(&right) = self.symbols.get(left.right as usize) else { continue };
            if left.bytes == 0 || left.bytes + right.bytes != pair.bytes {
                continue;
            }
            self.symbols[left.right as usize].bytes = 0;
            if let Some(next) = self.symbols.get_mut(right.right as usize) {
                next.left = pair.left;
            }
            let joined = &mut self.symbols[pair.left as usize];
            (joined.bytes, joined.piece, joined.right) = (pair.bytes, pair.piece, right.right);
            self.offer(left.left, &join);
            self.offer(pair.left, &join);
        }
        self.symbols.iter().filter(|symbol| symbol.bytes > 0)
    }

    /// Puts the symbol `left` and its right neighbour into the queue, if there are both and they can be joined.
    fn offer(&mut self, left: u32, join: impl Fn(&Symbol, &Symbol) -> Option<Joined>) {
        let Some(first) = self.symbols.get(left as usize) else { return };
        let Some(second) = self.symbols.get(first.right as usize) else { return };
        if let Some(Joined { urgency, piece }) = join(first, second) {
            self.queue.push(Reverse(Pair { urgency, left, bytes: first.bytes + second.bytes, piece }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins letters by rules written as (left, right, urgency), by trying all pairs over and over.
    fn slow(word: &str, rules: &[(&str, &str, u32)]) -> Vec<String> {
        let mut parts: Vec<String> = word.chars().map(String::from).collect();
        loop {
            let pairs = parts.windows(2).enumerate().filter_map(|(at, pair)| {
                let rule = rules.iter().find(|rule| rule.0 == pair[0] && rule.1 == pair[1])?;
                Some((rule.2, at))
            });
            let Some((_, at)) = pairs.min() else { return parts };
            let right = parts.remove(at + 1);
            parts[at] += &right;
        }
    }

    fn fast(word: &str, rules: &[(&str, &str, u32)]) -> Vec<String> {
        let mut merger = Merger::default();
        word.chars().for_each(|_| merger.push(1, NONE));
        let text = |symbol: &Symbol| &word[symbol.start as usize..(symbol.start + symbol.bytes) as usize];
        let join = |left: &Symbol, right: &Symbol| {
            let rule = rules.iter().find(|rule| rule.0 == text(left) && rule.1 == text(right))?;
            Some(Joined { urgency: rule.2, piece: NONE })
        };
        merger.merge(join).map(|symbol| text(symbol).to_owned()).collect()
    }

    #[test]
    fn the_queue_joins_what_trying_all_pairs_joins() {
        let rules = [
            ("a", "b", 3),
            ("b", "a", 1),
            ("ba", "ba", 0),
            ("a", "ba", 2),
            ("aba", "c", 5),
            ("c", "c", 4),
            ("cc", "a", 4),
            ("a", "a", 6),
        ];
        let mut words = vec![String::new()];
        for length in 0..8 {
            let longer: Vec<String> = (words.iter().filter(|word| word.len() == length))
                .flat_map(|word| ["a", "b", "c"].map(|letter| format!("{word}{letter}")))
                .collect();
            words.extend(longer);
        }
        assert!(words.len() > 9000);
        for word in words {
            assert_eq!(fast(&word, &rules), slow(&word, &rules), "{word}");
        }
    }
}
