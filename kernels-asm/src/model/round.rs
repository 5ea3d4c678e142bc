//! One rounding from an exact number to a binary format, to nearest, ties to even, subnormals kept.

/// What becomes of numbers beyond the largest finite one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// IEEE: the exponent of all ones is infinity.
    Infinity,
    /// The exponent of all ones is an ordinary one and there is no infinity: the largest magnitude is all ones, which an
    /// IEEE reader takes for a NaN. So the matrix unit by default, and the conversions from qfloat.
    Saturate,
}

/// A binary format of at most 32 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub fraction_bits: u32,
    pub exponent_bits: u32,
}

impl Format {
    pub const HF: Self = Self { fraction_bits: 10, exponent_bits: 5 };
    pub const BF: Self = Self { fraction_bits: 7, exponent_bits: 8 };
    pub const SF: Self = Self { fraction_bits: 23, exponent_bits: 8 };

    pub const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }
}

/// An exact number: sign · significand · 2^exponent, plus less than one unit of the significand if `sticky`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    pub negative: bool,
    pub significand: u64,
    pub exponent: i32,
    pub sticky: bool,
}

impl Exact {
    /// A two's-complement significand; `sticky` adds less than one unit to its magnitude.
    pub fn signed(significand: i64, exponent: i32) -> Self {
        Self { negative: significand < 0, significand: significand.unsigned_abs(), exponent, sticky: false }
    }

    /// The bits in `format`, and whether the number was too large for it.
    pub fn round(self, format: Format, overflow: Overflow) -> (u32, bool) {
        let (fraction, width) = (format.fraction_bits, format.fraction_bits + format.exponent_bits);
        let sign = u32::from(self.negative) << width;
        if self.significand == 0 {
            return (sign, false);
        }
        let top = self.exponent + 63 - self.significand.leading_zeros() as i32;
        let smallest = 1 - format.bias();
        // The exponent of the result's last bit: fixed below the smallest normal number.
        let last = top.max(smallest) - fraction as i32;
        let dropped = last - self.exponent;
        let kept = if dropped <= 0 {
            self.significand << -dropped
        } else if dropped > 64 {
            0
        } else {
            let kept = self.significand.checked_shr(dropped as u32).unwrap_or(0);
            let half = 1u64 << (dropped - 1);
            let rest = self.significand & (half | (half - 1));
            let up = rest > half || rest == half && (self.sticky || kept & 1 == 1);
            kept + u64::from(up)
        };
        // The hidden bit of a normal number is the last step of the exponent below its own; a carry moves it on.
        let step = (top.max(smallest) - smallest) as u64;
        let bits = (step << fraction) + kept;
        let largest = (1u64 << width) - 1;
        let infinity = largest >> fraction << fraction;
        match overflow {
            Overflow::Infinity if bits >= infinity => (sign | infinity as u32, true),
            Overflow::Saturate if bits > largest => (sign | largest as u32, true),
            _ => (sign | bits as u32, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the conversion of the `half` crate from f64, which looks at 20 fraction bits and no further.
    #[test]
    fn rounds_as_the_half_crate_does() {
        for significand in 0..1u64 << 20 {
            for exponent in [-40, -36, -26, -24, -20, -11, -8, -6, -5] {
                let exact = Exact { negative: significand & 1 == 0, significand, exponent, sticky: false };
                let value =
                    significand as f64 * 2f64.powi(exponent) * if exact.negative { -1.0 } else { 1.0 };
                let expected = half::f16::from_f64(value).to_bits();
                assert_eq!(exact.round(Format::HF, Overflow::Infinity).0, u32::from(expected), "{value:e}");
            }
        }
    }

    #[test]
    fn a_sticky_tail_decides_ties_and_nothing_else() {
        let at = |significand, sticky| {
            Exact { negative: false, significand, exponent: -1, sticky }
                .round(Format::HF, Overflow::Infinity)
                .0
        };
        // 2049 halves are 1024.5, a tie between 1024 and 1025.
        assert_eq!(at(2049, false), u32::from(half::f16::from_f32(1024.0).to_bits()));
        assert_eq!(at(2049, true), u32::from(half::f16::from_f32(1025.0).to_bits()));
        assert_eq!(at(2048, true), at(2048, false));
    }

    #[test]
    fn the_largest_numbers() {
        let at = |value, overflow| Exact::signed(value, 0).round(Format::HF, overflow);
        assert_eq!(at(65504, Overflow::Infinity), (0x7bff, false));
        assert_eq!(at(65519, Overflow::Infinity), (0x7bff, false));
        assert_eq!(at(65520, Overflow::Infinity), (0x7c00, true));
        assert_eq!(at(-65520, Overflow::Infinity), (0xfc00, true));
        assert_eq!(at(65536, Overflow::Saturate), (0x7c00, false));
        assert_eq!(at(131_008, Overflow::Saturate), (0x7fff, false));
        assert_eq!(at(131_040, Overflow::Saturate), (0x7fff, true));
        assert_eq!(at(-1 << 40, Overflow::Saturate), (0xffff, true));
    }
}
