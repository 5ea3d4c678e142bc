//! A text segment as packets: one to four words that execute at once, closed by the parse bits of the last one.
//!
//! Text must be walked from its start, because a word alone does not tell whether it begins a packet. LLVM keeps constants
//! out of text and pads with packets of nops, so a section of code is packets from its first byte to its last.

use core::fmt;
use estream_kernels_asm::word::{Parse, parse};

/// Words of a packet at the most.
pub const WORDS: usize = 4;

/// Which hardware loops a packet closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// None.
    None,
    /// The inner one.
    Inner,
    /// The outer one.
    Outer,
    /// Both.
    Both,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The address of its first word.
    pub address: u32,
    words: [u32; WORDS],
    count: usize,
}

impl Packet {
    /// Its words.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words[..self.count]
    }

    /// The address behind it.
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.address.wrapping_add(4 * self.count as u32)
    }

    /// Which loops it closes: the parse bits of the first word speak for the inner one, those of the second for the outer.
    #[must_use]
    pub fn loop_end(&self) -> LoopEnd {
        let marked =
            |index: usize| self.words().get(index).is_some_and(|&word| parse(word) == Parse::MoreLoopEnd);
        match (marked(0), marked(1)) {
            (false, false) => LoopEnd::None,
            (true, false) => LoopEnd::Inner,
            (false, true) => LoopEnd::Outer,
            (true, true) => LoopEnd::Both,
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words().iter().enumerate() {
            write!(f, "{}{word:08x}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Bytes that are no packets: text that ends inside one, or more than four words without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The address where a packet should begin.
    pub address: u32,
}

/// The packets of a text, in order. After a [`Malformed`] there are no more.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    text: &'a [u8],
    address: u32,
}

impl<'a> Packets<'a> {
    /// The packets of `text`, whose first byte stands at `address`.
    #[must_use]
    pub const fn new(text: &'a [u8], address: u32) -> Self {
        Self { text, address }
    }
}

impl Iterator for Packets<'_> {
    type Item = Result<Packet, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.text.is_empty() {
            return None;
        }
        let mut packet = Packet { address: self.address, words: [0; WORDS], count: 0 };
        let (words, _) = self.text.as_chunks::<4>();
        for (place, &bytes) in packet.words.iter_mut().zip(words) {
            *place = u32::from_le_bytes(bytes);
            packet.count += 1;
            if matches!(parse(*place), Parse::Duplex | Parse::Last) {
                self.text = &self.text[4 * packet.count..];
                self.address = packet.end();
                return Some(Ok(packet));
            }
        }
        self.text = &[];
        Some(Err(Malformed { address: packet.address }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn packets_end_where_their_parse_bits_say() {
        // nop; { nop nop }:endloop0; { nop nop nop }:endloop01; a duplex behind an extender.
        let text = bytes(&[
            0x7f00_c000,
            0x7f00_8000,
            0x7f00_c000,
            0x7f00_8000,
            0x7f00_8000,
            0x7f00_c000,
            0x0123_5159,
            0x2b80_2821,
        ]);
        let packets: Vec<_> = Packets::new(&text, 0x100).map(|packet| packet.expect("well formed")).collect();
        let ends: Vec<_> = packets.iter().map(|packet| (packet.address, packet.loop_end())).collect();
        assert_eq!(
            ends,
            [(0x100, LoopEnd::None), (0x104, LoopEnd::Inner), (0x10c, LoopEnd::Both), (0x118, LoopEnd::None)]
        );
        assert_eq!(packets[3].words().len(), 2);
        assert_eq!(packets[3].end(), 0x120);
    }

    #[test]
    fn text_without_an_end_is_malformed_once() {
        for words in [&[0x7f00_4000][..], &[0x7f00_4000; 5]] {
            let text = bytes(words);
            let mut packets = Packets::new(&text, 8);
            assert_eq!(packets.next(), Some(Err(Malformed { address: 8 })));
            assert_eq!(packets.next(), None);
        }
        let mut odd = Packets::new(&[0, 0xc0, 0], 0);
        assert_eq!(odd.next(), Some(Err(Malformed { address: 0 })));
    }
}
