//! The accumulator and its adder: block floating point, exact products, jammed alignment.
//!
//! A cell is a signed significand of 30 bits (Q8.22) and an exponent of 7 bits (9 on v81); its value is
//! significand · 2^-22 · 2^exponent. Operands carry their exponent with one bit of headroom: a half is
//! significand · 2^-9 · 2^(e−16) with its 11 magnitude bits, subnormals normalised, so a product has 18 fraction bits.
//!
//! A step takes the products of one group of k (4 on v73, 8 from v75): all are aligned to the largest exponent, bits that
//! fall off are OR-ed into the last one kept (jam), and the aligned products are added exactly. That sum and the accumulator
//! are aligned and added in the same way. The total gives up one bit for the carry and is then moved left by what a
//! leading-zero anticipator says, at most 3 places: after cancellation the exponent follows only slowly, and low bits are
//! lost meanwhile. A group in which all activations or all weights are zero is skipped.
//!
//! Sources: widths, groups and jam as `hardware.md` collects them from Qualcomm's QEMU fork and the reference manual that it
//! quotes; the anticipator and the limit of 3 (another source says 2) are QEMU's, which states them for its v81 unit, taken
//! for all revisions here. Its v75 and v79 configurations approximate with doubles; v73 is not in it.

use super::Revision;

/// Rows, columns and depth of a tile.
pub(super) const SIDE: usize = 32;
/// The exponent of a zero operand: below every other, so that zeros never set a group's exponent.
const ZERO_EXPONENT: i16 = -1000;
/// Product fraction bits to accumulator fraction bits.
const ALIGN: u32 = 22 - 18;
/// The most places that a total is moved left.
const MAX_SHIFT: i32 = 3;

/// A tile of halves as significands and exponents: `[row][k]` of activations, `[k][column]` of weights.
pub(super) struct Operand {
    significand: [[i16; SIDE]; SIDE],
    exponent: [[i16; SIDE]; SIDE],
}

impl Operand {
    /// Element (i, j) of a tile stands at halfword 64·(i / 2) + 2·j + (i & 1).
    pub(super) fn decode(tile: &[u8; 2048]) -> Self {
        let mut operand = Self { significand: [[0; SIDE]; SIDE], exponent: [[ZERO_EXPONENT; SIDE]; SIDE] };
        for (index, half) in tile.chunks_exact(2).enumerate() {
            let (i, j) = (index / 64 * 2 + (index & 1), index / 2 % SIDE);
            let (significand, exponent) = decode(u16::from_le_bytes([half[0], half[1]]));
            operand.significand[i][j] = significand;
            operand.exponent[i][j] = exponent;
        }
        operand
    }
}

/// The significand with its sign and the exponent of a half. The exponent of all ones is an ordinary one.
fn decode(half: u16) -> (i16, i16) {
    let (exponent, fraction) = ((half >> 10 & 31) as i16, (half & 0x3ff) as i16);
    let (magnitude, exponent) = match (exponent, fraction) {
        (0, 0) => return (0, ZERO_EXPONENT),
        (0, _) => {
            let shift = fraction.leading_zeros() as i16 - 5;
            (fraction << shift, 1 - 16 - shift)
        }
        _ => (fraction | 0x400, exponent - 16),
    };
    (if half >> 15 == 1 { -magnitude } else { magnitude }, exponent)
}

/// One accumulator: 32 rows of 32 columns.
#[derive(Clone)]
pub(super) struct Accumulator {
    significand: [[i32; SIDE]; SIDE],
    exponent: [[i32; SIDE]; SIDE],
}

impl Accumulator {
    pub(super) fn zero(revision: Revision) -> Self {
        Self { significand: [[0; SIDE]; SIDE], exponent: [[revision.smallest_exponent(); SIDE]; SIDE] }
    }

    /// Makes it zero where it lies: it is too large for a small stack.
    pub(super) fn clear(&mut self, revision: Revision) {
        self.significand = [[0; SIDE]; SIDE];
        self.exponent.as_flattened_mut().fill(revision.smallest_exponent());
    }

    /// Significand and exponent of a cell.
    pub(super) fn cell(&self, row: usize, column: usize) -> (i32, i32) {
        (self.significand[row][column], self.exponent[row][column])
    }

    /// Adds activation · weight for one tile of 32 k. Inlined, so that its caller says what it is compiled for.
    #[inline(always)]
    pub(super) fn multiply(&mut self, activation: &Operand, weight: &Operand, revision: Revision) {
        match revision.group() {
            4 => self.multiply_by::<4>(activation, weight, revision.smallest_exponent()),
            _ => self.multiply_by::<8>(activation, weight, revision.smallest_exponent()),
        }
    }

    #[inline(always)]
    fn multiply_by<const GROUP: usize>(&mut self, activation: &Operand, weight: &Operand, smallest: i32) {
        for row in 0..SIDE {
            for k in (0..SIDE).step_by(GROUP) {
                let a: [i32; GROUP] = core::array::from_fn(|i| i32::from(activation.significand[row][k + i]));
                if a == [0; GROUP] {
                    continue;
                }
                let a_exponent: [i32; GROUP] =
                    core::array::from_fn(|i| i32::from(activation.exponent[row][k + i]));
                for column in 0..SIDE {
                    let w: [i32; GROUP] =
                        core::array::from_fn(|i| i32::from(weight.significand[k + i][column]));
                    let exponent: [i32; GROUP] =
                        core::array::from_fn(|i| a_exponent[i] + i32::from(weight.exponent[k + i][column]));
                    let largest = exponent.into_iter().fold(smallest, i32::max);
                    let mut sum = 0;
                    let mut any = 0;
                    for i in 0..GROUP {
                        any |= w[i];
                        sum += jam((a[i] * w[i]) << ALIGN, largest - exponent[i]);
                    }
                    let cell = (self.significand[row][column], self.exponent[row][column]);
                    let (significand, exponent) = add(cell, (sum, largest), smallest);
                    if any != 0 {
                        self.significand[row][column] = significand;
                        self.exponent[row][column] = exponent;
                    }
                }
            }
        }
    }
}

/// Shifts right and ORs what falls off into the last bit.
#[inline(always)]
fn jam(value: i32, places: i32) -> i32 {
    let places = places.min(31);
    let shifted = value >> places;
    shifted | i32::from(shifted << places != value)
}

/// Accumulator plus group, and the limited normalisation.
#[inline(always)]
fn add((a, a_exponent): (i32, i32), (b, b_exponent): (i32, i32), smallest: i32) -> (i32, i32) {
    let largest = a_exponent.max(b_exponent);
    let (a, b) = (jam(a, largest - a_exponent), jam(b, largest - b_exponent));
    let total = jam(a + b, 1);
    let exponent = largest + 1;
    let shift = anticipate(a, b).min(exponent - smallest);
    // Sign-extended from 30 bits.
    (total << (shift + 2) >> 2, exponent - shift)
}

/// How far the sum of two 30-bit numbers in a 31-bit frame may be moved left, anticipated from the addends as the unit's
/// circuit does it, at most [`MAX_SHIFT`]. It may be one short of the true count.
#[inline(always)]
fn anticipate(a: i32, b: i32) -> i32 {
    let (differ, both, neither) = (a ^ b, a & b, !(a | b));
    let zeros = leading(differ ^ !(neither << 1));
    let ones = leading(differ ^ !(both << 1));
    if differ < 0 {
        zeros.max(ones)
    } else if a < 0 {
        ones
    } else {
        zeros
    }
}

/// Zero bits from bit 29 down, at most [`MAX_SHIFT`].
#[inline(always)]
fn leading(bits: i32) -> i32 {
    if bits & 1 << 29 != 0 {
        0
    } else if bits & 1 << 28 != 0 {
        1
    } else if bits & 1 << 27 != 0 {
        2
    } else {
        MAX_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of 30 bits with any count of leading sign bits, from a small generator.
    fn numbers() -> impl Iterator<Item = i32> {
        let mut state = 0x9e37_79b9u32;
        core::iter::repeat_with(move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state as i32) >> (2 + (state >> 7) % 29)
        })
    }

    /// The anticipated shift is the count of redundant sign bits of the sum, or one less: never more, so that nothing is
    /// shifted out at the top.
    #[test]
    fn anticipation_is_at_most_one_short() {
        let (mut exact, mut short) = (0, 0);
        for (a, b) in numbers().zip(numbers().skip(12_345)).take(1_000_000) {
            let sum = a + b;
            let redundant = (if sum < 0 { !sum } else { sum }).leading_zeros() as i32 - 2;
            let shift = anticipate(a, b);
            let limit = redundant.min(MAX_SHIFT);
            assert!(shift == limit || shift == limit - 1, "{a} + {b}: {shift}, not {limit}");
            if shift == limit { exact += 1 } else { short += 1 }
        }
        assert!(exact > 100_000 && short > 1_000, "{exact} exact, {short} short");
    }

    /// Adding keeps the value but for what the jams take: less than two units of the larger scale each time.
    #[test]
    fn adding_keeps_the_value() {
        let value = |(significand, exponent): (i32, i32)| f64::from(significand) * 2f64.powi(exponent);
        for (a, b) in numbers().zip(numbers().skip(777)).take(1_000_000) {
            let (a, b) = ((a, b & 7), (b, a & 7));
            let sum = add(a, b, -64);
            let unit = 2f64.powi(a.1.max(b.1));
            assert!((value(sum) - value(a) - value(b)).abs() < 3.0 * unit, "{a:?} + {b:?} = {sum:?}");
            assert!(sum.0 < 1 << 29 && sum.0 >= -(1 << 29), "{sum:?}");
        }
    }

    #[test]
    fn halves_decode_with_a_bit_of_headroom() {
        for half in 0..=u16::MAX {
            let (significand, exponent) = decode(half);
            let (field, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 0x3ff));
            let magnitude = if field == 0 {
                fraction / 1024.0 * 2f64.powi(-14)
            } else {
                (1.0 + fraction / 1024.0) * 2f64.powi(field - 15)
            };
            let expected = if half >> 15 == 1 { -magnitude } else { magnitude };
            if significand == 0 {
                assert_eq!((expected, exponent), (0.0, ZERO_EXPONENT));
            } else {
                assert_eq!(f64::from(significand) * 2f64.powi(i32::from(exponent) - 9), expected);
                assert!(significand.abs() >= 0x400);
            }
        }
    }
}
