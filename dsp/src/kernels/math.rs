//! Elementary functions: the one implementation of each that the firmware has (law 1 f).
//!
//! The exponential runs on lanes; where a tail has fewer elements the rest of the lanes idle, so an element's value
//! never depends on its place. Angles are formed in f64 by libm and rounded once, whatever the backend.

use super::lanes::Lanes;

/// 1.5·2^23: a float below 2^22 in magnitude plus this, less this, is rounded to an integer (ties to even), and the sum
/// holds that integer in its low bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts; products of the first with integers below 2^15 are exact.
const LN2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];
/// Minimax coefficients of `(e^r − 1 − r)/r²` on |r| ≤ ln2/2, highest power first (those of Cephes' expf).
const EXP: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// `e^x`: within 2 ulp where the result is normal, subnormal results rounded once more, 0 below −104, ∞ above 88.73,
/// NaN only for NaN.
#[inline(always)]
pub(super) fn exp<L: Lanes>(l: L, x: L::F) -> L::F {
    let round = l.splat(ROUND);
    let x = l.max(l.splat(-105.0), l.min(l.splat(89.0), x));
    let n = l.sub(l.mul_add(x, l.splat(core::f32::consts::LOG2_E), round), round);
    let r = l.mul_add(n, l.splat(-LN2[1]), l.mul_add(n, l.splat(-LN2[0]), x));
    let mut p = l.splat(EXP[0]);
    for c in &EXP[1..] {
        p = l.mul_add(p, r, l.splat(*c));
    }
    let y = l.add(l.mul_add(p, l.mul(r, r), r), l.splat(1.0));
    // 2^n in two factors: n reaches from −151 to 128, one exponent field only from −126 to 127.
    let half = l.sub(l.mul_add(n, l.splat(0.5), round), round);
    l.mul(l.mul(y, power_of_two(l, half)), power_of_two(l, l.sub(n, half)))
}

/// `2^n` for integers n in −126..=127.
#[inline(always)]
fn power_of_two<L: Lanes>(l: L, n: L::F) -> L::F {
    l.bits_to_float(l.shl(l.float_to_bits(l.add(n, l.splat(ROUND + 127.0))), 23))
}

/// `x / (1 + e^−x)`, by the exponential of −|x| so that neither side overflows.
#[inline(always)]
pub(super) fn silu<L: Lanes>(l: L, x: L::F) -> L::F {
    let (one, negated) = (l.splat(1.0), l.sub(l.splat(0.0), x));
    let e = exp(l, l.min(x, negated));
    l.div(l.mul(x, l.where_negative(x, e, one)), l.add(one, e))
}

/// `1 / √x`, both operations correctly rounded.
#[must_use]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / libm::sqrtf(x)
}
