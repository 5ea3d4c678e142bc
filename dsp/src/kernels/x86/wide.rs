//! Sixteen columns in a 512-bit register, and the dot products of AVX-512 VNNI.

use super::super::int8::{Columns, Dot, ONE_DIGIT, TWO_DIGITS};
use super::ymm::{one_digit, two_digits, word};
use super::{Avx2, Vnni512};
use core::arch::x86_64::*;

/// The value of an intrinsic, for a method that holds the witness.
macro_rules! with {
    ($value:expr) => {{
        // SAFETY: the caller's `self` is a witness of the features; pointers come from references of full length.
        unsafe { $value }
    }};
}

impl<const DIGITS: usize> Columns for Vnni512<DIGITS> {
    type Eight = Avx2;
    type Words = __m512i;
    type Floats = __m512;

    #[inline(always)]
    fn eight(self) -> Avx2 {
        Avx2(())
    }
    #[inline(always)]
    fn prefetch(self, line: &[u8; 64]) {
        with!(_mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()));
    }
    #[inline(always)]
    fn words(self, from: &[u8; 64]) -> __m512i {
        with!(_mm512_loadu_si512(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn keep(self, words: __m512i, to: &mut [u8; 64]) {
        with!(_mm512_storeu_si512(to.as_mut_ptr().cast(), words));
    }
    #[inline(always)]
    fn word(self, word: u32) -> __m512i {
        with!(_mm512_set1_epi32(word.cast_signed()))
    }
    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        with!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        with!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        with!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn shl(self, a: __m512i, bits: u32) -> __m512i {
        with!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(bits.cast_signed())))
    }
    #[inline(always)]
    fn shr(self, a: __m512i, bits: u32) -> __m512i {
        with!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(bits.cast_signed())))
    }
    #[inline(always)]
    fn add_bytes(self, a: __m512i, b: __m512i) -> __m512i {
        with!(_mm512_add_epi8(a, b))
    }
    #[inline(always)]
    fn entries(self, table: &[u8; 16], a: __m512i) -> __m512i {
        with!(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), a))
    }

    #[inline(always)]
    fn load(self, from: &[f32; 16]) -> __m512 {
        with!(_mm512_loadu_ps(from.as_ptr()))
    }
    #[inline(always)]
    fn store(self, floats: __m512, to: &mut [f32; 16]) {
        with!(_mm512_storeu_ps(to.as_mut_ptr(), floats));
    }
    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        with!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        with!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        with!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn values(self, a: __m512i) -> __m512 {
        with!(_mm512_cvtepi32_ps(a))
    }
}

impl Dot<8> for Vnni512<2> {
    /// High digits, low digits.
    type Sums = [__m512i; 2];
    const MOST: i32 = TWO_DIGITS;
    /// Twelve sums, six chains, two vectors of codes, and room to begin the next block while this one is weighed. With four
    /// rows there is none, with six chains go to the stack and back every block: both cost more than loading codes more
    /// often.
    const ROWS: usize = 3;
    const VECTORS: usize = 2;

    #[inline(always)]
    fn arrange(self, q: &[i16; 32]) -> [[u8; 8]; 8] {
        two_digits(self.eight(), q)
    }
    #[inline(always)]
    fn begin(self, offset: i32) -> [__m512i; 2] {
        with!([_mm512_setzero_si512(), _mm512_set1_epi32(offset)])
    }
    #[inline(always)]
    fn dot(self, sums: [__m512i; 2], codes: __m512i, digits: &[u8; 8]) -> [__m512i; 2] {
        with!([
            _mm512_dpbusd_epi32(sums[0], codes, _mm512_set1_epi32(word(digits))),
            _mm512_dpbusd_epi32(sums[1], codes, _mm512_set1_epi32(word(&digits[4..]))),
        ])
    }
    #[inline(always)]
    fn total(self, sums: [__m512i; 2]) -> __m512i {
        with!(_mm512_add_epi32(sums[1], _mm512_slli_epi32::<8>(sums[0])))
    }
}

impl Dot<4> for Vnni512<1> {
    type Sums = __m512i;
    const MOST: i32 = ONE_DIGIT;
    /// Twelve sums, twelve chains, two vectors of codes.
    const ROWS: usize = 6;
    const VECTORS: usize = 2;

    #[inline(always)]
    fn arrange(self, q: &[i16; 32]) -> [[u8; 4]; 8] {
        one_digit(q)
    }
    #[inline(always)]
    fn begin(self, offset: i32) -> __m512i {
        with!(_mm512_set1_epi32(offset))
    }
    #[inline(always)]
    fn dot(self, sums: __m512i, codes: __m512i, digits: &[u8; 4]) -> __m512i {
        with!(_mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(word(digits))))
    }
    #[inline(always)]
    fn total(self, sums: __m512i) -> __m512i {
        sums
    }
}
