//! Element-wise functions and reductions over one row, a vector at a time: element i belongs to lane i mod 32, tails
//! included. A tail's missing lanes hold the operation's neutral element, so a row's result depends on its values and its
//! length alone.

use super::float::exp;
use super::hvx::{
    self, FLOATS, Q, V, add_q, add_qv, deal_w, float, interleave_w, lift, load, max_sf, mul, mul_q, splat,
    splat_f, sub, xor, zero,
};
use crate::kernels::Chain;
use crate::kernels::math::rsqrt;
use crate::view::{Block, Rows};
use estream_idl::recipe::RopePairs;

/// The vectors of a row: whole ones, then the tail filled up with `fill`.
#[inline(always)]
fn vectors(x: &[f32], fill: f32) -> impl Iterator<Item = V> {
    let (whole, tail) = x.as_chunks::<FLOATS>();
    whole.iter().map(load).chain((!tail.is_empty()).then(|| load_tail(tail, fill)))
}

#[inline(always)]
fn load_tail(tail: &[f32], fill: f32) -> V {
    let mut full = [fill; FLOATS];
    full[..tail.len()].copy_from_slice(tail);
    load(&full)
}

/// Writes `vectors` over a row, as far as it goes.
#[inline(always)]
fn write(out: &mut [f32], mut vectors: impl Iterator<Item = V>) {
    let (whole, tail) = out.as_chunks_mut::<FLOATS>();
    for (out, v) in whole.iter_mut().zip(&mut vectors) {
        hvx::store(v, out);
    }
    if let (false, Some(v)) = (tail.is_empty(), vectors.next()) {
        let mut full = [0.0; FLOATS];
        hvx::store(v, &mut full);
        tail.copy_from_slice(&full[..tail.len()]);
    }
}

/// Rewrites a row in place, vector by vector.
#[inline(always)]
fn map(x: &mut [f32], fill: f32, mut f: impl FnMut(V) -> V) {
    let (whole, tail) = x.as_chunks_mut::<FLOATS>();
    for eight in whole {
        hvx::store(f(load(eight)), eight);
    }
    if !tail.is_empty() {
        let mut full = [0.0; FLOATS];
        hvx::store(f(load_tail(tail, fill)), &mut full);
        tail.copy_from_slice(&full[..tail.len()]);
    }
}

/// See [`crate::kernels::Kernels::rms_norm`].
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rows of one length");
    let squares = vectors(x, 0.0).fold(lift(zero()), |sum, v| add_q(sum, mul(v, v)));
    let factor = splat_f(rsqrt(hvx::sum(float(squares)) / x.len() as f32 + epsilon));
    let scaled = |x, w| float(mul_q(mul(x, factor), lift(w)));
    let ((x, x_tail), (weight, weight_tail)) = (x.as_chunks::<FLOATS>(), weight.as_chunks::<FLOATS>());
    let (out, out_tail) = out.as_chunks_mut::<FLOATS>();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        hvx::store(scaled(load(x), load(weight)), out);
    }
    let last = scaled(load_tail(x_tail, 0.0), load_tail(weight_tail, 0.0));
    write(out_tail, core::iter::once(last));
}

/// See [`crate::kernels::Kernels::swiglu`].
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == up.len() && gate.len() == out.len(), "rows of one length");
    let both = vectors(gate, 0.0).zip(vectors(up, 0.0));
    write(out, both.map(|(g, u)| float(mul_q(mul_q(lift(g), super::float::sigmoid(g)), lift(u)))));
}

/// See [`crate::kernels::Kernels::add_scaled`].
pub fn add_scaled(factor: f32, x: &[f32], y: &mut [f32]) {
    assert!(x.len() == y.len(), "rows of one length");
    let factor = splat_f(factor);
    let added = |x, y| float(add_qv(mul(factor, x), y));
    let ((x, x_tail), (y, y_tail)) = (x.as_chunks::<FLOATS>(), y.as_chunks_mut::<FLOATS>());
    for (y, x) in y.iter_mut().zip(x) {
        hvx::store(added(load(x), load(y)), y);
    }
    let last = added(load_tail(x_tail, 0.0), load_tail(y_tail, 0.0));
    write(y_tail, core::iter::once(last));
}

/// See [`crate::kernels::Kernels::scale`].
pub fn scale(factor: f32, x: &mut [f32]) {
    let factor = splat_f(factor);
    map(x, 0.0, |x| float(mul(factor, x)));
}

/// See [`crate::kernels::Kernels::rotate`].
pub fn rotate(pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert!(cos.len() == sin.len() && head.len() >= 2 * cos.len(), "a cosine and a sine a pair");
    let ((cos, cos_tail), (sin, sin_tail)) = (cos.as_chunks::<FLOATS>(), sin.as_chunks::<FLOATS>());
    let whole = cos.len() * FLOATS;
    let angles = cos.iter().zip(sin).map(|(cos, sin)| (load(cos), load(sin)));
    match pairs {
        RopePairs::Halves => {
            let (first, rest) = head.split_at_mut(whole + cos_tail.len());
            let second = &mut rest[..first.len()];
            let ((a, a_tail), (b, b_tail)) =
                (first.as_chunks_mut::<FLOATS>(), second.as_chunks_mut::<FLOATS>());
            for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(angles) {
                let turned = turn(load(a), load(b), cos, sin);
                hvx::store(turned.0, a);
                hvx::store(turned.1, b);
            }
            if !a_tail.is_empty() {
                let (cos, sin) = (load_tail(cos_tail, 0.0), load_tail(sin_tail, 0.0));
                let turned = turn(load_tail(a_tail, 0.0), load_tail(b_tail, 0.0), cos, sin);
                write(a_tail, core::iter::once(turned.0));
                write(b_tail, core::iter::once(turned.1));
            }
        }
        RopePairs::Adjacent => {
            let (head, tail) = head[..2 * (whole + cos_tail.len())].split_at_mut(2 * whole);
            let (twos, _) = head.as_chunks_mut::<FLOATS>().0.as_chunks_mut::<2>();
            for ([low, high], (cos, sin)) in twos.iter_mut().zip(angles) {
                let (a, b) = deal_w(load(low), load(high));
                let turned = turn(a, b, cos, sin);
                let turned = interleave_w(turned.0, turned.1);
                hvx::store(turned.0, low);
                hvx::store(turned.1, high);
            }
            if !tail.is_empty() {
                let (low, high) = tail.split_at(tail.len().min(FLOATS));
                let (a, b) = deal_w(load_tail(low, 0.0), load_tail(high, 0.0));
                let turned = turn(a, b, load_tail(cos_tail, 0.0), load_tail(sin_tail, 0.0));
                let (low, high) = interleave_w(turned.0, turned.1);
                write(tail, [low, high].into_iter());
            }
        }
    }
}

#[inline(always)]
fn turn(a: V, b: V, cos: V, sin: V) -> (V, V) {
    let minus = xor(sin, splat(1 << 31));
    (float(add_q(mul(a, cos), mul(b, minus))), float(add_q(mul(a, sin), mul(b, cos))))
}

/// See [`crate::kernels::Kernels::max`].
#[must_use]
pub fn max(x: &[f32]) -> f32 {
    hvx::largest_sf(vectors(x, f32::NEG_INFINITY).fold(splat_f(f32::NEG_INFINITY), max_sf))
}

/// See [`crate::kernels::Kernels::exp_sum`].
#[must_use]
pub fn exp_sum(x: &mut [f32], max: f32) -> f32 {
    let (largest, mut total) = (splat_f(max), lift(zero()));
    // A tail's missing lanes are too small for an exponential above 0.
    map(x, f32::MIN, |v| {
        let e = exp(float(sub(v, largest)));
        total = add_qv(total, e);
        e
    });
    hvx::sum(float(total))
}

/// See [`crate::kernels::Kernels::sum_exp`]: the bits of [`exp_sum`].
#[must_use]
pub fn sum_exp(x: &[f32], max: f32) -> f32 {
    let largest = splat_f(max);
    let total =
        vectors(x, f32::MIN).fold(lift(zero()), |total, v| add_qv(total, exp(float(sub(v, largest)))));
    hvx::sum(float(total))
}

/// Rows whose chains are carried side by side: their sums and one row of weights stay in registers.
const ROWS: usize = 4;

/// See [`crate::kernels::Kernels::multiply`]: every output element is one chain over ascending k in the unit's format,
/// which rests in the output as f32 between two calls.
pub fn multiply(x: Rows<'_>, weights: &[f32], mut out: Block<'_>, chain: Chain) {
    let (weights, rest) = weights.as_chunks::<FLOATS>();
    assert!(
        rest.is_empty() && out.columns() <= FLOATS && x.rows == out.rows(),
        "rows of 32 columns, in and out alike"
    );
    for first in (0..x.rows).step_by(ROWS) {
        let count = ROWS.min(x.rows - first);
        let mut sums: [Q; ROWS] = [lift(zero()); ROWS];
        if chain == Chain::Continue {
            for (row, sum) in sums.iter_mut().take(count).enumerate() {
                *sum = lift(load_tail(out.row(first + row), 0.0));
            }
        }
        for (k, weights) in weights.iter().enumerate() {
            let weights = load(weights);
            for (row, sum) in sums.iter_mut().take(count).enumerate() {
                *sum = add_q(*sum, mul(splat_f(x.row(first + row)[k]), weights));
            }
        }
        for (row, &sum) in sums.iter().take(count).enumerate() {
            // The chain goes through f32 at a fixed place only: where a part of k ends.
            write(out.row(first + row), core::iter::once(float(sum)));
        }
    }
}

/// Rows of a short convolution, as [`crate::convolution::row`] defines them: `gates` are rows `[B | C | X]`, `first` is the
/// block's first token, `position` a token's place in its request, `kernel` the taps of each channel.
///
/// A channel's taps lie together, so that a lane's coefficient is fetched alone: once for all rows of the block.
pub fn convolve(
    gates: Rows<'_>,
    first: usize,
    position: &dyn Fn(usize) -> usize,
    kernel: &[f32],
    taps: usize,
    out: &mut Block<'_>,
) {
    let width = out.columns();
    for channel in (0..width).step_by(FLOATS) {
        let count = FLOATS.min(width - channel);
        let channels = channel..channel + count;
        for row in 0..out.rows() {
            out.row(row)[channels.clone()].fill(0.0);
        }
        for tap in 0..taps {
            let mut coefficients = [0.0; FLOATS];
            for (lane, coefficient) in coefficients.iter_mut().take(count).enumerate() {
                *coefficient = kernel[(channel + lane) * taps + tap];
            }
            let coefficients = lift(load(&coefficients));
            for row in 0..out.rows() {
                let token = first + row;
                // Nothing stands before a request's first token.
                if position(token) + tap + 1 < taps {
                    continue;
                }
                let source = gates.row(token + tap + 1 - taps);
                let part = |from: usize| load_tail(&source[from + channel..][..count], 0.0);
                let term = mul_q(coefficients, mul(part(0), part(2 * width)));
                let out = &mut out.row(row)[channels.clone()];
                let sum = add_qv(term, load_tail(out, 0.0));
                write(out, core::iter::once(float(sum)));
            }
        }
        for row in 0..out.rows() {
            let gate = load_tail(&gates.row(first + row)[width + channel..][..count], 0.0);
            let out = &mut out.row(row)[channels.clone()];
            let gated = mul(load_tail(out, 0.0), gate);
            write(out, core::iter::once(float(gated)));
        }
    }
}
