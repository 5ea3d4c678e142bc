//! The same without packets: natively, and from v79 on.

use super::{Factors, Q, Tile, TileBytes, V};
use crate::kernels::hexagon::decode::MAGNITUDE;
use crate::kernels::hexagon::hvx::{
    add_q, and, bits_to_bytes, half_of_h, lookup, max_uh, mul_hf, mul_q, narrow, or, shl_w, shr_b, shr_w,
    splat, splat_b, sub_b, widen, widen_b,
};

/// Nibbles under halves, with minima.
#[inline(always)]
pub(crate) fn nibbles_halves(table: V, codes: &[V; 4], scales: [V; 2], mins: [Q; 2], out: &mut Tile) {
    for (i, &q) in codes.iter().enumerate() {
        for (out, code) in out[4 * i..].iter_mut().zip(of_nibbles(table, q)) {
            let (even, odd) = mul_hf(code, scales[i / 2]);
            *out = narrow(add_q(even, mins[i / 2]), add_q(odd, mins[i / 2]));
        }
    }
}

/// Nibbles under floats; the larger magnitudes of `worst` and what was decoded.
#[inline(always)]
pub(crate) fn nibbles_floats(table: V, codes: &[V; 4], factors: Factors, out: &mut Tile, worst: V) -> V {
    for (i, &q) in codes.iter().enumerate() {
        for (out, code) in out[4 * i..].iter_mut().zip(of_nibbles(table, q)) {
            *out = floats(code, factors, i / 2);
        }
    }
    watch(out, worst)
}

/// Bytes under halves.
#[inline(always)]
pub(crate) fn bytes_halves(codes: &TileBytes, scales: [V; 2], out: &mut Tile) {
    for (i, &q) in codes.iter().enumerate() {
        for (out, code) in out[2 * i..].iter_mut().zip(of_bytes(q)) {
            let (even, odd) = mul_hf(code, scales[i / 4]);
            *out = narrow(even, odd);
        }
    }
}

/// Bytes under floats; the larger magnitudes of `worst` and what was decoded.
#[inline(always)]
pub(crate) fn bytes_floats(codes: &TileBytes, factors: Factors, out: &mut Tile, worst: V) -> V {
    for (i, &q) in codes.iter().enumerate() {
        for (out, code) in out[2 * i..].iter_mut().zip(of_bytes(q)) {
            *out = floats(code, factors, i / 4);
        }
    }
    watch(out, worst)
}

/// A tile's bytes of its nibbles and its bit planes, `bias` taken off each.
#[inline(always)]
pub(crate) fn assemble<const PLANES: usize>(
    codes: &[V; 4],
    planes: &[V; PLANES],
    bias: i8,
    bytes: &mut TileBytes,
) {
    let bias = splat_b(bias.cast_unsigned());
    for ((i, &q), bytes) in codes.iter().enumerate().zip(bytes.as_chunks_mut::<2>().0) {
        let mut low = and(q, splat_b(15));
        let mut high = shr_b(q, 4);
        for (b, &plane) in planes.iter().enumerate() {
            // Bits 8i to 8i + 7 of each lane, in all four bytes of it: bit 2b + h is that of byte b's nibble h.
            let byte = and(shr_w(plane, 8 * i as u32), splat(0xff));
            let two = or(byte, shl_w(byte, 8));
            let four = or(two, shl_w(two, 16));
            let value = 0x1010_1010 << b;
            low = or(low, bits_to_bytes(four, 0x4010_0401, value));
            high = or(high, bits_to_bytes(four, 0x8020_0802, value));
        }
        *bytes = [sub_b(low, bias), sub_b(high, bias)];
    }
}

#[inline(always)]
fn of_nibbles(table: V, q: V) -> [V; 4] {
    let ((a, b), (c, d)) = (lookup(q, table), lookup(shr_b(q, 4), table));
    [a, b, c, d]
}

#[inline(always)]
fn of_bytes(q: V) -> [V; 2] {
    let (a, b) = widen_b(q);
    [half_of_h(a), half_of_h(b)]
}

#[inline(always)]
fn floats(code: V, factors: Factors, sub: usize) -> V {
    let (even, odd) = widen(code);
    let (even, odd) = (mul_q(even, factors.scales[sub]), mul_q(odd, factors.scales[sub]));
    match factors.mins {
        Some(mins) => narrow(add_q(even, mins[sub]), add_q(odd, mins[sub])),
        None => narrow(even, odd),
    }
}

#[inline(always)]
fn watch(out: &Tile, worst: V) -> V {
    out.iter().fold(worst, |worst, &v| max_uh(worst, and(v, splat(MAGNITUDE))))
}
