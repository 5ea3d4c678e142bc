//! Sentence-piece vocabularies ("llama"): the whole text is one word, and pairs merge by the score of what they become.
//!
//! A space is written `▁`, and one is put before a text that begins a sentence. A character that is no token is spelled by
//! the 256 byte tokens `<0x00>` to `<0xFF>`. llama.cpp's merges are what is copied here, not the sentence-piece
//! library's search for the best segmentation: files are made for either and the ids are equal on ordinary text.

use crate::keys::Tokens;
use crate::merge::{Joined, Merger, NONE, Symbol};
use estream_pack::{Error, Result};
use std::collections::HashMap;

/// How a space is written.
const SPACE: char = '▁';

/// A sentence-piece vocabulary.
#[derive(Debug)]
pub(crate) struct Spm {
    ids: HashMap<Box<[u8]>, u32>,
    /// Of each token: the higher its score, the lower.
    urgencies: Vec<u32>,
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    /// The token of what has no other.
    unknown: Option<u32>,
    /// Whether a text that begins the request, or follows a special token, has a space put before it.
    pub(crate) leading_space: bool,
}

impl Spm {
    /// A vocabulary of `tokens` with a score each.
    pub(crate) fn new(
        tokens: Tokens,
        scores: &[f32],
        unknown: Option<u32>,
        leading_space: bool,
    ) -> Result<Self> {
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::input("bad-score", format!("the score of token {id} is no number")));
        }
        let mut bytes = [None; 256];
        for (byte, id) in (0..=u8::MAX).zip(&mut bytes) {
            let named = tokens.ids.get(format!("<0x{byte:02X}>").as_bytes());
            *id = named.or_else(|| tokens.ids.get(&[byte][..])).copied();
        }
        let urgencies = scores.iter().map(|&score| urgency(score)).collect();
        Ok(Self { ids: tokens.ids, urgencies, bytes, unknown, leading_space })
    }

    /// Appends the ids of `text`; `first` where it begins the request or follows a special token.
    pub(crate) fn encode(
        &self,
        text: &str,
        first: bool,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let space = (first && self.leading_space).then_some(SPACE);
        let spaced = text.chars().map(|character| if character == ' ' { SPACE } else { character });
        let text: String = space.into_iter().chain(spaced).collect();
        let part = |start: u32, bytes: u32| &text.as_bytes()[start as usize..(start + bytes) as usize];
        let token = |start, bytes| self.ids.get(part(start, bytes)).copied();
        merger.clear();
        let mut start = 0;
        for character in text.chars() {
            let bytes = character.len_utf8() as u32;
            merger.push(bytes, token(start, bytes).unwrap_or(NONE));
            start += bytes;
        }
        let join = |left: &Symbol, right: &Symbol| {
            let piece = token(left.start, left.bytes + right.bytes)?;
            Some(Joined { urgency: *self.urgencies.get(piece as usize)?, piece })
        };
        for symbol in merger.merge(join) {
            if symbol.piece != NONE {
                ids.push(symbol.piece);
                continue;
            }
            for &byte in part(symbol.start, symbol.bytes) {
                let id = self.bytes[usize::from(byte)].or(self.unknown).ok_or_else(|| {
                    let message =
                        format!("the vocabulary has no token for the byte 0x{byte:02x} of the text");
                    Error::input("no-token", message)
                })?;
                ids.push(id);
            }
        }
        Ok(())
    }
}

/// The order of scores, turned round, as the order of integers. Both zeros are one.
fn urgency(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}

#[cfg(test)]
mod tests;
