//! From an accumulator cell to a half, on the way to memory.
//!
//! cell → + accumulator bias → 16 significant bits (Q3.13, jam) → shape → · scale → + output bias → one rounding to half.
//! Everything before the rounding is exact but for the jammed alignments, so with the identity block a result is the cell
//! rounded once. There are no infinities: the exponent of all ones is an ordinary one, and what is still larger becomes the
//! pattern of all ones (source: `hardware.md`, from Qualcomm's QEMU fork).

use crate::model::round::{Exact, Format, Overflow};

/// What the convert does to one column: the 64-bit record of the bias block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub low: u32,
    pub high: u32,
}

/// A block-floating number: significand · 2^-fraction · 2^exponent.
#[derive(Clone, Copy)]
struct Number {
    significand: i64,
    fraction: u32,
    exponent: i32,
}

impl Column {
    fn bits(self, at: u32, count: u32) -> u32 {
        let record = u64::from(self.high) << 32 | u64::from(self.low);
        (record >> at) as u32 & ((1 << count) - 1)
    }

    /// The half of a cell, and whether an IEEE reader would take it for an infinity or a NaN.
    pub(super) fn convert(self, (significand, exponent): (i32, i32), positive: bool) -> (u16, bool) {
        let accumulator = Number { significand: i64::from(significand), fraction: 22, exponent };
        let bias = half(self.bits(48, 16), self.bits(43, 5), 5, 22);
        let kept = narrow(add(accumulator, bias));
        let negative = kept.significand < 0;
        let (shaped, flip) = match self.bits(40, 2) {
            1 if !negative => (Number { significand: 0, ..kept }, false),
            2 if negative => (Number { significand: 0, ..kept }, false),
            3 => (kept, negative),
            _ => (kept, false),
        };
        let scale = half(self.bits(0, 16), self.bits(32, 4), 4, 13);
        let sign = if (self.bits(42, 1) == 1) != flip { -1 } else { 1 };
        let scaled = Number {
            significand: shaped.significand * scale.significand * sign,
            fraction: shaped.fraction + scale.fraction,
            exponent: shaped.exponent + scale.exponent,
        };
        let total = add(scaled, half(self.bits(16, 16), self.bits(36, 4), 4, scaled.fraction));
        if positive && total.significand < 0 {
            return (0, false);
        }
        let exact = Exact::signed(total.significand, total.exponent - total.fraction as i32);
        let half = exact.round(Format::HF, Overflow::Saturate).0 as u16;
        (half, half & 0x7c00 == 0x7c00)
    }
}

/// A half with `extra_bits` more fraction bits, as a number with `fraction` fraction bits. Zero has the least exponent.
fn half(half: u32, extra: u32, extra_bits: u32, fraction: u32) -> Number {
    let (exponent, low) = ((half >> 10 & 31) as i32, (half & 0x3ff) << extra_bits | extra);
    let hidden = if exponent > 0 { 0x400 << extra_bits } else { 0 };
    let magnitude = i64::from(low | hidden);
    if magnitude == 0 {
        return Number { significand: 0, fraction, exponent: -128 };
    }
    // One bit of headroom as in the accumulator, hence 9 fraction bits for 10 and an exponent that is one less.
    let significand = magnitude << (fraction - 9 - extra_bits);
    Number {
        significand: if half >> 15 & 1 == 1 { -significand } else { significand },
        fraction,
        exponent: exponent.max(1) - 16,
    }
}

fn jam(value: i64, places: i32) -> i64 {
    let places = places.clamp(0, 63);
    let shifted = value >> places;
    shifted | i64::from(shifted << places != value)
}

fn add(a: Number, b: Number) -> Number {
    let exponent = a.exponent.max(b.exponent);
    let significand = jam(a.significand, exponent - a.exponent) + jam(b.significand, exponent - b.exponent);
    Number { significand, fraction: a.fraction, exponent }
}

/// Normalises a sum of 31 bits (Q9.22) to 16 (Q3.13) and jams what falls off.
fn narrow(number: Number) -> Number {
    if number.significand == 0 {
        return Number { significand: 0, fraction: 13, exponent: -128 };
    }
    let redundant = if number.significand < 0 { !number.significand } else { number.significand };
    let shift = redundant.leading_zeros() as i32 - 1 - (64 - 31);
    let shift = shift.max(0);
    Number {
        significand: jam(number.significand << shift, 31 - 16),
        fraction: 13,
        exponent: number.exponent - shift + (9 - 3),
    }
}
