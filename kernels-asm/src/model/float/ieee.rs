//! One lane of the IEEE forms: half (hf), single (sf), bfloat16 (bf), and conversions from and to integers.
//!
//! Rounding is to nearest, ties to even; subnormals are kept. A NaN result is always the same one ([`SF_NAN`], [`HF_NAN`]),
//! whatever went in. Sums and products of halves are formed in single precision, which is wide enough for the second rounding
//! to be harmless (24 ≥ 2·11 + 2); the fused one is formed in double. Single precision is the processor's own: addition and
//! multiplication are defined to the bit, and Rust contracts nothing.
//!
//! Sources: the instruction definitions of Qualcomm's QEMU fork and the HVX series that Qualcomm sent upstream. Where they
//! differ (the three-term `Vx.sf+=vdmpy`), the newer upstream form is modelled: the two products are added and rounded,
//! then the accumulator is added and rounded.

use crate::model::round::{Exact, Format, Overflow};

/// The single that every invalid operation gives.
pub const SF_NAN: u32 = 0x7fff_ffff;
/// The half that every invalid operation gives.
pub const HF_NAN: u16 = 0x7fff;

const SF_INFINITY: u32 = 0x7f80_0000;
const HF_INFINITY: u16 = 0x7c00;
/// 2^-24, the unit of a subnormal half.
const HF_UNIT: f32 = f32::from_bits((127 - 24) << 23);

fn sf_is_nan(a: u32) -> bool {
    a & 0x7fff_ffff > SF_INFINITY
}

fn hf_is_nan(a: u16) -> bool {
    a & 0x7fff > HF_INFINITY
}

fn canonical(value: f32) -> u32 {
    if value.is_nan() { SF_NAN } else { value.to_bits() }
}

/// Half to single, exact.
#[must_use]
pub fn sf_from_hf(a: u16) -> u32 {
    let (sign, magnitude) = (u32::from(a & 0x8000) << 16, u32::from(a & 0x7fff));
    match magnitude {
        0 => sign,
        1..0x400 => sign | (magnitude as f32 * HF_UNIT).to_bits(),
        0x400..0x7c00 => sign | ((magnitude << 13) + ((127 - 15) << 23)),
        0x7c00 => sign | SF_INFINITY,
        _ => SF_NAN,
    }
}

/// Single to half, one rounding.
#[must_use]
pub fn hf_from_sf(a: u32) -> u16 {
    let (sign, exponent, fraction) = ((a >> 16 & 0x8000) as u16, a >> 23 & 0xff, a & 0x7f_ffff);
    match (exponent, fraction) {
        (0xff, 0) => sign | HF_INFINITY,
        (0xff, _) => HF_NAN,
        // Subnormal singles are far below half of the smallest half.
        (0, _) => sign,
        _ => {
            let exact = Exact {
                negative: sign != 0,
                significand: u64::from(fraction | 1 << 23),
                exponent: exponent as i32 - 127 - 23,
                sticky: false,
            };
            exact.round(Format::HF, Overflow::Infinity).0 as u16
        }
    }
}

fn wide(a: u16) -> f32 {
    f32::from_bits(sf_from_hf(a))
}

/// `sf+sf`.
#[must_use]
pub fn sf_add(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) + f32::from_bits(b))
}

/// `sf−sf`.
#[must_use]
pub fn sf_sub(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) - f32::from_bits(b))
}

/// `sf·sf`.
#[must_use]
pub fn sf_mpy(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) * f32::from_bits(b))
}

/// `hf+hf` in single.
#[must_use]
pub fn sf_add_hf_hf(a: u16, b: u16) -> u32 {
    canonical(wide(a) + wide(b))
}

/// `hf−hf` in single.
#[must_use]
pub fn sf_sub_hf_hf(a: u16, b: u16) -> u32 {
    canonical(wide(a) - wide(b))
}

/// `hf·hf` in single, exact.
#[must_use]
pub fn sf_mpy_hf_hf(a: u16, b: u16) -> u32 {
    canonical(wide(a) * wide(b))
}

/// `x+hf·hf` in single; the product is exact, so there is one rounding.
#[must_use]
pub fn sf_mpy_acc_hf_hf(x: u32, a: u16, b: u16) -> u32 {
    sf_add(x, sf_mpy_hf_hf(a, b))
}

/// Two exact products of halves, added with one rounding.
#[must_use]
pub fn sf_dmpy_hf_hf(a: [u16; 2], b: [u16; 2]) -> u32 {
    sf_add(sf_mpy_hf_hf(a[1], b[1]), sf_mpy_hf_hf(a[0], b[0]))
}

/// [`sf_dmpy_hf_hf`], then `x` is added.
#[must_use]
pub fn sf_dmpy_acc_hf_hf(x: u32, a: [u16; 2], b: [u16; 2]) -> u32 {
    sf_add(sf_dmpy_hf_hf(a, b), x)
}

/// `hf+hf`.
#[must_use]
pub fn hf_add(a: u16, b: u16) -> u16 {
    hf_from_sf(sf_add_hf_hf(a, b))
}

/// `hf−hf`.
#[must_use]
pub fn hf_sub(a: u16, b: u16) -> u16 {
    hf_from_sf(sf_sub_hf_hf(a, b))
}

/// `hf·hf`.
#[must_use]
pub fn hf_mpy(a: u16, b: u16) -> u16 {
    hf_from_sf(sf_mpy_hf_hf(a, b))
}

/// `x+hf·hf` with one rounding.
///
/// In double the sum is either exact or so far from a tie of halves (an operand more than 31 bits below the other) that the
/// second rounding decides alone.
#[must_use]
pub fn hf_mpy_acc(x: u16, a: u16, b: u16) -> u16 {
    let sum = f64::from(wide(a)) * f64::from(wide(b)) + f64::from(wide(x));
    let bits = sum.to_bits();
    let (negative, exponent, fraction) = (bits >> 63 != 0, bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
    if sum.is_nan() {
        HF_NAN
    } else if sum.is_infinite() {
        u16::from(negative) << 15 | HF_INFINITY
    } else if exponent == 0 {
        // Sums of halves and their products are multiples of 2^-48: no subnormal doubles but zero.
        u16::from(negative) << 15
    } else {
        let exact = Exact {
            negative,
            significand: fraction | 1 << 52,
            exponent: exponent as i32 - 1023 - 52,
            sticky: false,
        };
        exact.round(Format::HF, Overflow::Infinity).0 as u16
    }
}

/// bfloat16 to single, exact.
#[must_use]
pub fn sf_from_bf(a: u16) -> u32 {
    u32::from(a) << 16
}

/// Single to bfloat16, one rounding.
#[must_use]
pub fn bf_from_sf(a: u32) -> u16 {
    if sf_is_nan(a) {
        return (SF_NAN >> 16) as u16;
    }
    // Rounds up past the half, and at the half if the last kept bit is odd; a carry runs into the exponent as it should.
    let up = u32::from(a & 0x8000 != 0 && a & 0x1_7fff != 0);
    ((a >> 16) + up) as u16
}

/// `x+bf·bf` in single, formed in double.
#[must_use]
pub fn sf_mpy_acc_bf_bf(x: u32, a: u16, b: u16) -> u32 {
    let wide = |a| f64::from(f32::from_bits(sf_from_bf(a)));
    canonical((wide(a) * wide(b) + f64::from(f32::from_bits(x))) as f32)
}

/// Singles in an order with −0 below +0 and NaNs beyond the infinities by their sign, as the qfloat unit compares.
fn sf_order(a: u32) -> i32 {
    (a ^ ((a as i32 >> 31) as u32 >> 1)) as i32
}

fn hf_order(a: u16) -> i16 {
    (a ^ ((a as i16 >> 15) as u16 >> 1)) as i16
}

/// `vmax` on singles: +0 is above −0, a NaN beyond infinity on the side of its sign.
#[must_use]
pub fn sf_max(a: u32, b: u32) -> u32 {
    if sf_order(b) > sf_order(a) { b } else { a }
}

/// `vmin` on singles.
#[must_use]
pub fn sf_min(a: u32, b: u32) -> u32 {
    if sf_order(b) < sf_order(a) { b } else { a }
}

/// `vmax` on halves.
#[must_use]
pub fn hf_max(a: u16, b: u16) -> u16 {
    if hf_order(b) > hf_order(a) { b } else { a }
}

/// `vmin` on halves.
#[must_use]
pub fn hf_min(a: u16, b: u16) -> u16 {
    if hf_order(b) < hf_order(a) { b } else { a }
}

/// `vfmax` on singles: a NaN operand gives [`SF_NAN`].
#[must_use]
pub fn sf_fmax(a: u32, b: u32) -> u32 {
    if sf_is_nan(a) || sf_is_nan(b) { SF_NAN } else { sf_max(a, b) }
}

/// `vfmin` on singles.
#[must_use]
pub fn sf_fmin(a: u32, b: u32) -> u32 {
    if sf_is_nan(a) || sf_is_nan(b) { SF_NAN } else { sf_min(a, b) }
}

/// `vfmax` on halves: a NaN operand gives [`HF_NAN`].
#[must_use]
pub fn hf_fmax(a: u16, b: u16) -> u16 {
    if hf_is_nan(a) || hf_is_nan(b) { HF_NAN } else { hf_max(a, b) }
}

/// `vfmin` on halves.
#[must_use]
pub fn hf_fmin(a: u16, b: u16) -> u16 {
    if hf_is_nan(a) || hf_is_nan(b) { HF_NAN } else { hf_min(a, b) }
}

/// `vmax` on bfloat16, which gives a NaN for a NaN.
#[must_use]
pub fn bf_max(a: u16, b: u16) -> u16 {
    (sf_fmax(sf_from_bf(a), sf_from_bf(b)) >> 16) as u16
}

/// `vmin` on bfloat16.
#[must_use]
pub fn bf_min(a: u16, b: u16) -> u16 {
    (sf_fmin(sf_from_bf(a), sf_from_bf(b)) >> 16) as u16
}

/// `vcmp.gt` on singles: zeros are equal, a positive NaN is above infinity.
#[must_use]
pub fn sf_gt(a: u32, b: u32) -> bool {
    (a | b) & 0x7fff_ffff != 0 && sf_order(a) > sf_order(b)
}

/// `vcmp.gt` on halves.
#[must_use]
pub fn hf_gt(a: u16, b: u16) -> bool {
    (a | b) & 0x7fff != 0 && hf_order(a) > hf_order(b)
}

/// `vcmp.gt` on bfloat16.
#[must_use]
pub fn bf_gt(a: u16, b: u16) -> bool {
    sf_gt(sf_from_bf(a), sf_from_bf(b))
}

/// `vcmp.eq` on singles: zeros are equal, a NaN equals nothing.
#[must_use]
pub fn sf_eq(a: u32, b: u32) -> bool {
    f32::from_bits(a) == f32::from_bits(b)
}

/// `vcmp.eq` on halves.
#[must_use]
pub fn hf_eq(a: u16, b: u16) -> bool {
    wide(a) == wide(b)
}

/// Single to word, towards zero, saturated; a NaN by its sign.
#[must_use]
pub fn w_from_sf(a: u32) -> u32 {
    if sf_is_nan(a) {
        return if a >> 31 == 0 { i32::MAX as u32 } else { i32::MIN as u32 };
    }
    (f32::from_bits(a) as i32) as u32
}

/// Word to single.
#[must_use]
pub fn sf_from_w(a: u32) -> u32 {
    (a as i32 as f32).to_bits()
}

/// Half to halfword, towards zero, saturated; a NaN by its sign.
#[must_use]
pub fn h_from_hf(a: u16) -> u16 {
    if hf_is_nan(a) {
        return if a >> 15 == 0 { i16::MAX as u16 } else { i16::MIN as u16 };
    }
    (wide(a) as i16) as u16
}

/// Halfword to half.
#[must_use]
pub fn hf_from_h(a: u16) -> u16 {
    hf_from_sf((f32::from(a as i16)).to_bits())
}

/// Unsigned halfword to half.
#[must_use]
pub fn hf_from_uh(a: u16) -> u16 {
    hf_from_sf(f32::from(a).to_bits())
}

/// A half to the nearest integer, ties to even, inside `low..=high`; a NaN is `high`.
fn nearest(a: u16, low: i32, high: i32) -> i32 {
    if hf_is_nan(a) {
        return high;
    }
    let value = wide(a);
    // Beyond 2^11 halves are integers. Below, the sum with 1.5·2^23 has no fraction bits left.
    const SHIFT: f32 = 12_582_912.0;
    let rounded = if value.abs() < 2048.0 { value + SHIFT - SHIFT } else { value };
    (rounded as i32).clamp(low, high)
}

/// `vcvt` to halfword: nearest, saturated; a NaN is the largest.
#[must_use]
pub fn h_from_hf_nearest(a: u16) -> u16 {
    nearest(a, i32::from(i16::MIN), i32::from(i16::MAX)) as u16
}

/// `vcvt` to unsigned halfword.
#[must_use]
pub fn uh_from_hf_nearest(a: u16) -> u16 {
    nearest(a, 0, i32::from(u16::MAX)) as u16
}

/// `vcvt` to byte.
#[must_use]
pub fn b_from_hf_nearest(a: u16) -> u8 {
    nearest(a, i32::from(i8::MIN), i32::from(i8::MAX)) as u8
}

/// `vcvt` to unsigned byte.
#[must_use]
pub fn ub_from_hf_nearest(a: u16) -> u8 {
    nearest(a, 0, i32::from(u8::MAX)) as u8
}
