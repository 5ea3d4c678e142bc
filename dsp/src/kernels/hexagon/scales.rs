//! What codes are multiplied by and what is added to them, as f32 in the vector unit's format.

use super::blocks::Factors;
use super::decode::Planes;
use super::hvx::{
    self, Q, V, float_of_w, interleave_h, lift, max_uh, max_w, mul_q, rotate, shl_h, shl_w, splat, splat_h,
    sub_uh, unpack_b, unpack_h, unpack_ub, widen, zero,
};
use estream_idl::address::TILE;
use estream_idl::format::{Min, SUPER_BLOCK, Scale};

impl Planes<'_> {
    /// What a tile's codes are under.
    #[inline(always)]
    pub(super) fn factors(&self, tile: usize) -> Factors {
        let subs = if self.format.sub_block == TILE { 1 } else { 2 };
        let blocks = [tile * subs, tile * subs + subs - 1];
        let mins = self.format.min != Min::None;
        Factors {
            scales: blocks.map(|block| self.scale(tile, block)),
            mins: mins.then(|| blocks.map(|block| self.min(tile, block))),
        }
    }

    /// The scales and minima of the four sub-blocks whose bytes share vector number `vector`, `tile` the first of them: as
    /// [`Self::factors`] to the bit.
    #[inline(always)]
    pub(super) fn super_rows(&self, vector: usize, tile: usize) -> ([Q; 4], Option<[Q; 4]>) {
        let signed = self.format.scale == Scale::SuperI8;
        let d = Self::half_row(self.supers, self.super_row(tile));
        let scales = byte_rows(self.scales[vector], signed).map(|row| mul_q(d, lift(float_of_w(row))));
        let mins = (self.format.min != Min::None).then(|| {
            let dmin = Self::half_row(self.supers, self.super_row(tile) + 1);
            let minus = lift(hvx::splat_f(-1.0));
            byte_rows(self.mins[vector], false).map(|row| mul_q(mul_q(dmin, lift(float_of_w(row))), minus))
        });
        (scales, mins)
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
}

/// Four rows of bytes as words.
#[inline(always)]
fn byte_rows(v: V, signed: bool) -> [V; 4] {
    let (first, last) = if signed { unpack_b(v) } else { unpack_ub(v) };
    let ((a, b), (c, d)) = (unpack_h(first), unpack_h(last));
    [a, b, c, d]
}

/// Bytes that are exponents of powers of two as halves, in order; `strange` is not all zeros any more where one is none
/// under which a code is as it would be in f32.
///
/// From 113 to 139 the power is a half that is not subnormal, and 16 codes' products with it, of at most four bits, are
/// halves too. Up to 98 every product is below half of the smallest half, and nothing as a half and under one of zero: its
/// sign is the code's either way.
#[inline(always)]
pub(super) fn powers(bytes: V, strange: &mut V) -> [V; 2] {
    /// The exponent field of 1 in f32 less that in a half: fields 1 and up are halves that are not subnormal.
    const FIELDS: u16 = 127 - 15;
    const MOST: u16 = 139;
    const NOTHING: u16 = 98;
    let (first, last) = unpack_ub(bytes);
    [first, last].map(|field| {
        let above = sub_uh(field, splat_h(NOTHING));
        let below = sub_uh(splat_h(FIELDS + 1), field);
        // The smaller of the two, which is none where either is.
        let between = sub_uh(above, sub_uh(above, below));
        *strange = max_uh(*strange, max_uh(between, sub_uh(field, splat_h(MOST))));
        shl_h(sub_uh(field, splat_h(FIELDS)), 10)
    })
}
