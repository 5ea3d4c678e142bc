//! Sixteen columns in two 256-bit registers, and the dot products of AVX2 and AVX-VNNI.
//!
//! `vpmaddubsw` would multiply bytes but saturates at 16 bits: two products of a code (below 256) and a digit (below 128)
//! reach 65,280. `vpmaddwd` takes the whole number as 16 bits instead, so that two digits cost what one does; the codes of
//! a lane become two pairs of 16 bits by a mask and a shift, once for all rows.

use super::super::int8::{Columns, Dot, ONE_DIGIT, TWO_DIGITS};
use super::{Avx2, Madd, Vnni};
use core::arch::x86_64::*;

/// The value of an intrinsic, for a method that holds the witness.
macro_rules! with {
    ($value:expr) => {{
        // SAFETY: the caller's `self` is a witness of the features; pointers come from references of full length.
        unsafe { $value }
    }};
}

/// [`Columns`] in two registers, for a witness of AVX2.
macro_rules! columns {
    ($unit:ident) => {
        impl<const DIGITS: usize> Columns for $unit<DIGITS> {
            type Eight = Avx2;
            type Words = [__m256i; 2];
            type Floats = [__m256; 2];

            #[inline(always)]
            fn eight(self) -> Avx2 {
                Avx2(())
            }
            #[inline(always)]
            fn prefetch(self, line: &[u8; 64]) {
                with!(_mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()));
            }
            #[inline(always)]
            fn words(self, from: &[u8; 64]) -> [__m256i; 2] {
                let [a, b] = halves(from);
                with!([_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(b.as_ptr().cast())])
            }
            #[inline(always)]
            fn keep(self, words: [__m256i; 2], to: &mut [u8; 64]) {
                let (a, b) = to.split_at_mut(32);
                with!({
                    _mm256_storeu_si256(a.as_mut_ptr().cast(), words[0]);
                    _mm256_storeu_si256(b.as_mut_ptr().cast(), words[1]);
                });
            }
            #[inline(always)]
            fn word(self, word: u32) -> [__m256i; 2] {
                with!([_mm256_set1_epi32(word.cast_signed()); 2])
            }
            #[inline(always)]
            fn and(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
                with!([_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])])
            }
            #[inline(always)]
            fn or(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
                with!([_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])])
            }
            #[inline(always)]
            fn xor(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
                with!([_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])])
            }
            #[inline(always)]
            fn shl(self, a: [__m256i; 2], bits: u32) -> [__m256i; 2] {
                with!({
                    let bits = _mm_cvtsi32_si128(bits.cast_signed());
                    [_mm256_sll_epi32(a[0], bits), _mm256_sll_epi32(a[1], bits)]
                })
            }
            #[inline(always)]
            fn shr(self, a: [__m256i; 2], bits: u32) -> [__m256i; 2] {
                with!({
                    let bits = _mm_cvtsi32_si128(bits.cast_signed());
                    [_mm256_srl_epi32(a[0], bits), _mm256_srl_epi32(a[1], bits)]
                })
            }
            #[inline(always)]
            fn add_bytes(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
                with!([_mm256_add_epi8(a[0], b[0]), _mm256_add_epi8(a[1], b[1])])
            }
            #[inline(always)]
            fn entries(self, table: &[u8; 16], a: [__m256i; 2]) -> [__m256i; 2] {
                with!({
                    let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                    [_mm256_shuffle_epi8(table, a[0]), _mm256_shuffle_epi8(table, a[1])]
                })
            }

            #[inline(always)]
            fn load(self, from: &[f32; 16]) -> [__m256; 2] {
                let (a, b) = from.split_at(8);
                with!([_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr())])
            }
            #[inline(always)]
            fn store(self, floats: [__m256; 2], to: &mut [f32; 16]) {
                let (a, b) = to.split_at_mut(8);
                with!({
                    _mm256_storeu_ps(a.as_mut_ptr(), floats[0]);
                    _mm256_storeu_ps(b.as_mut_ptr(), floats[1]);
                });
            }
            #[inline(always)]
            fn splat(self, value: f32) -> [__m256; 2] {
                with!([_mm256_set1_ps(value); 2])
            }
            #[inline(always)]
            fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                with!([_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])])
            }
            #[inline(always)]
            fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                with!([_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])])
            }
            #[inline(always)]
            fn values(self, a: [__m256i; 2]) -> [__m256; 2] {
                with!([_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])])
            }
        }
    };
}

columns!(Madd);
columns!(Vnni);

/// The two halves of 64 bytes.
#[inline(always)]
fn halves(bytes: &[u8; 64]) -> [&[u8; 32]; 2] {
    let halves: &[[u8; 32]; 2] = &bytes.as_chunks().0.as_chunks().0[0];
    [&halves[0], &halves[1]]
}

/// Four bytes as a word.
#[inline(always)]
pub(super) fn word(bytes: &[u8]) -> i32 {
    i32::from_le_bytes(bytes.as_chunks().0[0])
}

impl<const DIGITS: usize> Dot<8> for Madd<DIGITS> {
    type Sums = [__m256i; 2];
    const MOST: i32 = if DIGITS == 1 { ONE_DIGIT } else { TWO_DIGITS };
    /// Eight sums, four pairs of codes, two digits: fourteen of sixteen registers.
    const ROWS: usize = 4;
    const VECTORS: usize = 1;

    /// A lane's even bytes are k's 0 and 1, its odd ones 2 and 3: the order of the whole numbers as they are.
    #[inline(always)]
    fn arrange(self, q: &[i16; 32]) -> [[u8; 8]; 8] {
        let mut digits = [[0; 8]; 8];
        for (q, bytes) in q.iter().zip(digits.as_flattened_mut().as_chunks_mut().0) {
            *bytes = q.to_le_bytes();
        }
        digits
    }
    #[inline(always)]
    fn begin(self, offset: i32) -> [__m256i; 2] {
        with!([_mm256_set1_epi32(offset); 2])
    }
    #[inline(always)]
    fn dot(self, sums: [__m256i; 2], codes: [__m256i; 2], digits: &[u8; 8]) -> [__m256i; 2] {
        with!({
            let mask = _mm256_set1_epi16(0xFF);
            let (even, odd) = (_mm256_set1_epi32(word(digits)), _mm256_set1_epi32(word(&digits[4..])));
            let mut out = sums;
            for (sum, codes) in out.iter_mut().zip(codes) {
                let low = _mm256_madd_epi16(_mm256_and_si256(codes, mask), even);
                let high = _mm256_madd_epi16(_mm256_srli_epi16::<8>(codes), odd);
                *sum = _mm256_add_epi32(_mm256_add_epi32(*sum, low), high);
            }
            out
        })
    }
    #[inline(always)]
    fn total(self, sums: [__m256i; 2]) -> [__m256i; 2] {
        sums
    }
}

impl Dot<8> for Vnni<2> {
    /// High digits, low digits.
    type Sums = [[__m256i; 2]; 2];
    const MOST: i32 = TWO_DIGITS;
    /// Twelve sums, two vectors of codes, two digits: all sixteen registers.
    const ROWS: usize = 3;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn arrange(self, q: &[i16; 32]) -> [[u8; 8]; 8] {
        two_digits(self.eight(), q)
    }
    #[inline(always)]
    fn begin(self, offset: i32) -> Self::Sums {
        with!([[_mm256_setzero_si256(); 2], [_mm256_set1_epi32(offset); 2]])
    }
    #[inline(always)]
    fn dot(self, sums: Self::Sums, codes: [__m256i; 2], digits: &[u8; 8]) -> Self::Sums {
        let mut out = sums;
        for (sums, digits) in out.iter_mut().zip(digits.as_chunks::<4>().0) {
            let digits = with!(_mm256_set1_epi32(word(digits)));
            for (sum, codes) in sums.iter_mut().zip(codes) {
                *sum = with!(_mm256_dpbusd_avx_epi32(*sum, codes, digits));
            }
        }
        out
    }
    #[inline(always)]
    fn total(self, sums: Self::Sums) -> [__m256i; 2] {
        let mut total = sums[1];
        for (total, high) in total.iter_mut().zip(sums[0]) {
            *total = with!(_mm256_add_epi32(*total, _mm256_slli_epi32::<8>(high)));
        }
        total
    }
}

impl Dot<4> for Vnni<1> {
    type Sums = [__m256i; 2];
    const MOST: i32 = ONE_DIGIT;
    const ROWS: usize = 4;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn arrange(self, q: &[i16; 32]) -> [[u8; 4]; 8] {
        one_digit(q)
    }
    #[inline(always)]
    fn begin(self, offset: i32) -> [__m256i; 2] {
        with!([_mm256_set1_epi32(offset); 2])
    }
    #[inline(always)]
    fn dot(self, sums: [__m256i; 2], codes: [__m256i; 2], digits: &[u8; 4]) -> [__m256i; 2] {
        with!({
            let digits = _mm256_set1_epi32(word(digits));
            [
                _mm256_dpbusd_avx_epi32(sums[0], codes[0], digits),
                _mm256_dpbusd_avx_epi32(sums[1], codes[1], digits),
            ]
        })
    }
    #[inline(always)]
    fn total(self, sums: [__m256i; 2]) -> [__m256i; 2] {
        sums
    }
}

/// High digits of k's 0, 2, 1, 3, then their low digits.
///
/// `q + 128` has the high digit in its upper byte, and in its lower one the low digit plus 128.
#[inline(always)]
pub(super) fn two_digits(_witness: Avx2, q: &[i16; 32]) -> [[u8; 8]; 8] {
    let mut out = [[0; 8]; 8];
    let halves = q.as_chunks::<16>().0.iter().zip(out.as_flattened_mut().as_chunks_mut::<32>().0);
    for (q, out) in halves {
        with!({
            let q = _mm256_add_epi16(_mm256_loadu_si256(q.as_ptr().cast()), _mm256_set1_epi16(128));
            let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(
                1, 5, 3, 7, 0, 4, 2, 6, 9, 13, 11, 15, 8, 12, 10, 14,
            ));
            let less = _mm256_set1_epi64x(0x8080_8080_0000_0000_u64.cast_signed());
            let digits = _mm256_xor_si256(_mm256_shuffle_epi8(q, order), less);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), digits);
        });
    }
    out
}

/// Digits of k's 0, 2, 1, 3.
#[inline(always)]
pub(super) fn one_digit(q: &[i16; 32]) -> [[u8; 4]; 8] {
    let mut out = [[0; 4]; 8];
    for (q, out) in q.as_chunks::<4>().0.iter().zip(&mut out) {
        *out = [q[0], q[2], q[1], q[3]].map(|q| q.to_le_bytes()[0]);
    }
    out
}
