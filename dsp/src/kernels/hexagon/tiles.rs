//! Row pairs: f32 rows to fp16 tiles and back, and what happens between two products.
//!
//! Vector p of a tile holds rows 2p and 2p + 1 in turns, which is what the unit makes of two vectors of f32 and takes
//! apart into two: nothing is shuffled. A row carries its own exponent: `z = x · 2^s`, with s from that row alone
//! ([`Exponent::of`]), so that the largest element lies in 1..2 whatever the row's size, and a product has the range of
//! halves on both sides. What is stored after a product is `out · 2^s`; the activation's is `h · 2^(2s + c)`
//! ([`ACTIVATION_ROOM`]), since |silu(g)·u| ≤ |g|·|u|.
//!
//! Loads and stores bound these: gather 2 loads and 1 store a vector of 64 elements, scatter 1 and 2 loads and 2 stores;
//! [`swiglu`] is bound by its exponential.

use super::decode::OVERFLOW;
use super::float::sigmoid;
use super::hvx::{
    V, add_qv, and, float, largest_uh, largest_w, lift, max_uh, max_w, mul, mul_q, narrow, splat, splat_f,
    widen, zero,
};

/// Exponents beyond this are clamped: twice it, and the room, still are exponents of f32.
const REACH: i32 = 58;
/// c: the power of two that activations are raised by. |silu(g)·u| is rarely near its bound, so that plain halves would
/// lose small values; 2^4 leaves |G·U| up to 2^12 before anything saturates.
pub const ACTIVATION_ROOM: i32 = 4;
/// Bits of an f32 but its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;
/// The exponent field of infinities and what is no number.
const NOT_FINITE: u32 = 255;

/// The power of two that a row is raised by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exponent(pub i32);

impl Exponent {
    /// The exponent of a row; `None` where an element is not finite.
    #[must_use]
    pub fn of(row: &[V]) -> Option<Self> {
        let mut largest = zero();
        for &v in row {
            largest = max_w(largest, and(v, splat(MAGNITUDE)));
        }
        Self::of_magnitude(largest_w(largest))
    }

    /// The exponent for elements up to the f32 of these bits, without a sign.
    #[must_use]
    pub const fn of_magnitude(bits: u32) -> Option<Self> {
        let field = bits >> 23;
        if field == NOT_FINITE {
            return None;
        }
        let raise = if bits == 0 { 0 } else { 127 - field as i32 };
        let raise = if raise < -REACH { -REACH } else { raise };
        Some(Self(if raise > REACH { REACH } else { raise }))
    }

    /// `2^(times · s + more)` as an f32.
    #[must_use]
    pub const fn power(self, times: i32, more: i32) -> f32 {
        f32::from_bits(((127 + times * self.0 + more) as u32) << 23)
    }
}

/// Two rows' 32 inputs as a vector of an activation tile.
#[must_use]
#[inline(always)]
pub fn pack(rows: [V; 2], powers: [V; 2]) -> V {
    narrow(mul(rows[0], powers[0]), mul(rows[1], powers[1]))
}

/// The larger magnitudes of what has been seen and a vector of halves.
#[must_use]
#[inline(always)]
pub fn watch(seen: V, halves: V) -> V {
    max_uh(seen, and(halves, splat(0x7fff_7fff)))
}

/// Whether any half seen by [`watch`] is no finite number: the matrix unit stores such patterns where it saturates.
#[must_use]
#[inline(always)]
pub fn saturated(seen: V) -> bool {
    largest_uh(seen) >= OVERFLOW
}

/// How many halves of `halves` are no finite numbers.
#[must_use]
pub fn count_saturated(halves: &[V]) -> u32 {
    let over = |half: u32| u32::from(half & 0x7fff >= u32::from(OVERFLOW));
    halves.iter().flat_map(|&v| super::hvx::to_words(v)).map(|word| over(word) + over(word >> 16)).sum()
}

/// `silu(g)·u` of one row pair, raised by `2^(2s + c)` where `gate` and `up` are raised by `2^s`: G·U·σ(g)·2^c. `falls`
/// are 2^−s of the two rows.
#[must_use]
#[inline(always)]
pub fn swiglu(gate: V, up: V, falls: [V; 2]) -> V {
    let room = lift(splat_f(Exponent(0).power(0, ACTIVATION_ROOM)));
    let (g0, g1) = widen(gate);
    let (u0, u1) = widen(up);
    let half = |g, u, fall: V| {
        let share = sigmoid(float(mul_q(g, lift(fall))));
        mul_q(mul_q(mul_q(g, room), u), share)
    };
    narrow(half(g0, u0, falls[0]), half(g1, u1, falls[1]))
}

/// The two rows of an output vector, each times its factor.
#[must_use]
#[inline(always)]
pub fn unpack(halves: V, factors: [V; 2]) -> [V; 2] {
    let (a, b) = widen(halves);
    [float(mul_q(a, lift(factors[0]))), float(mul_q(b, lift(factors[1])))]
}

/// The two rows of an output vector, each times its factor, added to `rows`.
#[must_use]
#[inline(always)]
pub fn add(halves: V, factors: [V; 2], rows: [V; 2]) -> [V; 2] {
    let (a, b) = widen(halves);
    [float(add_qv(mul_q(a, lift(factors[0])), rows[0])), float(add_qv(mul_q(b, lift(factors[1])), rows[1]))]
}
