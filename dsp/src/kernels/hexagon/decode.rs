//! Strips to weights: fp16 tiles in the matrix unit's order, or f32 rows for products that stay on the vector unit.
//!
//! The tile order of the pack is the unit's own: a nibble vector gives four row-pair vectors with two table lookups, a
//! byte vector two with one sign extension, and no shuffle follows (`estream_idl::tile`). Two ways:
//!
//! * [`Way::Halves`], where a weight is `scale · code` or `scale · code + min` with a half for each: the codes are small
//!   integers, exact as halves, and halves multiply to floats two vectors at a time. 16 stores bound it; Q4_0 comes to
//!   eight lookups, sixteen products and sixteen roundings a tile.
//! * [`Way::Floats`], for scales under super-scales, powers of two and plain elements: everything is formed in f32, as the
//!   types define it.
//!
//! Either way a weight is rounded to a half once, from a float within a few units in its last place: a tile is within half
//! a unit in the last place of the stored values, but for those that lie that near a tie. The road not taken is a product
//! in qf16: as many instructions, but its significands are odd, which is a whole unit in the last place. What a half
//! cannot hold is reported as the largest magnitude met, and fails the call: the matrix unit would take an infinity for a
//! number.

use super::hvx::{
    self, Q, V, add_q, and, bits_to_bytes, deal_w, float, float_of_w, half_of_h, interleave_h, lift, lookup,
    max_uh, max_w, mul_hf, mul_q, narrow, or, rotate, shl_w, shr_b, shr_w, splat, splat_b, sub_b, unpack_b,
    unpack_h, unpack_ub, widen, widen_b, zero,
};
use super::steady;
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::{Codec, Element, Format, Min, SUPER_BLOCK, Scale};
use half::f16;

/// Vectors of an fp16 tile: row pairs.
pub const PAIRS: usize = TILE / 2;
/// Bits of a half but its sign.
pub(super) const MAGNITUDE: u32 = 0x7fff_7fff;
/// The first magnitude that is no finite half.
pub const OVERFLOW: u16 = 0x7c00;

/// An fp16 tile.
pub type Tile = [V; PAIRS];

/// The planes of a strip, or of a part of one that was brought near by itself.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    format: Format,
    /// The codes' table as halves, in the low halves of the first sixteen words.
    table: V,
    codes: &'a [V],
    extra: &'a [V],
    supers: &'a [V],
    scales: &'a [V],
    mins: &'a [V],
}

/// How a format is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Halves,
    Floats,
}

impl<'a> Planes<'a> {
    /// The planes of a strip of `k` inputs in `bytes`; `None` where these do not begin at a vector's border or are too
    /// few.
    #[must_use]
    pub fn new(format: Format, k: usize, bytes: &'a [u8]) -> Option<Self> {
        let layout = format.strip(k);
        let vectors = hvx::vectors(bytes)?.get(..layout.bytes / hvx::BYTES)?;
        let plane = |from: usize, to: usize| vectors.get(from / hvx::BYTES..to / hvx::BYTES);
        let mut table = [0; hvx::FLOATS];
        for (entry, &value) in table.iter_mut().zip(&format.table) {
            *entry = u32::from(f16::from_f32(f32::from(value)).to_bits());
        }
        Some(Self {
            format,
            table: hvx::from_words(table),
            codes: plane(0, layout.extra)?,
            extra: plane(layout.extra, layout.super_)?,
            supers: plane(layout.super_, layout.scales)?,
            scales: plane(layout.scales, layout.mins)?,
            mins: plane(layout.mins, layout.bytes)?,
        })
    }

    fn way(&self) -> Way {
        match (self.format.codec, self.format.scale, self.format.min) {
            (Codec::F16, ..) => Way::Floats,
            (_, Scale::F16, Min::None | Min::F16) => Way::Halves,
            _ => Way::Floats,
        }
    }

    /// Decodes `tiles` of the planes to `out`, a tile each, and returns the largest magnitude as a half's bits, at least
    /// [`OVERFLOW`] where a weight is no finite half.
    ///
    /// # Panics
    /// When the planes have fewer tiles.
    #[must_use]
    pub fn tiles(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let mut worst = zero();
        match (self.way(), self.format.codec, self.format.element) {
            (_, Codec::F16, Element::F16) => {
                let (codes, _) = self.codes[tiles.start * PAIRS..tiles.end * PAIRS].as_chunks::<PAIRS>();
                for (out, codes) in out.iter_mut().zip(codes) {
                    *out = *codes;
                    worst = codes.iter().fold(worst, |worst, &v| max_uh(worst, and(v, splat(MAGNITUDE))));
                }
                hvx::largest_uh(worst)
            }
            (Way::Halves, ..) if self.format.min == Min::None && self.format.codec == Codec::N4 => {
                self.scaled_nibbles(tiles, out)
            }
            (Way::Halves, ..) => self.halves(tiles, out),
            (Way::Floats, ..) => {
                for (tile, out) in tiles.zip(out) {
                    self.floats(tile, |pair, even, odd| {
                        let v = narrow(even, odd);
                        worst = max_uh(worst, and(v, splat(MAGNITUDE)));
                        out[pair] = v;
                    });
                }
                hvx::largest_uh(worst)
            }
        }
    }

    /// The hot loop: nibbles under halves, two tiles a turn, since 32-blocks of two tiles share a vector of scales.
    fn scaled_nibbles(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let (codes, _) = self.codes.as_chunks::<4>();
        let codes = &codes[tiles.clone()];
        let mut worst = zero();
        if self.format.sub_block == TILE && tiles.start.is_multiple_of(2) {
            let scales = &self.scales[tiles.start / 2..tiles.end.div_ceil(2)];
            let done = steady::pairs(self.table, codes, scales, out, &mut worst);
            let rest = out.chunks_mut(2).zip(codes.chunks(2)).zip(scales).skip(done);
            for ((out, codes), &scales) in rest {
                worst = max_uh(worst, and(scales, splat(MAGNITUDE)));
                let scales = interleave_h(scales, scales);
                for ((out, codes), scale) in out.iter_mut().zip(codes).zip([scales.0, scales.1]) {
                    nibbles(self.table, codes, [scale; 2], out);
                }
            }
        } else {
            for ((tile, out), codes) in tiles.zip(out).zip(codes) {
                let scales = self.half_rows(self.scales, tile);
                worst = scales.iter().fold(worst, |worst, &v| max_uh(worst, and(v, splat(MAGNITUDE))));
                nibbles(self.table, codes, scales, out);
            }
        }
        self.magnitude(hvx::largest_uh(worst), 0)
    }

    /// Nibbles or bytes under halves, with minima or without.
    fn halves(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let (mut worst, mut lowest) = (zero(), zero());
        for (tile, out) in tiles.zip(out) {
            let scales = self.half_rows(self.scales, tile);
            worst = scales.iter().fold(worst, |worst, &v| max_uh(worst, and(v, splat(MAGNITUDE))));
            let mins = (self.format.min == Min::F16).then(|| {
                let rows = self.half_rows(self.mins, tile);
                lowest = rows.iter().fold(lowest, |lowest, &v| max_uh(lowest, and(v, splat(MAGNITUDE))));
                rows.map(|row| widen(row).0)
            });
            self.codes(tile, |pair, code| {
                let sub = pair / (PAIRS / 2);
                let (even, odd) = mul_hf(code, scales[sub]);
                out[pair] = match &mins {
                    Some(mins) => narrow(add_q(even, mins[sub]), add_q(odd, mins[sub])),
                    None => narrow(even, odd),
                };
            });
        }
        self.magnitude(hvx::largest_uh(worst), hvx::largest_uh(lowest))
    }

    /// The bits of a bound of every weight under scales up to `scale` and minima up to `min`.
    fn magnitude(&self, scale: u16, min: u16) -> u16 {
        let largest = match self.format.codec {
            Codec::N4 => self.format.table.iter().map(|code| code.unsigned_abs()).max().unwrap_or(0),
            _ => 128,
        };
        let [scale, min] = [scale, min].map(|bits| f16::from_bits(bits).to_f32());
        f16::from_f32(scale * f32::from(largest) + min).to_bits()
    }

    /// The halves of a tile's first and second sub-block, each column's twice; equal where there is one sub-block.
    #[inline(always)]
    fn half_rows(&self, plane: &[V], tile: usize) -> [V; 2] {
        if self.format.sub_block == TILE {
            let (even, odd) = interleave_h(plane[tile / 2], plane[tile / 2]);
            [if tile.is_multiple_of(2) { even } else { odd }; 2]
        } else {
            let (first, second) = interleave_h(plane[tile], plane[tile]);
            [first, second]
        }
    }

    /// A tile's codes as halves, row pair by row pair.
    #[inline(always)]
    fn codes(&self, tile: usize, mut sink: impl FnMut(usize, V)) {
        match (self.format.codec, self.format.extra_bits) {
            (Codec::N4, _) => {
                for (i, &q) in self.codes[4 * tile..4 * tile + 4].iter().enumerate() {
                    let (a, b) = lookup(q, self.table);
                    let (c, d) = lookup(shr_b(q, 4), self.table);
                    [a, b, c, d].into_iter().enumerate().for_each(|(j, v)| sink(4 * i + j, v));
                }
            }
            (_, 0) => {
                for (i, &q) in self.codes[8 * tile..8 * tile + 8].iter().enumerate() {
                    let (a, b) = widen_b(q);
                    sink(2 * i, half_of_h(a));
                    sink(2 * i + 1, half_of_h(b));
                }
            }
            (_, bits) => {
                let planes = &self.extra[tile * bits..(tile + 1) * bits];
                let bias = splat_b(self.format.bias.cast_unsigned());
                for (i, &q) in self.codes[4 * tile..4 * tile + 4].iter().enumerate() {
                    let mut low = and(q, splat_b(15));
                    let mut high = shr_b(q, 4);
                    for (b, &plane) in planes.iter().enumerate() {
                        // Bits 8i to 8i + 7 of each lane, in all four bytes of it: bit 2b + h is that of byte b's nibble h.
                        let byte = and(shr_w(plane, 8 * i as u32), splat(0xff));
                        let two = or(byte, shl_w(byte, 8));
                        let four = or(two, shl_w(two, 16));
                        let value = 0x1010_1010 << b;
                        low = or(low, bits_to_bytes(four, 0x4010_0401, value));
                        high = or(high, bits_to_bytes(four, 0x8020_0802, value));
                    }
                    for (j, v) in [low, high].into_iter().enumerate() {
                        let (a, b) = widen_b(sub_b(v, bias));
                        sink(4 * i + 2 * j, half_of_h(a));
                        sink(4 * i + 2 * j + 1, half_of_h(b));
                    }
                }
            }
        }
    }

    /// A tile's weights in f32, row pair by row pair: the even row, the odd row.
    #[inline(always)]
    pub fn floats(&self, tile: usize, mut sink: impl FnMut(usize, Q, Q)) {
        match self.format.element {
            Element::F32 | Element::BF16 => {
                for pair in 0..PAIRS {
                    let (even, odd) = self.plain(tile, pair);
                    sink(pair, lift(even), lift(odd));
                }
            }
            Element::F16 => {
                for pair in 0..PAIRS {
                    let (even, odd) = widen(self.codes[tile * PAIRS + pair]);
                    sink(pair, even, odd);
                }
            }
            Element::None => {
                let subs = TILE / self.format.sub_block;
                let mut scales = [lift(zero()); 2];
                let mut mins = [lift(zero()); 2];
                for sub in 0..2 {
                    let block = tile * subs + sub * (subs - 1);
                    scales[sub] = self.scale(tile, block);
                    mins[sub] = self.min(tile, block);
                }
                let least = self.format.min != Min::None;
                self.codes(tile, |pair, code| {
                    let sub = pair / (PAIRS / 2);
                    let (even, odd) = widen(code);
                    let [mut even, mut odd] = [even, odd].map(|code| mul_q(code, scales[sub]));
                    if least {
                        (even, odd) = (add_q(even, mins[sub]), add_q(odd, mins[sub]));
                    }
                    sink(pair, even, odd);
                });
            }
        }
    }

    /// Row `row` of a plane of halves, 32 columns in order.
    #[inline(always)]
    fn half_row(plane: &[V], row: usize) -> Q {
        let v = plane[row / 2];
        let (even, odd) = interleave_h(v, v);
        widen(if row.is_multiple_of(2) { even } else { odd }).0
    }

    /// Row `row` of a plane of bytes as words, 32 columns in order.
    #[inline(always)]
    fn byte_row(plane: &[V], row: usize, signed: bool) -> V {
        let v = rotate(plane[row / 4], 32 * (row % 4) as u32);
        let (halves, _) = if signed { unpack_b(v) } else { unpack_ub(v) };
        unpack_h(halves).0
    }

    /// Which row of the super plane holds a tile's `d`; `dmin`, where there is one, is the next.
    #[inline(always)]
    fn super_row(&self, tile: usize) -> usize {
        tile * TILE / SUPER_BLOCK * if self.format.min == Min::SuperU8 { 2 } else { 1 }
    }

    #[inline(always)]
    fn scale(&self, tile: usize, block: usize) -> Q {
        match self.format.scale {
            Scale::None => lift(hvx::splat_f(1.0)),
            Scale::F16 => Self::half_row(self.scales, block),
            // The byte is the exponent field of an f32, but for 0, which stands for 2^−127.
            Scale::E8M0 => lift(max_w(splat(1 << 22), shl_w(Self::byte_row(self.scales, block, false), 23))),
            scale => {
                let d = Self::half_row(self.supers, self.super_row(tile));
                let sub = Self::byte_row(self.scales, block, scale == Scale::SuperI8);
                mul_q(d, lift(float_of_w(sub)))
            }
        }
    }

    #[inline(always)]
    fn min(&self, tile: usize, block: usize) -> Q {
        match self.format.min {
            Min::None => lift(zero()),
            Min::F16 => Self::half_row(self.mins, block),
            Min::SuperU8 => {
                let dmin = Self::half_row(self.supers, self.super_row(tile) + 1);
                let min = mul_q(dmin, lift(float_of_w(Self::byte_row(self.mins, block, false))));
                mul_q(min, lift(hvx::splat_f(-1.0)))
            }
        }
    }

    /// Decodes `tiles` to f32 rows of 32 columns, `out[k − 32·tiles.start]`. Plain elements of 16 or 32 bits are what
    /// they are.
    pub fn rows(&self, tiles: Range<usize>, out: &mut [[f32; TILE]]) {
        for (tile, out) in tiles.zip(out.as_chunks_mut::<TILE>().0) {
            let mut put = |pair: usize, even: V, odd: V| {
                hvx::store(even, &mut out[2 * pair]);
                hvx::store(odd, &mut out[2 * pair + 1]);
            };
            match self.format.element {
                Element::F32 | Element::BF16 => (0..PAIRS).for_each(|pair| {
                    let (even, odd) = self.plain(tile, pair);
                    put(pair, even, odd);
                }),
                Element::F16 | Element::None => {
                    self.floats(tile, |pair, even, odd| put(pair, float(even), float(odd)));
                }
            }
        }
    }

    /// A row pair of plain elements that are f32 or its upper half.
    #[inline(always)]
    fn plain(&self, tile: usize, pair: usize) -> (V, V) {
        let at = tile * PAIRS + pair;
        if self.format.element == Element::F32 {
            return deal_w(self.codes[2 * at], self.codes[2 * at + 1]);
        }
        (shl_w(self.codes[at], 16), and(self.codes[at], splat(0xffff_0000)))
    }
}

/// One tile of nibbles under halves, `scales` for its two halves of k.
#[inline(always)]
fn nibbles(table: V, codes: &[V; 4], scales: [V; 2], out: &mut Tile) {
    for (i, &q) in codes.iter().enumerate() {
        let scale = scales[i / 2];
        let (a, b) = lookup(q, table);
        let (c, d) = lookup(shr_b(q, 4), table);
        for (j, code) in [a, b, c, d].into_iter().enumerate() {
            let (even, odd) = mul_hf(code, scale);
            out[4 * i + j] = narrow(even, odd);
        }
    }
}
