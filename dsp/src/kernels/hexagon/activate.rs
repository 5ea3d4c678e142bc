//! SwiGLU of output tiles, in halves: `h = silu(g)·u` between two products.
//!
//! Gate and up come raised by `2^s` (G = g·2^s, U = u·2^s), h goes out raised by `2^(2s + c)` ([`ACTIVATION_ROOM`]): it is
//! G·U·σ(g)·2^c, so only σ needs g itself. A half has eleven significant bits of g, and σ is asked for no more: |g| becomes
//! a whole number of 2^-11 by adding to the half's exponent, which saturates where σ no longer changes, and σ is a cubic
//! around the nearest of sixteen whole numbers with coefficients by `vlut16` (four tables, one register), evaluated in
//! fractions of 2^15. The product G·U is exact in f32, σ is rounded to a half, and h once more.
//!
//! The road not taken is the exponential and a reciprocal in f32 ([`super::float::sigmoid`]): 183 packets a vector of 64.
//!
//! # Bound
//! The share σ is within 2^-13 of the sigmoid of the half's g, for G of at least 2^-14. Smaller ones are no normal halves,
//! whose exponents cannot be added to: their g is taken as up to 2^(-15−s) more. Rows raised by less than [`LEAST_RAISE`]
//! are taken as if raised by that, which changes the share of such G alone. H is then within 2^(c−15)·|U|.
//!
//! # Packets
//! A vector of 64 takes 2 loads and 1 store, 2 packets; what binds is arithmetic. Seven products need both multipliers, two
//! lookups a pair of units each, and with five and a half other words of the shift unit, the loads and 14.5 words of any
//! unit they fill 40.5 places of units, of which a packet has four: 10.1 packets a vector. Below v79 the loop is written
//! by hand at 11 ([`steady`]) and runs through all row tiles of a share, because the compiler's comes to 12.5 and drains
//! after each tile, which is 6 more. Quadratics around twice as many nodes would save a product and cost two lookups, at
//! twice the error. A gate times σ as a half, rounded, times an up would save two products and round once more.

#[allow(unsafe_code)]
mod steady;

use super::decode::Tile;
use super::hvx::{
    V, add_h, add_uh, and, from_words, half_of_h, high_bytes, lookup_in, max_uh, mul_h, mul_hf, mul_q,
    narrow, sar_h, shl_h, shr_b, splat, splat_h, sub_uh, whole_h, xor, zero,
};
use super::tiles::{ACTIVATION_ROOM, Exponent, watch};

pub use steady::activate_tiles;

/// Binary places of |g| as a whole number.
const PLACES: i32 = 11;
/// Bits of the half that |g|·2^11 is held at: 31,728, or 15.49, so that the nearest node is one of sixteen.
const CEILING: u16 = 0x77bf;
/// What is added to a half's bits and taken off again, so that the sum saturates at [`CEILING`] and at 0.
const LIFT: u16 = u16::MAX - CEILING;
/// The least power of two that a gate is taken as raised by: the most that can be added to an exponent.
pub const LEAST_RAISE: i32 = PLACES - 29;
/// The largest such power: everything below has g as good as 0.
const MOST_RAISE: i32 = PLACES + 34;

/// σ(i + t/2) − ½ in units of 2^-15, less half a unit, as c0 + t·(c1 + t·(c2 + t·c3)) for t in −1..1, i in 0..16: fitted
/// to the rounding of [`mul_h`]. At most 2.4 units off, and never 2^14, so that σ stays below 1.
const COEFFICIENTS: [[i16; 16]; 4] = [
    [
        1, 7569, 12477, 14830, 15794, 16164, 16303, 16353, 16373, 16379, 16382, 16383, 16383, 16383, 16383,
        16383,
    ],
    [4100, 3221, 1721, 740, 290, 109, 40, 15, 5, 2, -1, 0, 0, 0, 0, 0],
    [-14, -361, -325, -170, -71, -27, -11, -3, -2, 0, 0, 0, 0, 0, 0, 0],
    [-74, -24, 25, 23, 10, 4, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0],
];

/// The four tables as [`lookup_in`] numbers them.
const TABLES: [u32; 32] = {
    let mut words = [0; 32];
    let mut at = 0;
    while at < 64 {
        let half = COEFFICIENTS[at / 16][at % 16].cast_unsigned() as u32;
        words[at % 32] |= half << (at / 32 * 16);
        at += 1;
    }
    words
};

/// What is added to the bits of a row pair's gates: a halfword for each row, as a word.
#[must_use]
pub fn gate_offsets(exponents: [Exponent; 2]) -> u32 {
    let [even, odd] = exponents.map(|Exponent(raise)| {
        let raise = raise.clamp(LEAST_RAISE, MOST_RAISE);
        ((PLACES - raise) * (1 << 10) + i32::from(LIFT)).cast_unsigned()
    });
    even | odd << 16
}

/// Vectors that are computed side by side.
pub const BLOCK: usize = 4;

/// σ(g) of two vectors as signed halfwords in units of 2^-15. `magnitudes` are |G|, `offsets` what
/// [`gate_offsets`] says of each lane's row.
#[inline(always)]
fn sigmoid(gates: [V; 2], magnitudes: [V; 2], offsets: [V; 2]) -> [V; 2] {
    let steps: [V; 2] =
        core::array::from_fn(|i| whole_h(sub_uh(add_uh(magnitudes[i], offsets[i]), splat_h(LIFT))));
    let [low, high] = steps.map(|step| add_h(step, splat_h(1 << (PLACES - 1))));
    let nodes = shr_b(high_bytes(low, high), (PLACES - 8) as u32);
    let tables = from_words(TABLES);
    let [c0, c1, c2, c3]: [[V; 2]; 4] = [0, 1, 2, 3].map(|number| lookup_in(nodes, tables, number).into());
    core::array::from_fn(|i| {
        let t = shl_h(steps[i], (16 - PLACES) as u32);
        let p = add_h(mul_h(c3[i], t), c2[i]);
        let p = add_h(mul_h(p, t), c1[i]);
        let p = add_h(mul_h(p, t), c0[i]);
        add_h(xor(p, sar_h(gates[i], 15)), splat_h(1 << 14))
    })
}

/// `silu(g)·u` of two row pairs, with the magnitudes of what went in and out added to `seen`.
#[inline(always)]
fn pair(gates: [V; 2], ups: [V; 2], offsets: [V; 2], seen: &mut V) -> [V; 2] {
    let magnitudes = gates.map(|gate| and(gate, splat(0x7fff_7fff)));
    let shares = sigmoid(gates, magnitudes, offsets);
    // 2^(c − 15), which takes shares to σ·2^c, is a normal half.
    let unit = splat_h((ACTIVATION_ROOM << 10) as u16);
    core::array::from_fn(|i| {
        let (product, share) = (mul_hf(gates[i], ups[i]), mul_hf(half_of_h(shares[i]), unit));
        let h = narrow(mul_q(product.0, share.0), mul_q(product.1, share.1));
        *seen = watch(watch(max_uh(*seen, magnitudes[i]), ups[i]), h);
        h
    })
}

/// `silu(g)·u` of blocks of row pairs. `offsets` are their [`gate_offsets`]. Returns the largest magnitudes of what went in
/// and came out, for [`super::tiles::saturated`].
///
/// # Panics
/// When there are not as many blocks of each.
#[must_use]
pub fn activate(
    gates: &[[V; BLOCK]],
    ups: &[[V; BLOCK]],
    offsets: &[[u32; BLOCK]],
    out: &mut [[V; BLOCK]],
) -> V {
    let count = out.len();
    assert!(gates.len() == count && ups.len() == count && offsets.len() == count, "blocks alike");
    if let Some(seen) = steady::blocks(gates, ups, offsets, out) {
        return seen;
    }
    let mut seen = zero();
    for (((gates, ups), offsets), out) in gates.iter().zip(ups).zip(offsets).zip(out) {
        let offsets = offsets.map(splat);
        let two = |i: usize, seen: &mut V| {
            pair([gates[i], gates[i + 1]], [ups[i], ups[i + 1]], [offsets[i], offsets[i + 1]], seen)
        };
        let ([h0, h1], [h2, h3]) = (two(0, &mut seen), two(2, &mut seen));
        *out = [h0, h1, h2, h3];
    }
    seen
}
