//! Products in integers: activations as int8 digits under a scale, weights as codes, one f32 value a 32-block.
//!
//! A row's 32-block becomes whole numbers q under the scale `s = max|x| / MOST`: two digits `q = 256·high + low`, about 16
//! bits, or one. With c a weight's code, and a scale `w` and perhaps a minimum `m` a sub-block, the block adds
//!
//! ```text
//! s · ((w0·I0 + w1·I1) + (m0·S0 + m1·S1))      I = Σ q·c,  S = Σ q,  whole numbers that no 32 bits overflow
//! ```
//! to its chain, in this order and with every operation rounded by itself: law 1 holds by construction, and all
//! backends give the same bits, which the kernel suite compares. The road not taken is a fused multiply-add for the last
//! two operations: it saves nothing where additions have units of their own.
//!
//! Dot-product units multiply unsigned bytes by signed ones, so a decoded code is `c + 128`; the sums begin at `−128·S`,
//! which a block carries ready-made. The pack's tile order has a column in each 32-bit lane; activations alone are put in
//! order for it, once ([`tile::LANE_ORDER`](estream_idl::tile::LANE_ORDER)).
//!
//! The published int8 path of llama.cpp (Q8_0 activations) is the one-digit form; its KL is 5e-4 and more where two digits
//! stay below 1e-7.
//!
//! # Packing
//! In words: a row's block is its digits in eight groups of four k's (`2·QUAD` words), `s`, the `−128·S` of both halves and
//! of the whole as integers, and the three S as f32. A tile is 8 vectors of 32 columns by four k's of a byte (256 words), then scales and minima, 32 a
//! sub-block.

mod decode;
mod multiply;
mod pack;
mod scalar;

pub(super) use decode::decode;
pub(super) use multiply::multiply;
pub(super) use pack::pack;
pub use scalar::ScalarInt8;

use super::WORD;
use super::lanes::Lanes;
use crate::vtcm::Packing;
use estream_idl::address::TILE;
use estream_idl::format::{Codec, Format, Min};

/// Columns of a vector: half a strip.
const HALF: usize = TILE / 2;
/// What is added to a code to make it unsigned.
const OFFSET: i32 = 128;
/// The largest number of one digit.
pub(super) const ONE_DIGIT: i32 = 127;
/// The largest number of two digits: 127·256 + 127.
pub(super) const TWO_DIGITS: i32 = 127 * 256 + 127;
/// Words of a block after its digits.
const TAIL: usize = 7;
/// Words of a tile's codes.
const CODES: usize = TILE * TILE / WORD;

/// Whether weights in this format are codes that fit a signed byte.
#[must_use]
pub fn serves(format: &Format) -> bool {
    match (format.codec, format.extra_bits) {
        (Codec::F16, _) => false,
        (Codec::N4, _) | (Codec::B8, 0) => true,
        (Codec::B8, bits) => {
            let (least, most) = (-i32::from(format.bias), (16 << bits) - 1 - i32::from(format.bias));
            least >= -OFFSET && most < OFFSET
        }
    }
}

/// Words of a decoded tile.
const fn tile_words(format: &Format) -> usize {
    let subs = TILE / format.sub_block;
    CODES + subs * TILE * if matches!(format.min, Min::None) { 1 } else { 2 }
}

/// The packing with `quad` bytes for the digits of four k's.
pub(super) fn packing(quad: usize, formats: &[Format]) -> Packing {
    let tile = formats.iter().map(tile_words).max().unwrap_or(CODES);
    Packing { block: (2 * quad + TAIL) * WORD, tile: tile * WORD, output: WORD }
}

/// Sixteen columns side by side: what every processor's part of the algorithm is made of.
pub(super) trait Columns: Copy {
    /// Eight lanes of the same processor.
    type Eight: Lanes;
    /// Sixteen 32-bit words.
    type Words: Copy;
    /// Sixteen f32.
    type Floats: Copy;

    /// The eight lanes.
    fn eight(self) -> Self::Eight;

    /// Asks for a line of memory that will be read before long.
    fn prefetch(self, line: &[u8; 64]);
    /// Words from memory.
    fn words(self, from: &[u8; 64]) -> Self::Words;
    /// Words to memory.
    fn keep(self, words: Self::Words, to: &mut [u8; 64]);
    /// `word` in all columns.
    fn word(self, word: u32) -> Self::Words;
    /// Bitwise and.
    fn and(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise or.
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise exclusive or.
    fn xor(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Shift of each word to the left.
    fn shl(self, a: Self::Words, bits: u32) -> Self::Words;
    /// Shift of each word to the right, zeros in.
    fn shr(self, a: Self::Words, bits: u32) -> Self::Words;
    /// Byte-wise sum without carries between bytes.
    fn add_bytes(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// For each byte the entry of the table that it counts; bytes are below 16.
    fn entries(self, table: &[u8; 16], a: Self::Words) -> Self::Words;

    /// Floats from memory.
    fn load(self, from: &[f32; HALF]) -> Self::Floats;
    /// Floats to memory.
    fn store(self, floats: Self::Floats, to: &mut [f32; HALF]);
    /// `value` in all columns.
    fn splat(self, value: f32) -> Self::Floats;
    /// `a + b`.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a · b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Signed words as f32, rounded to nearest.
    fn values(self, a: Self::Words) -> Self::Floats;
}

/// The dot products of a processor, and how it wants the digits of four k's: `QUAD` bytes.
pub(super) trait Dot<const QUAD: usize>: Columns {
    /// Sixteen sums under way.
    type Sums: Copy;
    /// The largest whole number that an activation becomes.
    const MOST: i32;
    /// Rows whose sums stay in registers.
    const ROWS: usize;
    /// Vectors of columns whose sums stay in registers, 1 or 2.
    const VECTORS: usize;

    /// Digits of 32 whole numbers in their k's order.
    fn arrange(self, q: &[i16; TILE]) -> [[u8; QUAD]; 8];
    /// Sums that begin at `offset`.
    fn begin(self, offset: i32) -> Self::Sums;
    /// The sums, each with four products more: unsigned bytes of `codes` by the digits of the same k's.
    fn dot(self, sums: Self::Sums, codes: Self::Words, digits: &[u8; QUAD]) -> Self::Sums;
    /// The sums as signed words.
    fn total(self, sums: Self::Sums) -> Self::Words;
}
