//! Strips to unsigned codes, f32 scales and f32 minima.
//!
//! Scales and minima have the bits that the f32 decoder gives them: both call the same functions.

use super::super::decode::{min, scale};
use super::super::lanes::Lanes;
use super::super::{LANES, Strip};
use super::{CODES, Columns, OFFSET, serves, tile_words};
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::{Codec, StripLayout};
use estream_idl::tile::{BIT_BYTES, BYTE_BYTES, NIBBLE_BYTES};
use zerocopy::IntoBytes;

/// Bytes of sixteen columns of a vector.
const BYTES: usize = 64;
/// Low nibbles of a word.
const NIBBLES: u32 = 0x0F0F_0F0F;

/// See [`super::super::Products::decode`].
#[inline(always)]
pub(in super::super) fn decode<C: Columns>(c: C, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
    let layout = strip.format.strip(strip.k);
    assert!(strip.bytes.len() == layout.bytes, "a strip has its format's bytes");
    assert!(tiles.start <= tiles.end && tiles.end <= layout.tiles, "tiles out of the strip");
    assert!(serves(&strip.format), "codes fit a signed byte");
    let words = tile_words(&strip.format);
    assert!(out.len() == tiles.len() * words, "a tile's words each");
    for (tile, out) in tiles.zip(out.chunks_exact_mut(words)) {
        let (codes, factors) = out.split_at_mut(CODES);
        let vectors = &mut codes.as_mut_bytes().as_chunks_mut::<BYTES>().0.as_chunks_mut::<16>().0[0];
        match (strip.format.codec, strip.format.extra_bits) {
            (Codec::N4 | Codec::F16, _) => nibbles(c, strip, layout, tile, vectors),
            (Codec::B8, 0) => bytes(c, strip, layout, tile, vectors),
            (Codec::B8, 1) => extended::<C, 1>(c, strip, layout, tile, vectors),
            (Codec::B8, _) => extended::<C, 2>(c, strip, layout, tile, vectors),
        }
        let l = c.eight();
        let subs = TILE / strip.format.sub_block;
        let eights = factors.as_chunks_mut::<LANES>().0;
        let groups = TILE / LANES;
        for at in 0..subs * groups {
            let (block, group) = (tile * subs + at / groups, at % groups);
            l.store(scale(l, strip, layout, tile, block, group), &mut eights[at]);
            if let Some(min) = min(l, strip, layout, tile, block, group) {
                l.store(min, &mut eights[subs * groups + at]);
            }
        }
    }
}

/// Sixteen columns of four k's, a vector's two halves one after the other.
type Vectors = [[u8; BYTES]; 16];

/// The halves of a tile's vectors in a plane, `N` of them.
#[inline(always)]
fn halves<const N: usize>(plane: &[u8], tile: usize) -> &[[u8; BYTES]; N] {
    &plane.as_chunks::<BYTES>().0.as_chunks::<N>().0[tile]
}

/// Nibble vector i holds byte vectors 2i (low) and 2i + 1 (high).
#[inline(always)]
const fn places(half: usize) -> [usize; 2] {
    let (vector, half) = (half / 2, half % 2);
    [4 * vector + half, 4 * vector + 2 + half]
}

#[inline(always)]
fn nibbles<C: Columns>(c: C, strip: Strip<'_>, layout: StripLayout, tile: usize, out: &mut Vectors) {
    let table = strip.format.table.map(|value| (i32::from(value) + OFFSET) as u8);
    let mask = c.word(NIBBLES);
    let codes = halves::<{ NIBBLE_BYTES / BYTES }>(&strip.bytes[..layout.extra], tile);
    for (half, codes) in codes.iter().enumerate() {
        let (codes, [low, high]) = (c.words(codes), places(half));
        c.keep(c.entries(&table, c.and(codes, mask)), &mut out[low]);
        c.keep(c.entries(&table, c.and(c.shr(codes, 4), mask)), &mut out[high]);
    }
}

#[inline(always)]
fn bytes<C: Columns>(c: C, strip: Strip<'_>, layout: StripLayout, tile: usize, out: &mut Vectors) {
    let codes = halves::<{ BYTE_BYTES / BYTES }>(&strip.bytes[..layout.extra], tile);
    for (codes, out) in codes.iter().zip(out) {
        c.keep(c.xor(c.words(codes), c.word(0x8080_8080)), out);
    }
}

/// Nibbles with `BITS` more bits each, less a bias.
#[inline(always)]
fn extended<C: Columns, const BITS: usize>(
    c: C,
    strip: Strip<'_>,
    layout: StripLayout,
    tile: usize,
    out: &mut Vectors,
) {
    let mask = c.word(NIBBLES);
    let shift = (OFFSET - i32::from(strip.format.bias)) as u8;
    let shift = c.word(u32::from_ne_bytes([shift; 4]));
    let codes = halves::<{ NIBBLE_BYTES / BYTES }>(&strip.bytes[..layout.extra], tile);
    let extra = strip.bytes[layout.extra..layout.super_].as_chunks::<BYTES>().0;
    for (half, codes) in codes.iter().enumerate() {
        let (codes, [low, high]) = (c.words(codes), places(half));
        let [mut even, mut odd] = [c.and(codes, mask), c.and(c.shr(codes, 4), mask)];
        for bit in 0..BITS {
            let plane = c.words(&extra[(tile * BITS + bit) * (BIT_BYTES / BYTES) + half % 2]);
            // The vector's eight bits: bit 2j belongs to the low nibble of byte j, bit 2j + 1 to the high one.
            let bits = c.and(c.shr(plane, 8 * (half / 2) as u32), c.word(0xFF));
            even = c.or(even, c.shl(spread(c, bits), 4 + bit as u32));
            odd = c.or(odd, c.shl(spread(c, c.shr(bits, 1)), 4 + bit as u32));
        }
        c.keep(c.add_bytes(even, shift), &mut out[low]);
        c.keep(c.add_bytes(odd, shift), &mut out[high]);
    }
}

/// Bits 0, 2, 4 and 6 of each word to the lowest bit of its four bytes.
#[inline(always)]
fn spread<C: Columns>(c: C, bits: C::Words) -> C::Words {
    let two = c.or(bits, c.shl(bits, 6));
    c.and(c.or(two, c.shl(two, 12)), c.word(0x0101_0101))
}
