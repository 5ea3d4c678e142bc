//! Rows to digits.
//!
//! A block whose largest magnitude is below [`LEAST`] counts as zero (its scale's inverse would overflow); one that holds
//! an infinity or no number gets a scale that is no number, so that its row's outputs show it.

use super::super::LANES;
use super::super::lanes::Lanes;
use super::{Dot, HALF, OFFSET};
use estream_idl::address::TILE;
use zerocopy::IntoBytes;

/// 2^−100.
const LEAST: f32 = f32::from_bits((127 - 100) << 23);
/// 1.5·2^23: a sum with it is rounded to a whole number (ties to even), which then stands in its low bits.
const ROUND: f32 = 12_582_912.0;

/// See [`super::super::Products::pack`].
#[inline(always)]
pub(in super::super) fn pack<D: Dot<QUAD>, const QUAD: usize>(d: D, x: &[f32], out: &mut [f32]) {
    let words = 2 * QUAD + super::TAIL;
    assert!(out.len() == x.len().div_ceil(TILE) * words, "a block of words for each 32 inputs");
    let (whole, tail) = x.as_chunks::<TILE>();
    let (blocks, last) = out.split_at_mut(whole.len() * words);
    for (x, out) in whole.iter().zip(blocks.chunks_exact_mut(words)) {
        block(d, x, out);
    }
    if !tail.is_empty() {
        let mut x = [0.0; TILE];
        x[..tail.len()].copy_from_slice(tail);
        block(d, &x, last);
    }
}

#[inline(always)]
fn block<D: Dot<QUAD>, const QUAD: usize>(d: D, x: &[f32; TILE], out: &mut [f32]) {
    let l = d.eight();
    let eights = x.as_chunks::<LANES>().0;
    let (mut largest, mut poison) = (l.splat(0.0), l.splat(0.0));
    for eight in eights {
        let x = l.load(eight);
        largest = l.max(l.bits_to_float(l.and(l.float_to_bits(x), 0x7FFF_FFFF)), largest);
        // Zero for a number; infinities and what is no number stay.
        poison = l.mul_add(x, l.splat(0.0), poison);
    }
    let (mut lanes, mut poisons) = ([0.0; LANES], [0.0; LANES]);
    l.store(largest, &mut lanes);
    l.store(poison, &mut poisons);
    let (mut most, mut sound) = (0.0, true);
    for (lane, poison) in lanes.into_iter().zip(poisons) {
        most = if lane > most { lane } else { most };
        sound &= poison == 0.0;
    }
    let (scale, inverse) = if !sound {
        (f32::NAN, 0.0)
    } else if most < LEAST {
        (0.0, 0.0)
    } else {
        (most / D::MOST as f32, D::MOST as f32 / most)
    };
    let mut q = [0i16; TILE];
    let (inverse, round) = (l.splat(inverse), l.splat(ROUND));
    for (eight, q) in eights.iter().zip(q.as_chunks_mut::<LANES>().0) {
        let mut rounded = [0.0; LANES];
        // Two roundings on every processor: no multiply-add here.
        l.store(l.add(l.mul(l.load(eight), inverse), round), &mut rounded);
        for (q, value) in q.iter_mut().zip(rounded) {
            *q = value.to_bits() as i16;
        }
    }
    let [a, b] = [0, 1].map(|half| q[half * HALF..][..HALF].iter().map(|&q| i32::from(q)).sum::<i32>());
    let sums = [a, b, a + b];
    let (digits, tail) = out.split_at_mut(2 * QUAD);
    digits.as_mut_bytes().copy_from_slice(d.arrange(&q).as_flattened());
    let offsets = sums.map(|sum| f32::from_bits((-OFFSET * sum).cast_unsigned()));
    tail[0] = scale;
    tail[1..4].copy_from_slice(&offsets);
    // Below 2^24, hence exact.
    tail[4..].copy_from_slice(&sums.map(|sum| sum as f32));
}
