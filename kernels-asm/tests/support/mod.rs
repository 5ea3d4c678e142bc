//! What several tests share: a generator, exact sums of halves, and roundings that know nothing of the models.

#![allow(dead_code, reason = "each test uses its part")]

use half::f16;

/// A small generator of numbers (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A half with a magnitude between 2^low and 2^high.
    pub fn half(&mut self, low: i32, high: i32) -> f16 {
        let exponent = (low + self.below((high - low) as u64) as i32 + 15) as u16;
        f16::from_bits((self.next() as u16 & 0x83ff) | exponent << 10)
    }
}

/// A half in units of 2^-24, its own ones: exact. The exponent of all ones is an ordinary one.
pub fn fixed(half: f16) -> i128 {
    let (exponent, fraction) = (i32::from(half.to_bits() >> 10 & 31), i128::from(half.to_bits() & 0x3ff));
    let magnitude = if exponent == 0 { fraction } else { (fraction | 0x400) << (exponent - 1) };
    if half.to_bits() >> 15 == 1 { -magnitude } else { magnitude }
}

/// Units of a product of halves.
pub const PRODUCT_UNIT: f64 = 1.0 / ((1u64 << 48) as f64);

/// The half nearest to value · 2^-48, ties to even, the exponent of all ones an ordinary one: by looking at every
/// neighbour instead of at bits.
pub fn nearest_half(value: i128) -> f16 {
    let magnitude = value.unsigned_abs() as i128;
    // Magnitudes are ordered as their patterns are.
    let (mut low, mut high) = (0u16, 0x7fff);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fixed(f16::from_bits(middle)) << 24 <= magnitude {
            low = middle;
        } else {
            high = middle;
        }
    }
    let distance = |bits: u16| ((fixed(f16::from_bits(bits)) << 24) - magnitude).abs();
    let bits = match distance(low).cmp(&distance(high)) {
        std::cmp::Ordering::Less => low,
        std::cmp::Ordering::Greater => high,
        std::cmp::Ordering::Equal => low + (low & 1),
    };
    f16::from_bits(bits | if value < 0 { 0x8000 } else { 0 })
}

/// The distance between neighbours around a half.
pub fn ulp(half: f16) -> f64 {
    let exponent = i32::from(half.to_bits() >> 10 & 31).max(1);
    2f64.powi(exponent - 25)
}
