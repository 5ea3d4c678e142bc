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

use super::blocks::{self, Factors, TileBytes};
use super::hvx::{
    self, Q, V, add_q, and, deal_w, float, half_of_h, insert_w, interleave_h, lift, lookup, max_uh, mul_hf,
    mul_q, narrow, rotate, shl_w, shr_b, splat, splat_h, to_words, unpack_b, unpack_h, widen, widen_b, zero,
};
use super::{scales, steady};
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::{Codec, Element, Format, Min, Scale};

/// Vectors of an fp16 tile: row pairs.
pub const PAIRS: usize = TILE / 2;
/// Bits of a half but its sign.
pub(super) const MAGNITUDE: u32 = 0x7fff_7fff;
/// 128, the largest magnitude of a byte, as a half.
const LARGEST_BYTE: u16 = 0x5800;
/// The first magnitude that is no finite half.
pub const OVERFLOW: u16 = 0x7c00;

/// An fp16 tile.
pub type Tile = [V; PAIRS];

/// The planes of a strip, or of a part of one that was brought near by itself.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    pub(super) format: Format,
    /// The codes' table as halves, in the low halves of the first sixteen words. What is in the others is of no use.
    table: V,
    codes: &'a [V],
    extra: &'a [V],
    pub(super) supers: &'a [V],
    pub(super) scales: &'a [V],
    pub(super) mins: &'a [V],
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
        Some(Self {
            format,
            table: halves_of(&format.table),
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
        match (self.way(), self.format.codec, self.format.element) {
            (_, Codec::F16, Element::F16) => self.halves_as_they_are(tiles, out),
            (Way::Halves, ..) if self.format.min == Min::None && self.format.codec == Codec::N4 => {
                self.scaled_nibbles(tiles, out)
            }
            (Way::Halves, ..) => self.halves(tiles, out),
            (Way::Floats, _, Element::None) if self.format.scale == Scale::E8M0 => self.powers(tiles, out),
            (Way::Floats, _, Element::None) => self.super_scaled(tiles, out),
            (Way::Floats, _, Element::BF16) => self.upper_halves_of_floats(tiles, out),
            (Way::Floats, ..) => {
                let mut worst = zero();
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

    /// Vector by vector: an assignment of a tile would be a call that copies bytes.
    fn halves_as_they_are(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let codes = &self.codes[tiles.start * PAIRS..tiles.end * PAIRS];
        let mut worst = zero();
        for (out, codes) in out.as_flattened_mut().chunks_exact_mut(4).zip(codes.chunks_exact(4)) {
            let [a, b, c, d] = [codes[0], codes[1], codes[2], codes[3]];
            [out[0], out[1], out[2], out[3]] = [a, b, c, d];
            let [a, b, c, d] = [a, b, c, d].map(|v| and(v, splat(MAGNITUDE)));
            worst = max_uh(max_uh(worst, max_uh(a, b)), max_uh(c, d));
        }
        hvx::largest_uh(worst)
    }

    /// Elements that are upper halves of f32.
    fn upper_halves_of_floats(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let codes = &self.codes[tiles.start * PAIRS..tiles.end * PAIRS];
        let mut worst = zero();
        for (out, codes) in out.as_flattened_mut().chunks_exact_mut(4).zip(codes.chunks_exact(4)) {
            let codes = [codes[0], codes[1], codes[2], codes[3]];
            let [a, b, c, d] = codes.map(|v| narrow(lift(shl_w(v, 16)), lift(and(v, splat(0xffff_0000)))));
            [out[0], out[1], out[2], out[3]] = [a, b, c, d];
            let [a, b, c, d] = [a, b, c, d].map(|v| and(v, splat(MAGNITUDE)));
            worst = max_uh(max_uh(worst, max_uh(a, b)), max_uh(c, d));
        }
        hvx::largest_uh(worst)
    }

    /// Nibbles under halves.
    fn scaled_nibbles(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let mut worst = zero();
        if self.format.sub_block == TILE && tiles.start.is_multiple_of(2) {
            let scales = &self.scales[tiles.start / 2..tiles.end.div_ceil(2)];
            self.nibble_pairs(tiles, scales, out, &mut worst);
        } else {
            let (codes, _) = self.codes.as_chunks::<4>();
            for ((tile, out), codes) in tiles.clone().zip(out).zip(&codes[tiles]) {
                let scales = self.half_rows(self.scales, tile);
                worst = scales.iter().fold(worst, |worst, &v| max_uh(worst, and(v, splat(MAGNITUDE))));
                nibbles(self.table, codes, scales, out);
            }
        }
        self.magnitude(worst, zero())
    }

    /// The hot loop: two tiles a turn, since 32-blocks of two tiles share a vector of scales.
    fn nibble_pairs(&self, tiles: Range<usize>, scales: &[V], out: &mut [Tile], worst: &mut V) {
        let codes = &self.codes.as_chunks::<4>().0[tiles];
        let done = steady::pairs(self.table, codes, scales, out, worst);
        let rest = out.chunks_mut(2).zip(codes.chunks(2)).zip(scales).skip(done);
        for ((out, codes), &scales) in rest {
            *worst = max_uh(*worst, and(scales, splat(MAGNITUDE)));
            let scales = interleave_h(scales, scales);
            for ((out, codes), scale) in out.iter_mut().zip(codes).zip([scales.0, scales.1]) {
                nibbles(self.table, codes, [scale; 2], out);
            }
        }
    }

    /// Nibbles with minima, or bytes, under halves: a loop of its own for each way that codes are stored, so that no tile
    /// asks which.
    fn halves(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let mut room = [zero(); 8];
        let (nibbles, bytes) = (self.codes.as_chunks::<4>().0, self.codes.as_chunks::<8>().0);
        let (one, two) = (self.extra, self.extra.as_chunks::<2>().0);
        let bias = self.format.bias;
        match (self.format.codec, self.format.min, self.format.extra_bits) {
            (Codec::N4, ..) => self.each_under_halves(tiles, out, |tile, scales, mins, out| {
                blocks::nibbles_halves(self.table, &nibbles[tile], scales, mins, out);
            }),
            (_, Min::None, 0) => self.each_under_halves(tiles, out, |tile, scales, _, out| {
                blocks::bytes_halves(&bytes[tile], scales, out);
            }),
            (_, Min::None, 1) => self.each_under_halves(tiles, out, |tile, scales, _, out| {
                blocks::assemble(&nibbles[tile], &[one[tile]], bias, &mut room);
                blocks::bytes_halves(&room, scales, out);
            }),
            (_, Min::None, _) => self.each_under_halves(tiles, out, |tile, scales, _, out| {
                blocks::assemble(&nibbles[tile], &two[tile], bias, &mut room);
                blocks::bytes_halves(&room, scales, out);
            }),
            _ => self.each_under_halves(tiles, out, |tile, scales, mins, out| {
                self.codes(tile, |pair, code| {
                    let sub = pair / (PAIRS / 2);
                    let (even, odd) = mul_hf(code, scales[sub]);
                    out[pair] = narrow(add_q(even, mins[sub]), add_q(odd, mins[sub]));
                });
            }),
        }
    }

    /// Calls `decode` for each tile with its scales, and minima where there are some. Two tiles' 32-blocks share a vector.
    #[inline(always)]
    fn each_under_halves(
        &self,
        tiles: Range<usize>,
        out: &mut [Tile],
        mut decode: impl FnMut(usize, [V; 2], [Q; 2], &mut Tile),
    ) -> u16 {
        let (mut worst, mut lowest) = (zero(), zero());
        let least = self.format.min == Min::F16;
        let rows = |of: V| {
            let (even, odd) = interleave_h(of, of);
            [even, odd]
        };
        // Of a vector that two tiles share only the rows of those asked for count.
        let mut one = |tile, scales: [V; 2], mins: [V; 2], out: &mut Tile| {
            worst = watch(worst, scales);
            lowest = watch(lowest, mins);
            decode(tile, scales, mins.map(|row| widen(row).0), out);
        };
        let shared = self.format.sub_block == TILE;
        let mut out = out.iter_mut().zip(tiles.clone());
        let (first, end) =
            if shared { (tiles.start / 2, tiles.end.div_ceil(2)) } else { (tiles.start, tiles.end) };
        for vector in first..end {
            let scales = rows(self.scales[vector]);
            let mins = if least { rows(self.mins[vector]) } else { [zero(); 2] };
            if !shared {
                out.next().into_iter().for_each(|(out, tile)| one(tile, scales, mins, out));
                continue;
            }
            for side in usize::from(2 * vector < tiles.start)..2 {
                let Some((out, tile)) = out.next() else { break };
                one(tile, [scales[side]; 2], [mins[side]; 2], out);
            }
        }
        self.magnitude(worst, lowest)
    }

    /// Codes under a power of two. Where a half holds them all, and nibbles are multiplied by them, they are halves:
    /// a code has few enough bits that no product is rounded either way.
    #[inline(never)]
    fn powers(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        /// Vectors of scales that are converted at a time.
        const MOST: usize = 16;
        let plain = self.format.codec == Codec::N4 && self.format.min == Min::None;
        if !plain || self.format.sub_block != TILE || !tiles.start.is_multiple_of(2) {
            return self.under_floats(tiles, out);
        }
        let mut largest = 0;
        for (first, out) in tiles.step_by(2 * MOST).zip(out.chunks_mut(2 * MOST)) {
            let tiles = first..first + out.len();
            let mut halves = [zero(); MOST + 2];
            let bytes = &self.scales[first / 4..tiles.end.div_ceil(4)];
            let mut strange = zero();
            for (pair, &bytes) in halves.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
                *pair = scales::powers(bytes, &mut strange);
            }
            largest = largest.max(if hvx::largest_uh(strange) == 0 {
                let mut worst = zero();
                self.nibble_pairs(
                    tiles.clone(),
                    &halves[first % 4 / 2..][..out.len().div_ceil(2)],
                    out,
                    &mut worst,
                );
                self.magnitude(worst, zero())
            } else {
                self.under_floats(tiles, out)
            });
        }
        largest
    }

    /// Codes under a scale that is formed in f32, tile by tile.
    #[inline(never)]
    fn under_floats(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let mut worst = zero();
        for (tile, out) in tiles.zip(out) {
            worst = self.tile_under_floats(tile, self.factors(tile), out, worst);
        }
        hvx::largest_uh(worst)
    }

    /// As [`Self::under_floats`] under super-scales: a loop of its own for each way that codes are stored.
    fn super_scaled(&self, tiles: Range<usize>, out: &mut [Tile]) -> u16 {
        let mut room = [zero(); 8];
        let (nibbles, bytes) = (self.codes.as_chunks::<4>().0, self.codes.as_chunks::<8>().0);
        let (one, two) = (self.extra, self.extra.as_chunks::<2>().0);
        let bias = self.format.bias;
        match (self.format.codec, self.format.extra_bits) {
            (Codec::N4, _) => self.each_super_scaled(tiles, out, |tile, factors, out, worst| {
                blocks::nibbles_floats(self.table, &nibbles[tile], factors, out, worst)
            }),
            (_, 0) => self.each_super_scaled(tiles, out, |tile, factors, out, worst| {
                blocks::bytes_floats(&bytes[tile], factors, out, worst)
            }),
            (_, 1) => self.each_super_scaled(tiles, out, |tile, factors, out, worst| {
                blocks::assemble(&nibbles[tile], &[one[tile]], bias, &mut room);
                blocks::bytes_floats(&room, factors, out, worst)
            }),
            _ => self.each_super_scaled(tiles, out, |tile, factors, out, worst| {
                blocks::assemble(&nibbles[tile], &two[tile], bias, &mut room);
                blocks::bytes_floats(&room, factors, out, worst)
            }),
        }
    }

    /// Calls `decode` for each tile, the bytes of scales and minima taken apart a vector at a time.
    #[inline(always)]
    fn each_super_scaled(
        &self,
        tiles: Range<usize>,
        out: &mut [Tile],
        mut decode: impl FnMut(usize, Factors, &mut Tile, V) -> V,
    ) -> u16 {
        let mut worst = zero();
        let (subs, per) = if self.format.sub_block == TILE { (1, 4) } else { (2, 2) };
        let mut out = out.iter_mut();
        let mut tile = tiles.start;
        while tile < tiles.end {
            let vector = tile / per;
            let rows = self.super_rows(vector, vector * per);
            for tile in tile..tiles.end.min((vector + 1) * per) {
                let Some(out) = out.next() else { break };
                let row = (tile - vector * per) * subs;
                let of = |rows: &[Q; 4]| [rows[row % 4], rows[(row + subs - 1) % 4]];
                let factors = Factors { scales: of(&rows.0), mins: rows.1.as_ref().map(of) };
                worst = decode(tile, factors, out, worst);
            }
            tile = (vector + 1) * per;
        }
        hvx::largest_uh(worst)
    }

    #[inline(always)]
    fn tile_under_floats(&self, tile: usize, factors: Factors, out: &mut Tile, worst: V) -> V {
        if self.format.codec == Codec::N4 {
            return blocks::nibbles_floats(self.table, self.nibbles(tile), factors, out, worst);
        }
        let mut room = [zero(); 8];
        blocks::bytes_floats(self.bytes(tile, &mut room), factors, out, worst)
    }

    /// The bits of a bound of every weight under scales up to the largest of `scales` and minima up to that of `mins`.
    fn magnitude(&self, scales: V, mins: V) -> u16 {
        let codes = match self.format.codec {
            Codec::N4 => hvx::most_uh(and(self.table, splat(MAGNITUDE & 0xffff))),
            _ => splat_h(LARGEST_BYTE),
        };
        let product = mul_hf(hvx::most_uh(scales), codes).0;
        let bound = add_q(product, widen(hvx::most_uh(mins)).0);
        to_words(narrow(bound, bound))[0] as u16
    }

    #[inline(always)]
    fn nibbles(&self, tile: usize) -> &'a [V; 4] {
        &self.codes.as_chunks::<4>().0[tile]
    }

    /// A tile's bytes, brought together in `room` where they are nibbles and bits.
    #[inline(always)]
    fn bytes<'b>(&self, tile: usize, room: &'b mut TileBytes) -> &'b TileBytes
    where
        'a: 'b,
    {
        let bits = self.format.extra_bits;
        if bits == 0 {
            return &self.codes.as_chunks::<8>().0[tile];
        }
        match self.extra[tile * bits..(tile + 1) * bits] {
            [plane] => blocks::assemble(self.nibbles(tile), &[plane], self.format.bias, room),
            [first, second, ..] => {
                blocks::assemble(self.nibbles(tile), &[first, second], self.format.bias, room)
            }
            [] => {}
        }
        room
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
        if self.format.codec == Codec::N4 {
            for (i, &q) in self.nibbles(tile).iter().enumerate() {
                let (a, b) = lookup(q, self.table);
                let (c, d) = lookup(shr_b(q, 4), self.table);
                [a, b, c, d].into_iter().enumerate().for_each(|(j, v)| sink(4 * i + j, v));
            }
            return;
        }
        let mut room = [zero(); 8];
        for (i, &q) in self.bytes(tile, &mut room).iter().enumerate() {
            let (a, b) = widen_b(q);
            sink(2 * i, half_of_h(a));
            sink(2 * i + 1, half_of_h(b));
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
                let Factors { scales, mins } = self.factors(tile);
                self.codes(tile, |pair, code| {
                    let sub = pair / (PAIRS / 2);
                    let (even, odd) = widen(code);
                    let [mut even, mut odd] = [even, odd].map(|code| mul_q(code, scales[sub]));
                    if let Some(mins) = mins {
                        (even, odd) = (add_q(even, mins[sub]), add_q(odd, mins[sub]));
                    }
                    sink(pair, even, odd);
                });
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

/// The larger magnitudes of what has been seen and two vectors of halves.
#[inline(always)]
fn watch(seen: V, halves: [V; 2]) -> V {
    halves.iter().fold(seen, |seen, &v| max_uh(seen, and(v, splat(MAGNITUDE))))
}

/// A table's entries as halves, each in the low half of its word.
#[inline(always)]
fn halves_of(table: &[i8; 16]) -> V {
    let mut bytes = zero();
    for four in table.as_chunks::<4>().0.iter().rev() {
        let word = u32::from_le_bytes(four.map(i8::cast_unsigned));
        // From the last lane to the first, and the new word there.
        bytes = insert_w(rotate(bytes, (hvx::BYTES - 4) as u32), word);
    }
    half_of_h(unpack_h(unpack_b(bytes).0).0)
}
