//! Eight lanes of f32 and of 32-bit words: the machine that the algorithms are written for, once.
//!
//! A backend implements [`Lanes`] on its witness value, so lane code exists only where the processor was asked first,
//! and the algorithms in [`super::decode`], [`super::multiply`], [`super::vector`] and [`super::math`] are generic over
//! it. Every operation is IEEE-exact but [`Lanes::mul_add`], which each backend rounds in its own way, always the same.
//! Functions that take lanes are `#[inline(always)]` and free of closures: they must melt into the one function that
//! enables the processor's features, or each operation would become a call.

use super::LANES;

/// Eight f32 as they lie in memory.
pub(super) type Eight = [f32; LANES];

/// Operations on eight lanes.
pub(super) trait Lanes: Copy {
    /// Eight f32.
    type F: Copy;
    /// Eight 32-bit words.
    type I: Copy;
    /// Rows of activations whose accumulators (4 × `F` each) stay in registers.
    const ROWS: usize;

    /// `value` in all lanes.
    fn splat(self, value: f32) -> Self::F;
    /// Lanes from memory.
    fn load(self, from: &Eight) -> Self::F;
    /// Lanes to memory.
    fn store(self, lanes: Self::F, to: &mut Eight);
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a − b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once or twice as the backend does.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a < b ? a : b`: a NaN in `b` goes through.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`: a NaN in `b` goes through.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a` where `sign` has its sign bit set, else `b`.
    fn where_negative(self, sign: Self::F, a: Self::F, b: Self::F) -> Self::F;
    /// The even and the odd elements of the sixteen in `a`, `b`.
    fn unzip(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);

    /// Eight little-endian words from memory.
    fn words(self, from: &[u8; 32]) -> Self::I;
    /// Eight little-endian 16-bit numbers from memory, zero-extended.
    fn halfwords(self, from: &[u8; 16]) -> Self::I;
    /// Eight bytes from memory, zero-extended.
    fn bytes(self, from: &[u8; 8]) -> Self::I;
    /// Shift to the left.
    fn shl(self, a: Self::I, bits: u32) -> Self::I;
    /// Shift to the right, zeros in.
    fn shr(self, a: Self::I, bits: u32) -> Self::I;
    /// Shift to the right, copies of the sign in.
    fn sar(self, a: Self::I, bits: u32) -> Self::I;
    /// The bits of `a` that are in `mask`.
    fn and(self, a: Self::I, mask: u32) -> Self::I;

    /// The f32 whose bits these are.
    fn bits_to_float(self, a: Self::I) -> Self::F;
    /// The bits of the lanes.
    fn float_to_bits(self, a: Self::F) -> Self::I;
    /// Signed integers below 2^24 in magnitude as f32.
    fn value(self, a: Self::I) -> Self::F;
    /// The IEEE halves in the low 16 bits; bits above are zero.
    fn half(self, a: Self::I) -> Self::F;
    /// Entry number (low four bits of `a`) of the sixteen in `low`, `high`.
    fn lookup(self, low: Self::F, high: Self::F, a: Self::I) -> Self::F;
}

/// The last elements of a slice, with `fill` in the lanes that it does not reach: element i stays in lane i mod 8.
#[inline(always)]
pub(super) fn load_tail<L: Lanes>(l: L, tail: &[f32], fill: f32) -> L::F {
    let mut eight = [fill; LANES];
    eight[..tail.len()].copy_from_slice(tail);
    l.load(&eight)
}

/// The lanes that `tail` has room for.
#[inline(always)]
pub(super) fn store_tail<L: Lanes>(l: L, lanes: L::F, tail: &mut [f32]) {
    let mut eight = [0.0; LANES];
    l.store(lanes, &mut eight);
    tail.copy_from_slice(&eight[..tail.len()]);
}

/// The sum of the lanes: halves on halves, then quarters, then the last two.
#[inline(always)]
pub(super) fn sum<L: Lanes>(l: L, lanes: L::F) -> f32 {
    let mut v = [0.0; LANES];
    l.store(lanes, &mut v);
    ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
}
