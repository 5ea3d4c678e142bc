//! The portable unit: sixteen columns as plain arrays, the reference of the integer kernels.
//!
//! It takes a whole number as it is, 16 bits, and not as digits: `256·high + low` is checked by every comparison with the
//! units that do.

use super::{Columns, Dot, HALF, ONE_DIGIT, TWO_DIGITS};
use crate::kernels::scalar::Scalar;
use crate::kernels::{Chain, Decoded, Input, Products, Strip};
use crate::view::Block;
use crate::vtcm::Packing;
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::Format;

/// The portable integer products, with activations of `DIGITS` digits (1 or 2).
#[derive(Clone, Copy, Debug)]
pub struct ScalarInt8<const DIGITS: usize>;

/// Bytes of four 16-bit numbers.
const QUAD: usize = 8;

/// Column by column.
fn each<T: Default + Copy>(value: impl Fn(usize) -> T) -> [T; HALF] {
    core::array::from_fn(value)
}

/// Byte by byte.
fn bytes(a: u32, value: impl Fn(u8) -> u8) -> u32 {
    u32::from_le_bytes(a.to_le_bytes().map(value))
}

impl<const DIGITS: usize> Columns for ScalarInt8<DIGITS> {
    type Eight = Scalar;
    type Words = [u32; HALF];
    type Floats = [f32; HALF];

    fn eight(self) -> Scalar {
        Scalar
    }
    fn prefetch(self, _: &[u8; 64]) {}
    fn words(self, from: &[u8; 64]) -> Self::Words {
        let words: &[[u8; 4]] = from.as_chunks().0;
        each(|c| u32::from_le_bytes(words[c]))
    }
    fn keep(self, words: Self::Words, to: &mut [u8; 64]) {
        for (word, to) in words.iter().zip(to.as_chunks_mut().0) {
            *to = word.to_le_bytes();
        }
    }
    fn word(self, word: u32) -> Self::Words {
        [word; HALF]
    }
    fn and(self, a: Self::Words, b: Self::Words) -> Self::Words {
        each(|c| a[c] & b[c])
    }
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words {
        each(|c| a[c] | b[c])
    }
    fn xor(self, a: Self::Words, b: Self::Words) -> Self::Words {
        each(|c| a[c] ^ b[c])
    }
    fn shl(self, a: Self::Words, bits: u32) -> Self::Words {
        each(|c| a[c] << bits)
    }
    fn shr(self, a: Self::Words, bits: u32) -> Self::Words {
        each(|c| a[c] >> bits)
    }
    fn add_bytes(self, a: Self::Words, b: Self::Words) -> Self::Words {
        each(|c| {
            let (a, b) = (a[c].to_le_bytes(), b[c].to_le_bytes());
            u32::from_le_bytes(core::array::from_fn(|i| a[i].wrapping_add(b[i])))
        })
    }
    fn entries(self, table: &[u8; 16], a: Self::Words) -> Self::Words {
        each(|c| bytes(a[c], |byte| table[usize::from(byte % 16)]))
    }

    fn load(self, from: &[f32; HALF]) -> Self::Floats {
        *from
    }
    fn store(self, floats: Self::Floats, to: &mut [f32; HALF]) {
        *to = floats;
    }
    fn splat(self, value: f32) -> Self::Floats {
        [value; HALF]
    }
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        each(|c| a[c] + b[c])
    }
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        each(|c| a[c] * b[c])
    }
    fn values(self, a: Self::Words) -> Self::Floats {
        each(|c| a[c].cast_signed() as f32)
    }
}

impl<const DIGITS: usize> Dot<QUAD> for ScalarInt8<DIGITS> {
    type Sums = [i32; HALF];
    const MOST: i32 = if DIGITS == 1 { ONE_DIGIT } else { TWO_DIGITS };
    const ROWS: usize = 1;
    const VECTORS: usize = 2;

    fn arrange(self, q: &[i16; TILE]) -> [[u8; QUAD]; 8] {
        core::array::from_fn(|quad| {
            core::array::from_fn(|byte| q[4 * quad + byte / 2].to_le_bytes()[byte % 2])
        })
    }
    fn begin(self, offset: i32) -> Self::Sums {
        [offset; HALF]
    }
    fn dot(self, sums: Self::Sums, codes: Self::Words, digits: &[u8; QUAD]) -> Self::Sums {
        let digits: &[[u8; 2]; 4] = &digits.as_chunks().0.as_chunks().0[0];
        let q = digits.map(|digits| i32::from(i16::from_le_bytes(digits)));
        each(|column| {
            // A lane's bytes are the codes of k's 0, 2, 1, 3.
            let [a, b, c, d] = [0, 16, 8, 24].map(|shift| (codes[column] >> shift & 0xFF).cast_signed());
            sums[column] + (a * q[0] + b * q[1]) + (c * q[2] + d * q[3])
        })
    }
    fn total(self, sums: Self::Sums) -> Self::Words {
        each(|c| sums[c].cast_unsigned())
    }
}

impl<const DIGITS: usize> Products for ScalarInt8<DIGITS> {
    fn packing(&self, formats: &[Format]) -> Packing {
        super::packing(QUAD, formats)
    }
    fn in_place(&self) -> bool {
        false
    }
    fn pack(&self, x: &[f32], out: &mut [f32]) {
        super::pack(*self, x, out);
    }
    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
        super::decode(*self, strip, tiles, out);
    }
    fn multiply(&self, x: Input<'_>, weights: Decoded<'_>, out: Block<'_>, chain: Chain) {
        super::multiply(*self, x, weights, out, chain);
    }
}
