//! Elementary functions on vectors: this backend's one implementation of each (law 1 f).
//!
//! All in the unit's own format between the first and the last operation. Below v79 that format has odd significands only
//! and normalises no difference: not even a product of small integers is exact, a cancellation costs a unit of the larger
//! term, and what has to be an integer is kept as one. Bounds, relative, which tests hold on random arguments: [`exp`]
//! (24 + 2|x|)·2⁻²³, [`reciprocal`] 64·2⁻²³ (its steps add numbers that are not normalised), [`sigmoid`] (128 + 2|x|)·2⁻²³.
//! All are far below a half's 2⁻¹¹, which is what becomes of them.

use super::hvx::{
    Q, V, add, add_q, add_qv, add_w, float, float_of_w, lift, max_sf, min_sf, mul, mul_q, or, shl_w, splat,
    splat_f, sub, sub_w, where_gt_w, xor, zero,
};

/// 1.5·2^23: a float below 2^22 in magnitude plus this has its nearest integer in its low bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 less 11/16.
const LN2_REST: f32 = 5.647_180_6e-3;
/// Minimax coefficients of `(e^r − 1 − r)/r²` on |r| ≤ ln2/2, highest power first (those of Cephes' expf).
const EXP: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
/// Below this the exponential is 0: what is above it never leaves the normal numbers on the way.
const LEAST: f32 = -86.0;
/// Above this the exponential stays at its value here.
const MOST: f32 = 88.0;

/// The sign bits.
const SIGN: u32 = 1 << 31;

/// `e^x`: 0 below −86, e^88 above 88.
#[must_use]
#[inline(always)]
pub fn exp(x: V) -> V {
    let held = max_sf(splat_f(LEAST), min_sf(splat_f(MOST), x));
    let shifted = float(add_qv(mul(held, splat_f(core::f32::consts::LOG2_E)), splat_f(ROUND)));
    let n = sub_w(shifted, splat(ROUND.to_bits()));
    // r = x − n·ln 2 as (16x − 11n)/16 − n·(ln 2 − 11/16): the terms of the first difference are exact. Sixteen times a
    // float is four more in its exponent, which makes of 0 a number that is as good as 0.
    let eleven = add_w(n, add_w(shl_w(n, 1), shl_w(n, 3)));
    let near = sub(add_w(held, splat(4 << 23)), float_of_w(eleven));
    let r = add_q(mul_q(near, lift(splat_f(1.0 / 16.0))), mul(float_of_w(n), splat_f(-LN2_REST)));
    let mut p = lift(splat_f(EXP[0]));
    for c in &EXP[1..] {
        p = add_qv(mul_q(p, r), splat_f(*c));
    }
    let y = float(add_qv(add_q(mul_q(p, mul_q(r, r)), r), splat_f(1.0)));
    // The low bits of `shifted` are n: they go to the exponent.
    let scaled = add_w(y, shl_w(shifted, 23));
    // Without their signs, negative floats are ordered as their bits are; positive ones lie below all of them.
    where_gt_w(xor(x, splat(SIGN)), splat(LEAST.to_bits() ^ SIGN), zero(), scaled)
}

/// `1/d` for d in 1..=2, by Newton's iteration from the best line.
#[must_use]
#[inline(always)]
pub fn reciprocal(d: Q) -> Q {
    let mut y = add_qv(mul_q(d, lift(splat_f(-8.0 / 17.0))), splat_f(24.0 / 17.0));
    let minus = mul_q(d, lift(splat_f(-1.0)));
    for _ in 0..3 {
        let rest = add_qv(mul_q(minus, y), splat_f(1.0));
        y = add_q(y, mul_q(y, rest));
    }
    y
}

/// `1/(1 + e^−x)`, by the exponential of −|x| so that neither side overflows.
#[must_use]
#[inline(always)]
pub fn sigmoid(x: V) -> Q {
    let magnitude = or(x, splat(SIGN));
    let e = exp(magnitude);
    let inverse = reciprocal(add(e, splat_f(1.0)));
    let numerator = where_gt_w(zero(), x, e, splat_f(1.0));
    mul_q(lift(numerator), inverse)
}
