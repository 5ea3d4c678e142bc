//! [`Lanes`] in 256-bit registers.
//!
//! The methods are `#[inline(always)]` without features of their own, which the attribute forbids together; they melt
//! into the callers of the parent module, where the features are enabled, and compile to one instruction each (or three
//! for a half and a look-up).

use super::super::lanes::{Eight, Lanes};
use super::Avx2;
use core::arch::x86_64::*;

/// The value of an intrinsic, for a method that holds the witness.
macro_rules! with {
    ($value:expr) => {{
        // SAFETY: the caller's `self` is a witness of AVX2, FMA and F16C; pointers come from references of full length.
        unsafe { $value }
    }};
}

impl Lanes for Avx2 {
    type F = __m256;
    type I = __m256i;
    /// Twelve accumulators, three activations, one vector of weights: all sixteen registers.
    const ROWS: usize = 3;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        with!(_mm256_set1_ps(value))
    }
    #[inline(always)]
    fn load(self, from: &Eight) -> __m256 {
        with!(_mm256_loadu_ps(from.as_ptr()))
    }
    #[inline(always)]
    fn store(self, lanes: __m256, to: &mut Eight) {
        with!(_mm256_storeu_ps(to.as_mut_ptr(), lanes));
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        with!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        with!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        with!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        with!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        with!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        with!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        with!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn where_negative(self, sign: __m256, a: __m256, b: __m256) -> __m256 {
        with!(_mm256_blendv_ps(b, a, sign))
    }
    #[inline(always)]
    fn unzip(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // Within 128-bit halves first, so quarters come out as a, b, a, b; then the middle two change places.
        with!({
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0b11_01_11_01>(a, b));
            (
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(even)),
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(odd)),
            )
        })
    }

    #[inline(always)]
    fn words(self, from: &[u8; 32]) -> __m256i {
        with!(_mm256_loadu_si256(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn halfwords(self, from: &[u8; 16]) -> __m256i {
        with!(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast())))
    }
    #[inline(always)]
    fn bytes(self, from: &[u8; 8]) -> __m256i {
        with!(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().cast())))
    }
    #[inline(always)]
    fn shl(self, a: __m256i, bits: u32) -> __m256i {
        with!(_mm256_sll_epi32(a, _mm_cvtsi32_si128(bits.cast_signed())))
    }
    #[inline(always)]
    fn shr(self, a: __m256i, bits: u32) -> __m256i {
        with!(_mm256_srl_epi32(a, _mm_cvtsi32_si128(bits.cast_signed())))
    }
    #[inline(always)]
    fn sar(self, a: __m256i, bits: u32) -> __m256i {
        with!(_mm256_sra_epi32(a, _mm_cvtsi32_si128(bits.cast_signed())))
    }
    #[inline(always)]
    fn and(self, a: __m256i, mask: u32) -> __m256i {
        with!(_mm256_and_si256(a, _mm256_set1_epi32(mask.cast_signed())))
    }

    #[inline(always)]
    fn bits_to_float(self, a: __m256i) -> __m256 {
        with!(_mm256_castsi256_ps(a))
    }
    #[inline(always)]
    fn float_to_bits(self, a: __m256) -> __m256i {
        with!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn value(self, a: __m256i) -> __m256 {
        with!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn half(self, a: __m256i) -> __m256 {
        // Packing works within 128-bit halves: quarters 0 and 2 then hold the eight.
        with!({
            let packed = _mm256_permute4x64_epi64::<0b00_00_10_00>(_mm256_packus_epi32(a, a));
            _mm256_cvtph_ps(_mm256_castsi256_si128(packed))
        })
    }
    #[inline(always)]
    fn lookup(self, low: __m256, high: __m256, a: __m256i) -> __m256 {
        // A permutation reads the three low bits of a lane, a blend its sign bit, to which bit 3 is moved.
        with!(_mm256_blendv_ps(
            _mm256_permutevar8x32_ps(low, a),
            _mm256_permutevar8x32_ps(high, a),
            _mm256_castsi256_ps(_mm256_slli_epi32::<28>(a)),
        ))
    }
}
