//! Strips to f32: every codec, scale and minimum that a pack may hold.
//!
//! The tile order puts one column in each 32-bit lane, so eight lanes decode eight columns without a shuffle: a code is
//! a field of the lane, and which k it belongs to follows from the field's place ([`tile::LANE_ORDER`]). A strip's three
//! ways to store codes differ in [`Codes`] alone. Products are formed as ggml forms them, (d·s)·q, then the minimum is
//! added: no fused operation, so all backends decode to the same bits.

use super::lanes::Lanes;
use super::{LANES, Strip};
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::{Codec, Element, Min, SUPER_BLOCK, Scale, StripLayout};
use estream_idl::tile::{self, BIT_BYTES, BYTE_BYTES, NIBBLE_BYTES};

/// Groups of eight columns in a tile.
const GROUPS: usize = TILE / LANES;
/// k's of a nibble vector.
const RUN: usize = 8;
/// Bytes of a vector: 32 columns of four bytes.
const VECTOR: usize = 4 * TILE;
/// Bytes of a vector that belong to eight columns.
const WORDS: usize = 4 * LANES;

/// One decoded tile, `[k][column]`.
type Tile = [f32; TILE * TILE];

/// See [`super::Kernels::decode`].
#[inline(always)]
pub(super) fn decode<L: Lanes>(l: L, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
    let layout = strip.format.strip(strip.k);
    assert!(strip.bytes.len() == layout.bytes, "a strip has its format's bytes");
    assert!(tiles.start <= tiles.end && tiles.end <= layout.tiles, "tiles out of the strip");
    let (out, rest) = out.as_chunks_mut::<{ TILE * TILE }>();
    assert!(out.len() == tiles.len() && rest.is_empty(), "1024 weights a tile");
    let codes = &strip.bytes[..layout.extra];
    let extra = &strip.bytes[layout.extra..layout.super_];
    let format = strip.format;
    let bias = l.splat(-f32::from(format.bias));
    match (format.codec, format.extra_bits) {
        (Codec::F16, _) => elements(l, format.element, codes, tiles, out),
        (Codec::N4, _) => {
            let mut table = [0.0; 16];
            for (value, entry) in table.iter_mut().zip(format.table) {
                *value = f32::from(entry);
            }
            let (halves, _) = table.as_chunks::<LANES>();
            let codes = Nibbles::<L> { codes, low: l.load(&halves[0]), high: l.load(&halves[1]) };
            quantised(l, strip, layout, codes, tiles, out);
        }
        (Codec::B8, 0) => quantised(l, strip, layout, Bytes { codes }, tiles, out),
        (Codec::B8, 1) => quantised(l, strip, layout, Extended::<L, 1> { codes, extra, bias }, tiles, out),
        (Codec::B8, _) => quantised(l, strip, layout, Extended::<L, 2> { codes, extra, bias }, tiles, out),
    }
}

/// A strip's codes as numbers, before scale and minimum.
trait Codes<L: Lanes>: Copy {
    /// Those of k = 8·`run`.. in ascending order, columns 8·`group`...
    fn read(self, l: L, tile: usize, run: usize, group: usize) -> [L::F; RUN];
}

/// The 32 bytes of `vector` that belong to eight columns.
#[inline(always)]
fn lane_bytes(plane: &[u8], vector: usize, group: usize) -> &[u8; WORDS] {
    let (bytes, _) =
        plane[vector * VECTOR + group * WORDS..].split_first_chunk().expect("planes hold whole tiles");
    bytes
}

/// Nibbles through a table.
#[derive(Clone, Copy)]
struct Nibbles<'a, L: Lanes> {
    codes: &'a [u8],
    low: L::F,
    high: L::F,
}

impl<L: Lanes> Codes<L> for Nibbles<'_, L> {
    #[inline(always)]
    fn read(self, l: L, tile: usize, run: usize, group: usize) -> [L::F; RUN] {
        let lanes = l.words(lane_bytes(self.codes, tile * (NIBBLE_BYTES / VECTOR) + run, group));
        let mut values = [self.low; RUN];
        for (j, &k) in tile::LANE_ORDER.iter().enumerate() {
            values[k] = l.lookup(self.low, self.high, l.shr(lanes, nibble_shift(j)));
        }
        values
    }
}

/// First bit, in a lane, of the nibble at place `j` of [`tile::LANE_ORDER`].
#[inline(always)]
const fn nibble_shift(j: usize) -> u32 {
    (8 * (j % 4) + 4 * (j / 4)) as u32
}

/// Signed bytes; a byte vector holds four k's, in the order of the low nibbles.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    codes: &'a [u8],
}

impl<L: Lanes> Codes<L> for Bytes<'_> {
    #[inline(always)]
    fn read(self, l: L, tile: usize, run: usize, group: usize) -> [L::F; RUN] {
        let mut values = [l.splat(0.0); RUN];
        for half in 0..2 {
            let lanes = l.words(lane_bytes(self.codes, tile * (BYTE_BYTES / VECTOR) + 2 * run + half, group));
            for (j, &k) in tile::LANE_ORDER[..4].iter().enumerate() {
                values[4 * half + k] = l.value(l.sar(l.shl(lanes, 24 - 8 * j as u32), 24));
            }
        }
        values
    }
}

/// Nibbles with `BITS` more bits each, less a bias; sums of small integers are exact in f32.
#[derive(Clone, Copy)]
struct Extended<'a, L: Lanes, const BITS: usize> {
    codes: &'a [u8],
    extra: &'a [u8],
    /// Minus the bias.
    bias: L::F,
}

impl<L: Lanes, const BITS: usize> Codes<L> for Extended<'_, L, BITS> {
    #[inline(always)]
    fn read(self, l: L, tile: usize, run: usize, group: usize) -> [L::F; RUN] {
        let lanes = l.words(lane_bytes(self.codes, tile * (NIBBLE_BYTES / VECTOR) + run, group));
        let mut planes = [lanes; BITS];
        for (b, plane) in planes.iter_mut().enumerate() {
            *plane = l.words(lane_bytes(self.extra, tile * (BITS * BIT_BYTES / VECTOR) + b, group));
        }
        let mut values = [self.bias; RUN];
        for (j, &k) in tile::LANE_ORDER.iter().enumerate() {
            let nibble = l.and(l.shr(lanes, nibble_shift(j)), 15);
            values[k] = l.add(self.bias, l.value(nibble));
            let number = (RUN * run + 2 * (j % 4) + j / 4) as u32;
            for (b, &plane) in planes.iter().enumerate() {
                let bit = l.value(l.and(l.shr(plane, number), 1));
                values[k] = l.mul_add(bit, l.splat((16 << b) as f32), values[k]);
            }
        }
        values
    }
}

/// Codes times scales plus minima.
#[inline(always)]
fn quantised<L: Lanes>(
    l: L,
    strip: Strip<'_>,
    layout: StripLayout,
    codes: impl Codes<L>,
    tiles: Range<usize>,
    out: &mut [Tile],
) {
    let subs = TILE / strip.format.sub_block;
    let runs = TILE / RUN / subs;
    for (tile, out) in tiles.zip(out) {
        for sub in 0..subs {
            for group in 0..GROUPS {
                let block = tile * subs + sub;
                let scale = scale(l, strip, layout, tile, block, group);
                let min = min(l, strip, layout, tile, block, group);
                for run in sub * runs..(sub + 1) * runs {
                    let values = codes.read(l, tile, run, group);
                    for (k, value) in values.into_iter().enumerate() {
                        let mut weight = l.mul(scale, value);
                        if let Some(min) = min {
                            weight = l.add(weight, min);
                        }
                        store(l, weight, out, RUN * run + k, group);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn store<L: Lanes>(l: L, lanes: L::F, out: &mut Tile, k: usize, group: usize) {
    l.store(lanes, &mut out.as_chunks_mut::<LANES>().0[k * GROUPS + group]);
}

/// Eight columns' halves out of a plane of rows of 32.
#[inline(always)]
fn halves<L: Lanes>(l: L, plane: &[u8], row: usize, group: usize) -> L::F {
    l.half(l.halfwords(&plane.as_chunks().0[row * GROUPS + group]))
}

/// Eight columns' bytes out of a plane of rows of 32.
#[inline(always)]
fn small<L: Lanes>(l: L, plane: &[u8], row: usize, group: usize) -> L::I {
    l.bytes(&plane.as_chunks().0[row * GROUPS + group])
}

/// Which row of the super plane holds a tile's `d`; `dmin`, where there is one, is the next.
#[inline(always)]
fn super_row(strip: Strip<'_>, tile: usize) -> usize {
    tile * TILE / SUPER_BLOCK * if strip.format.min == Min::SuperU8 { 2 } else { 1 }
}

/// Eight columns' scales of a sub-block.
#[inline(always)]
pub(super) fn scale<L: Lanes>(
    l: L,
    strip: Strip<'_>,
    layout: StripLayout,
    tile: usize,
    block: usize,
    group: usize,
) -> L::F {
    let plane = &strip.bytes[layout.scales..layout.mins];
    let supers = &strip.bytes[layout.super_..layout.scales];
    match strip.format.scale {
        Scale::None => l.splat(1.0),
        Scale::F16 => halves(l, plane, block, group),
        // The byte is the exponent field of an f32, but for 0, which stands for 2^−127.
        Scale::E8M0 => {
            let power = l.bits_to_float(l.shl(small(l, plane, block, group), 23));
            l.max(l.splat(f32::from_bits(1 << 22)), power)
        }
        Scale::SuperU8 => {
            let d = halves(l, supers, super_row(strip, tile), group);
            l.mul(d, l.value(small(l, plane, block, group)))
        }
        Scale::SuperI8 => {
            let d = halves(l, supers, super_row(strip, tile), group);
            l.mul(d, l.value(l.sar(l.shl(small(l, plane, block, group), 24), 24)))
        }
    }
}

/// What is added to eight columns' weights of a sub-block, where the format has minima.
#[inline(always)]
pub(super) fn min<L: Lanes>(
    l: L,
    strip: Strip<'_>,
    layout: StripLayout,
    tile: usize,
    block: usize,
    group: usize,
) -> Option<L::F> {
    let plane = &strip.bytes[layout.mins..];
    match strip.format.min {
        Min::None => None,
        Min::F16 => Some(halves(l, plane, block, group)),
        Min::SuperU8 => {
            let supers = &strip.bytes[layout.super_..layout.scales];
            let dmin = halves(l, supers, super_row(strip, tile) + 1, group);
            let min = l.mul(dmin, l.value(small(l, plane, block, group)));
            Some(l.mul(l.splat(-1.0), min))
        }
    }
}

/// Row pairs of plain elements: lane c of a pair holds column c's even k, then its odd k.
#[inline(always)]
fn elements<L: Lanes>(l: L, element: Element, codes: &[u8], tiles: Range<usize>, out: &mut [Tile]) {
    for (tile, out) in tiles.zip(out) {
        for pair in 0..TILE / 2 {
            let row = tile * (TILE / 2) + pair;
            for group in 0..GROUPS {
                let (even, odd) = match element {
                    Element::F32 => {
                        let vectors: &[[u8; WORDS]] = codes.as_chunks().0;
                        let at = 2 * (row * GROUPS + group);
                        l.unzip(
                            l.bits_to_float(l.words(&vectors[at])),
                            l.bits_to_float(l.words(&vectors[at + 1])),
                        )
                    }
                    Element::BF16 => {
                        let lanes = l.words(lane_bytes(codes, row, group));
                        (l.bits_to_float(l.shl(lanes, 16)), l.bits_to_float(l.and(lanes, 0xFFFF_0000)))
                    }
                    Element::F16 | Element::None => {
                        let lanes = l.words(lane_bytes(codes, row, group));
                        (l.half(l.and(lanes, 0xFFFF)), l.half(l.shr(lanes, 16)))
                    }
                };
                store(l, even, out, 2 * pair, group);
                store(l, odd, out, 2 * pair + 1, group);
            }
        }
    }
}
