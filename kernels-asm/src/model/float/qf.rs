//! One lane of the qfloat forms: qf16 and qf32, the internal formats of HVX before v79.
//!
//! A qf32 has a signed significand m in bits 31:8 and an exponent e (bias 127) in bits 7:0; its value is
//! (2m + 1) · 2^-23 · 2^(e−127). A qf16 has m in bits 15:5 and e (bias 15) in bits 4:0: (2m + 1) · 2^-10 · 2^(e−15). The last
//! significand bit is always one and not stored, numbers need not be normalised, and there is neither infinity nor NaN. Zero
//! is the word 0, worth half of the smallest IEEE subnormal, so that every conversion makes it zero. The bits of a
//! number as a qfloat and as an IEEE number differ: a kernel that forgets a conversion computes garbage, as on silicon.
//!
//! Rounding is to the nearest odd significand, or to the even one between two of them when the exponent can take it up (an
//! even number is an odd one, one exponent higher). So 1.0 + 0 is 1 + 2^-23: after a conversion to single a sum may be one
//! unit beside the IEEE result. ∞ + 0 turns into a NaN's pattern.
//!
//! Source: the arithmetic of Qualcomm's QEMU fork, which states it in doubles; here it is integers, exact where doubles
//! would round once more (sums of numbers more than 28 exponents apart). IEEE operands beyond the finite ones are taken as
//! ordinary numbers with the exponent of all ones. v79 adds extension bits to qfloat registers; they are not modelled.

use crate::model::round::{Exact, Format, Overflow};

/// A qfloat format.
#[derive(Clone, Copy)]
struct Qf {
    /// Fraction bits of the significand, the implied one included.
    fraction: u32,
    bias: i32,
    /// The exponent field's width.
    width: u32,
}

const QF32: Qf = Qf { fraction: 23, bias: 127, width: 8 };
const QF16: Qf = Qf { fraction: 10, bias: 15, width: 5 };

impl Qf {
    const fn smallest(self) -> i32 {
        -self.bias
    }

    const fn largest(self) -> i32 {
        self.bias + 1
    }

    /// Puts a significand m and an unbiased exponent together.
    const fn pack(self, m: i32, exponent: i32) -> u32 {
        ((m as u32) << self.width | (exponent + self.bias) as u32) & self.mask()
    }

    const fn mask(self) -> u32 {
        u32::MAX >> (31 - self.fraction - self.width)
    }
}

/// significand · 2^(exponent − fraction); the significand is odd for a qfloat and any magnitude for an IEEE number.
#[derive(Clone, Copy)]
struct Number {
    significand: i64,
    exponent: i32,
    /// Fraction bits.
    fraction: u32,
}

fn qf32(word: u32) -> Number {
    let significand = i64::from(word as i32 >> 8) * 2 + 1;
    Number { significand, exponent: (word & 0xff) as i32 - QF32.bias, fraction: QF32.fraction }
}

fn qf16(word: u16) -> Number {
    let significand = i64::from(word as i16 >> 5) * 2 + 1;
    Number { significand, exponent: i32::from(word & 0x1f) - QF16.bias, fraction: QF16.fraction }
}

/// An IEEE number, split into sign and magnitude.
fn ieee(word: u32, format: Format) -> (bool, Number) {
    let fraction = word & ((1 << format.fraction_bits) - 1);
    let exponent = (word >> format.fraction_bits & ((1 << format.exponent_bits) - 1)) as i32;
    let hidden = if exponent > 0 { 1 << format.fraction_bits } else { 0 };
    let number = Number {
        significand: i64::from(fraction | hidden),
        exponent: exponent.max(1) - format.bias(),
        fraction: format.fraction_bits,
    };
    (word >> (format.fraction_bits + format.exponent_bits) & 1 == 1, number)
}

fn sf(word: u32) -> (bool, Number) {
    ieee(word, Format::SF)
}

fn hf(word: u16) -> (bool, Number) {
    ieee(u32::from(word), Format::HF)
}

fn signed((negative, number): (bool, Number)) -> Number {
    if negative { negate(number) } else { number }
}

fn negate(number: Number) -> Number {
    Number { significand: -number.significand, ..number }
}

/// Rounds significand · 2^(exponent − fraction − extra), plus less than one unit if `sticky`, to a qfloat.
///
/// The cases are those of the source: past the exponent's range the extreme significand; at its ends, or where a product
/// has outgrown ±2, the nearest odd significand; else the nearest odd one or the even one in between.
fn round(qf: Qf, significand: i64, exponent: i32, extra: u32, sticky: bool) -> u32 {
    if significand == 0 && !sticky {
        return 0;
    }
    let negative = significand < 0;
    let two = 1i64 << (qf.fraction + extra + 1);
    let outgrown = significand >= two || significand < -two;
    if exponent > qf.largest() || outgrown && exponent == qf.largest() {
        let m = if negative { -(1 << qf.fraction) } else { (1 << qf.fraction) - 1 };
        return qf.pack(m, qf.largest());
    }
    if exponent < qf.smallest() - 1 {
        return qf.pack(if negative { -1 } else { 0 }, qf.smallest());
    }
    // Where the significand is halved first, the exponent goes up by one.
    let halved = u32::from(outgrown || exponent == qf.smallest() - 1);
    let unit = extra + halved;
    // Position among four neighbours 4k…4k+3, in units of the last place.
    let quad = significand >> (unit + 2);
    let rest = significand - (quad << (unit + 2));
    let beyond = |halves: i64| {
        let limit = halves << unit >> 1;
        rest > limit || rest == limit && sticky
    };
    let only_odd = halved == 1 || exponent == qf.largest();
    let (odd, up) = if only_odd {
        (quad * 4 + if beyond(4) { 3 } else { 1 }, halved as i32)
    } else if !beyond(3) {
        (quad * 4 + 1, 0)
    } else if !beyond(5) {
        (quad * 2 + 1, 1)
    } else {
        (quad * 4 + 3, 0)
    };
    qf.pack(((odd - 1) / 2) as i32, exponent + up)
}

/// Guard bits of a sum: what falls off beyond them is one sticky bit.
const GUARD: u32 = 30;

/// a·b. For a product narrower than the result two zero bits are appended.
fn product(qf: Qf, a: Number, b: Number) -> u32 {
    let fraction = a.fraction + b.fraction;
    let padding = (qf.fraction + 2).saturating_sub(fraction);
    let significand = (a.significand * b.significand) << padding;
    round(qf, significand, a.exponent + b.exponent, fraction + padding - qf.fraction, false)
}

/// a + b, at the larger exponent or at the leading bit of the number that has it, whichever is lower.
fn sum(qf: Qf, a: Number, b: Number) -> u32 {
    let (high, low) = if a.exponent > b.exponent { (a, b) } else { (b, a) };
    let lead = match high.significand.unsigned_abs() {
        0 => -(qf.fraction as i32 + 1),
        magnitude => 63 - magnitude.leading_zeros() as i32 - qf.fraction as i32,
    };
    let exponent = (high.exponent + lead).max(low.exponent);
    let (high, high_sticky) = align(high, exponent);
    let (low, low_sticky) = align(low, exponent);
    round(qf, high + low, exponent, GUARD, high_sticky || low_sticky)
}

/// The significand with guard bits at another exponent, rounded down, and whether that cut anything. Only one of a sum's
/// two numbers is ever cut, and the shift to the left stops at the leading bit.
fn align(number: Number, exponent: i32) -> (i64, bool) {
    let wide = number.significand << GUARD;
    let right = exponent - number.exponent;
    if right <= 0 {
        return (wide << -right, false);
    }
    let right = right.min(63);
    let shifted = wide >> right;
    (shifted, shifted << right != wide)
}

/// The sum of two IEEE numbers: of equal signs as magnitudes, so that rounding is symmetric.
fn ieee_sum(qf: Qf, a: (bool, Number), b: (bool, Number)) -> u32 {
    match (a.0, b.0) {
        (true, true) => complement(qf, sum(qf, a.1, b.1)),
        _ => sum(qf, signed(a), signed(b)),
    }
}

/// The product of two IEEE numbers, of their magnitudes.
fn ieee_product(qf: Qf, a: (bool, Number), b: (bool, Number)) -> u32 {
    let word = product(qf, a.1, b.1);
    if a.0 != b.0 { complement(qf, word) } else { word }
}

/// The negative: the complement of m, since −(2m + 1) = 2(−m − 1) + 1.
fn complement(qf: Qf, word: u32) -> u32 {
    word ^ (qf.mask() << qf.width & qf.mask())
}

fn flip((negative, number): (bool, Number)) -> (bool, Number) {
    (!negative, number)
}

/// `qf32=sf+sf`.
#[must_use]
pub fn qf32_add_sf_sf(a: u32, b: u32) -> u32 {
    ieee_sum(QF32, sf(a), sf(b))
}

/// `qf32=qf32+sf`.
#[must_use]
pub fn qf32_add_qf32_sf(a: u32, b: u32) -> u32 {
    sum(QF32, qf32(a), signed(sf(b)))
}

/// `qf32=qf32+qf32`.
#[must_use]
pub fn qf32_add_qf32_qf32(a: u32, b: u32) -> u32 {
    sum(QF32, qf32(a), qf32(b))
}

/// `qf32=sf−sf`.
#[must_use]
pub fn qf32_sub_sf_sf(a: u32, b: u32) -> u32 {
    ieee_sum(QF32, sf(a), flip(sf(b)))
}

/// `qf32=qf32−sf`.
#[must_use]
pub fn qf32_sub_qf32_sf(a: u32, b: u32) -> u32 {
    sum(QF32, qf32(a), signed(flip(sf(b))))
}

/// `qf32=sf−qf32`.
#[must_use]
pub fn qf32_sub_sf_qf32(a: u32, b: u32) -> u32 {
    sum(QF32, signed(sf(a)), negate(qf32(b)))
}

/// `qf32=qf32−qf32`.
#[must_use]
pub fn qf32_sub_qf32_qf32(a: u32, b: u32) -> u32 {
    sum(QF32, qf32(a), negate(qf32(b)))
}

/// `qf32=sf·sf`.
#[must_use]
pub fn qf32_mpy_sf_sf(a: u32, b: u32) -> u32 {
    ieee_product(QF32, sf(a), sf(b))
}

/// `qf32=qf32·qf32`.
#[must_use]
pub fn qf32_mpy_qf32_qf32(a: u32, b: u32) -> u32 {
    product(QF32, qf32(a), qf32(b))
}

/// `qf32=hf·hf`.
#[must_use]
pub fn qf32_mpy_hf_hf(a: u16, b: u16) -> u32 {
    ieee_product(QF32, hf(a), hf(b))
}

/// `qf32=qf16·hf`.
#[must_use]
pub fn qf32_mpy_qf16_hf(a: u16, b: u16) -> u32 {
    let (negative, magnitude) = hf(b);
    let word = product(QF32, qf16(a), magnitude);
    if negative { complement(QF32, word) } else { word }
}

/// `qf32=qf16·qf16`.
#[must_use]
pub fn qf32_mpy_qf16_qf16(a: u16, b: u16) -> u32 {
    product(QF32, qf16(a), qf16(b))
}

/// `qf16=hf+hf`.
#[must_use]
pub fn qf16_add_hf_hf(a: u16, b: u16) -> u16 {
    ieee_sum(QF16, hf(a), hf(b)) as u16
}

/// `qf16=qf16+hf`.
#[must_use]
pub fn qf16_add_qf16_hf(a: u16, b: u16) -> u16 {
    sum(QF16, qf16(a), signed(hf(b))) as u16
}

/// `qf16=qf16+qf16`.
#[must_use]
pub fn qf16_add_qf16_qf16(a: u16, b: u16) -> u16 {
    sum(QF16, qf16(a), qf16(b)) as u16
}

/// `qf16=hf−hf`.
#[must_use]
pub fn qf16_sub_hf_hf(a: u16, b: u16) -> u16 {
    ieee_sum(QF16, hf(a), flip(hf(b))) as u16
}

/// `qf16=qf16−hf`.
#[must_use]
pub fn qf16_sub_qf16_hf(a: u16, b: u16) -> u16 {
    sum(QF16, qf16(a), signed(flip(hf(b)))) as u16
}

/// `qf16=hf−qf16`.
#[must_use]
pub fn qf16_sub_hf_qf16(a: u16, b: u16) -> u16 {
    sum(QF16, signed(hf(a)), negate(qf16(b))) as u16
}

/// `qf16=qf16−qf16`.
#[must_use]
pub fn qf16_sub_qf16_qf16(a: u16, b: u16) -> u16 {
    sum(QF16, qf16(a), negate(qf16(b))) as u16
}

/// `qf16=hf·hf`.
#[must_use]
pub fn qf16_mpy_hf_hf(a: u16, b: u16) -> u16 {
    ieee_product(QF16, hf(a), hf(b)) as u16
}

/// `qf16=qf16·hf`.
#[must_use]
pub fn qf16_mpy_qf16_hf(a: u16, b: u16) -> u16 {
    let (negative, magnitude) = hf(b);
    let word = product(QF16, qf16(a), magnitude);
    (if negative { complement(QF16, word) } else { word }) as u16
}

/// `qf16=qf16·qf16`.
#[must_use]
pub fn qf16_mpy_qf16_qf16(a: u16, b: u16) -> u16 {
    product(QF16, qf16(a), qf16(b)) as u16
}

/// `qf32=−qf32`.
#[must_use]
pub fn qf32_neg(a: u32) -> u32 {
    complement(QF32, a)
}

/// `qf32=|qf32|`.
#[must_use]
pub fn qf32_abs(a: u32) -> u32 {
    if (a as i32) < 0 { complement(QF32, a) } else { a }
}

/// `qf16=−qf16`.
#[must_use]
pub fn qf16_neg(a: u16) -> u16 {
    complement(QF16, u32::from(a)) as u16
}

/// `qf16=|qf16|`.
#[must_use]
pub fn qf16_abs(a: u16) -> u16 {
    if (a as i16) < 0 { qf16_neg(a) } else { a }
}

fn to_ieee(number: Number, format: Format) -> u32 {
    let exact = Exact::signed(number.significand, number.exponent - number.fraction as i32);
    exact.round(format, Overflow::Saturate).0
}

/// `sf=qf32`: nearest, ties to even; beyond the format the pattern of all ones.
#[must_use]
pub fn sf_from_qf32(a: u32) -> u32 {
    to_ieee(qf32(a), Format::SF)
}

/// `hf=qf32`.
#[must_use]
pub fn hf_from_qf32(a: u32) -> u16 {
    to_ieee(qf32(a), Format::HF) as u16
}

/// `bf=qf32`.
#[must_use]
pub fn bf_from_qf32(a: u32) -> u16 {
    to_ieee(qf32(a), Format::BF) as u16
}

/// `hf=qf16`.
#[must_use]
pub fn hf_from_qf16(a: u16) -> u16 {
    to_ieee(qf16(a), Format::HF) as u16
}
