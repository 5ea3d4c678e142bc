//! Byte-level vocabularies ("gpt2"): words of bytes, merged by the ranks of a list of rules.
//!
//! Each byte is spelled as a printable character, and rules and tokens are written in that spelling. Rules are kept as
//! pairs of numbers: a token's number is its id, and texts that occur in rules but are no tokens get numbers above all
//! ids. A word that ends in such a text is spelled byte by byte.

use crate::keys::Tokens;
use crate::merge::{Joined, Merger, Symbol};
use crate::split::{Pre, Splitter};
use estream_pack::{Error, Result, character_of};
use std::collections::HashMap;

/// A byte-level vocabulary.
#[derive(Debug)]
pub(crate) struct Bpe {
    splitter: Splitter,
    /// Ids are below it.
    tokens: u32,
    /// The piece that each byte is.
    bytes: [u32; 256],
    /// What pairs of pieces become.
    rules: HashMap<(u32, u32), Joined>,
    /// Words that are tokens as they stand, whatever the rules say: Llama 3's way (llama.cpp's `ignore_merges`).
    whole: HashMap<Box<[u8]>, u32>,
}

impl Bpe {
    /// A vocabulary of `tokens`, and `rules` in ascending rank.
    pub(crate) fn new(pre: Pre, tokens: Tokens, rules: &[Vec<u8>]) -> Result<Self> {
        let splitter = Splitter::new(pre)?;
        let count = tokens.count;
        let mut pieces = Pieces { next: count, numbers: tokens.ids };
        let mut bytes = [0; 256];
        for (byte, piece) in (0..=u8::MAX).zip(&mut bytes) {
            *piece = pieces.number(character_of(byte).encode_utf8(&mut [0; 4]).as_bytes());
        }
        let mut pairs = HashMap::with_capacity(rules.len());
        for (urgency, rule) in (0..).zip(rules) {
            let Some((left, right)) = halves(rule) else {
                let rule = String::from_utf8_lossy(rule);
                let message = format!("merge {urgency} is {rule:?}, not two texts with a space between");
                return Err(Error::input("bad-merge", message));
            };
            let pair = (pieces.number(left), pieces.number(right));
            let piece = pieces.number(&[left, right].concat());
            pairs.entry(pair).or_insert(Joined { urgency, piece });
        }
        let mut whole = HashMap::new();
        if pre == Pre::Llama3 {
            whole = pieces.numbers;
            whole.retain(|_, number| *number < count);
        }
        Ok(Self { splitter, tokens: count, bytes, rules: pairs, whole })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) -> Result<()> {
        let mut spelled = String::new();
        self.splitter.split(text, &mut |word| {
            if !self.whole.is_empty() {
                spelled.clear();
                spelled.extend(word.bytes().map(character_of));
                if let Some(&id) = self.whole.get(spelled.as_bytes()) {
                    ids.push(id);
                    return Ok(());
                }
            }
            merger.clear();
            word.bytes().for_each(|byte| merger.push(1, self.bytes[usize::from(byte)]));
            let join = |left: &Symbol, right: &Symbol| self.rules.get(&(left.piece, right.piece)).copied();
            for symbol in merger.merge(join) {
                if symbol.piece < self.tokens {
                    ids.push(symbol.piece);
                } else {
                    let start = symbol.start as usize;
                    self.spell(&word.as_bytes()[start..start + symbol.bytes as usize], ids)?;
                }
            }
            Ok(())
        })
    }

    fn spell(&self, bytes: &[u8], ids: &mut Vec<u32>) -> Result<()> {
        for &byte in bytes {
            let id = self.bytes[usize::from(byte)];
            if id >= self.tokens {
                let message = format!("the vocabulary has no token for the byte 0x{byte:02x} of the text");
                return Err(Error::input("no-token", message));
            }
            ids.push(id);
        }
        Ok(())
    }
}

/// Numbers of texts.
struct Pieces {
    numbers: HashMap<Box<[u8]>, u32>,
    next: u32,
}

impl Pieces {
    /// The number of `text`, a new one where it has none. Limits on rules keep numbers far from overflow.
    fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.next;
        self.numbers.insert(text.into(), number);
        self.next += 1;
        number
    }
}

/// The two sides of a rule. A side may begin with a space (none does in byte-level spelling), hence not the first byte.
fn halves(rule: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = rule.iter().skip(1).position(|&byte| byte == b' ')? + 1;
    let (left, right) = (&rule[..space], &rule[space + 1..]);
    (!right.is_empty()).then_some((left, right))
}

#[cfg(test)]
mod tests;
