//! Element-wise functions and reductions over one row.
//!
//! Element i belongs to lane i mod 8, tails included: missing lanes hold the operation's neutral element, so a row's
//! result depends on its values and its length alone. Most rows have no tail, and a strip's 32 columns are over before an
//! empty one would be.

use super::LANES;
use super::lanes::{Lanes, load_tail, store_tail, sum};
use super::math::{exp, rsqrt, silu};
use estream_idl::recipe::RopePairs;

/// See [`super::Kernels::rms_norm`].
#[inline(always)]
pub(super) fn rms_norm<L: Lanes>(l: L, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rows of one length");
    let (eights, tail) = x.as_chunks::<LANES>();
    let mut squares = l.splat(0.0);
    for eight in eights {
        let v = l.load(eight);
        squares = l.mul_add(v, v, squares);
    }
    let v = load_tail(l, tail, 0.0);
    squares = l.mul_add(v, v, squares);
    let factor = l.splat(rsqrt(sum(l, squares) / x.len() as f32 + epsilon));

    let (weights, weight_tail) = weight.as_chunks::<LANES>();
    let (outs, out_tail) = out.as_chunks_mut::<LANES>();
    for ((x, weight), out) in eights.iter().zip(weights).zip(outs) {
        l.store(l.mul(l.mul(l.load(x), factor), l.load(weight)), out);
    }
    if !tail.is_empty() {
        let weight = load_tail(l, weight_tail, 0.0);
        store_tail(l, l.mul(l.mul(v, factor), weight), out_tail);
    }
}

/// See [`super::Kernels::swiglu`].
#[inline(always)]
pub(super) fn swiglu<L: Lanes>(l: L, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == up.len() && gate.len() == out.len(), "rows of one length");
    let (gates, gate_tail) = gate.as_chunks::<LANES>();
    let (ups, up_tail) = up.as_chunks::<LANES>();
    let (outs, out_tail) = out.as_chunks_mut::<LANES>();
    for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
        l.store(l.mul(silu(l, l.load(gate)), l.load(up)), out);
    }
    if !gate_tail.is_empty() {
        let (gate, up) = (load_tail(l, gate_tail, 0.0), load_tail(l, up_tail, 0.0));
        store_tail(l, l.mul(silu(l, gate), up), out_tail);
    }
}

/// See [`super::Kernels::add_scaled`].
#[inline(always)]
pub(super) fn add_scaled<L: Lanes>(l: L, factor: f32, x: &[f32], y: &mut [f32]) {
    assert!(x.len() == y.len(), "rows of one length");
    let factor = l.splat(factor);
    let (xs, x_tail) = x.as_chunks::<LANES>();
    let (ys, y_tail) = y.as_chunks_mut::<LANES>();
    for (x, y) in xs.iter().zip(ys) {
        l.store(l.mul_add(factor, l.load(x), l.load(y)), y);
    }
    if !x_tail.is_empty() {
        let (x, y) = (load_tail(l, x_tail, 0.0), load_tail(l, y_tail, 0.0));
        store_tail(l, l.mul_add(factor, x, y), y_tail);
    }
}

/// See [`super::Kernels::scale`].
#[inline(always)]
pub(super) fn scale<L: Lanes>(l: L, factor: f32, x: &mut [f32]) {
    let factor = l.splat(factor);
    let (xs, tail) = x.as_chunks_mut::<LANES>();
    for x in xs {
        l.store(l.mul(factor, l.load(x)), x);
    }
    if !tail.is_empty() {
        store_tail(l, l.mul(factor, load_tail(l, tail, 0.0)), tail);
    }
}

/// See [`super::Kernels::rotate`]. Products are rounded before they are subtracted or added, on every backend.
#[inline(always)]
pub(super) fn rotate<L: Lanes>(l: L, pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert!(cos.len() == sin.len() && head.len() >= 2 * cos.len(), "a cosine and a sine a pair");
    match pairs {
        RopePairs::Halves => {
            let (first, rest) = head.split_at_mut(cos.len());
            let second = &mut rest[..cos.len()];
            let (cos, cos_tail) = cos.as_chunks::<LANES>();
            let (sin, sin_tail) = sin.as_chunks::<LANES>();
            let (a, a_tail) = first.as_chunks_mut::<LANES>();
            let (b, b_tail) = second.as_chunks_mut::<LANES>();
            for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                let turned = turn(l, l.load(a), l.load(b), l.load(cos), l.load(sin));
                l.store(turned.0, a);
                l.store(turned.1, b);
            }
            if !cos_tail.is_empty() {
                let (cos, sin) = (load_tail(l, cos_tail, 0.0), load_tail(l, sin_tail, 0.0));
                let turned = turn(l, load_tail(l, a_tail, 0.0), load_tail(l, b_tail, 0.0), cos, sin);
                store_tail(l, turned.0, a_tail);
                store_tail(l, turned.1, b_tail);
            }
        }
        RopePairs::Adjacent => {
            for ((pair, &cos), &sin) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                *pair = [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos];
            }
        }
    }
}

#[inline(always)]
fn turn<L: Lanes>(l: L, a: L::F, b: L::F, cos: L::F, sin: L::F) -> (L::F, L::F) {
    (l.sub(l.mul(a, cos), l.mul(b, sin)), l.add(l.mul(a, sin), l.mul(b, cos)))
}

/// See [`super::Kernels::max`]. A NaN may be passed over: the sums of exponentials show it.
#[inline(always)]
pub(super) fn max<L: Lanes>(l: L, x: &[f32]) -> f32 {
    let (eights, tail) = x.as_chunks::<LANES>();
    let mut largest = load_tail(l, tail, f32::NEG_INFINITY);
    for eight in eights {
        largest = l.max(l.load(eight), largest);
    }
    let mut lanes = [0.0; LANES];
    l.store(largest, &mut lanes);
    let mut largest = f32::NEG_INFINITY;
    for lane in lanes {
        largest = if lane > largest { lane } else { largest };
    }
    largest
}

/// See [`super::Kernels::exp_sum`].
#[inline(always)]
pub(super) fn exp_sum<L: Lanes>(l: L, x: &mut [f32], max: f32) -> f32 {
    let max = l.splat(max);
    let (eights, tail) = x.as_chunks_mut::<LANES>();
    let mut total = l.splat(0.0);
    for eight in eights {
        let e = exp(l, l.sub(l.load(eight), max));
        l.store(e, eight);
        total = l.add(total, e);
    }
    if !tail.is_empty() {
        let e = exp(l, l.sub(load_tail(l, tail, f32::NEG_INFINITY), max));
        store_tail(l, e, tail);
        total = l.add(total, e);
    }
    sum(l, total)
}

/// See [`super::Kernels::sum_exp`]: the bits of [`exp_sum`].
#[inline(always)]
pub(super) fn sum_exp<L: Lanes>(l: L, x: &[f32], max: f32) -> f32 {
    let max = l.splat(max);
    let (eights, tail) = x.as_chunks::<LANES>();
    let mut total = l.splat(0.0);
    for eight in eights {
        total = l.add(total, exp(l, l.sub(l.load(eight), max)));
    }
    if !tail.is_empty() {
        total = l.add(total, exp(l, l.sub(load_tail(l, tail, f32::NEG_INFINITY), max)));
    }
    sum(l, total)
}
