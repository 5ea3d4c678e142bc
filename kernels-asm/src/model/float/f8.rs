//! One lane of the fp8 forms (v79): sign, four exponent bits with bias 8, three fraction bits.
//!
//! There is no infinity and no −0; 0x80 is the one NaN. Results of arithmetic are halves. A half beyond ±240 becomes the NaN
//! (the default mode of the user status register), one below half of the smallest subnormal +0.
//!
//! Source: the instruction definitions of Qualcomm's QEMU fork.

use super::ieee::{HF_NAN, hf_from_sf, sf_add, sf_from_hf, sf_mpy, sf_sub};
use crate::model::round::{Exact, Format, Overflow};

const NAN: u8 = 0x80;

fn sf(a: u8) -> u32 {
    let (exponent, fraction) = (u32::from(a >> 3 & 15), u32::from(a & 7));
    let sign = u32::from(a >> 7) << 31;
    if exponent == 0 {
        // Units of 2^-10.
        let magnitude = fraction as f32 * f32::from_bits((127 - 10) << 23);
        sign | magnitude.to_bits()
    } else {
        sign | (exponent + 127 - 8) << 23 | fraction << 20
    }
}

fn arithmetic(a: u8, b: u8, operation: impl Fn(u32, u32) -> u32) -> u16 {
    if a == NAN || b == NAN { HF_NAN } else { hf_from_sf(operation(sf(a), sf(b))) }
}

/// `hf=f8`.
#[must_use]
pub fn hf_from_f8(a: u8) -> u16 {
    if a == NAN { HF_NAN } else { hf_from_sf(sf(a)) }
}

/// `f8=hf`.
#[must_use]
pub fn f8_from_hf(a: u16) -> u8 {
    let (negative, exponent, fraction) = (a >> 15 == 1, i32::from(a >> 10 & 31), u64::from(a & 0x3ff));
    if exponent == 31 {
        return NAN;
    }
    let significand = if exponent == 0 { fraction } else { fraction | 0x400 };
    let exact = Exact { negative: false, significand, exponent: exponent.max(1) - 15 - 10, sticky: false };
    // The format's bias is 8, one more than IEEE's would be.
    let shifted = Exact { exponent: exact.exponent + 1, ..exact };
    let (magnitude, outgrown) =
        shifted.round(Format { fraction_bits: 3, exponent_bits: 4 }, Overflow::Saturate);
    match magnitude as u8 {
        _ if outgrown => NAN,
        0 => 0,
        magnitude => u8::from(negative) << 7 | magnitude,
    }
}

/// `hf=f8+f8`.
#[must_use]
pub fn hf_add_f8_f8(a: u8, b: u8) -> u16 {
    arithmetic(a, b, sf_add)
}

/// `hf=f8−f8`.
#[must_use]
pub fn hf_sub_f8_f8(a: u8, b: u8) -> u16 {
    arithmetic(a, b, sf_sub)
}

/// `hf=f8·f8`.
#[must_use]
pub fn hf_mpy_f8_f8(a: u8, b: u8) -> u16 {
    arithmetic(a, b, sf_mpy)
}

/// `hf+=f8·f8`: formed in single, then rounded to half.
#[must_use]
pub fn hf_mpy_acc_f8_f8(x: u16, a: u8, b: u8) -> u16 {
    if x == HF_NAN { HF_NAN } else { arithmetic(a, b, |a, b| sf_add(sf_mpy(a, b), sf_from_hf(x))) }
}

/// `−f8`; zero and the NaN are their own negatives.
#[must_use]
pub fn neg(a: u8) -> u8 {
    if a & 0x7f == 0 { a } else { a ^ 0x80 }
}

/// `|f8|`; the NaN stays.
#[must_use]
pub fn abs(a: u8) -> u8 {
    if a == NAN { a } else { a & 0x7f }
}

fn order(a: u8) -> i8 {
    (a ^ ((a as i8 >> 7) as u8 >> 1)) as i8
}

/// The larger; a NaN operand gives the NaN.
#[must_use]
pub fn fmax(a: u8, b: u8) -> u8 {
    if a == NAN || b == NAN {
        NAN
    } else if order(a) > order(b) {
        a
    } else {
        b
    }
}

/// The smaller.
#[must_use]
pub fn fmin(a: u8, b: u8) -> u8 {
    if a == NAN || b == NAN {
        NAN
    } else if order(a) < order(b) {
        a
    } else {
        b
    }
}
