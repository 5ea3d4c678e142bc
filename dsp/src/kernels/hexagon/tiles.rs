//! Row pairs: f32 rows to fp16 tiles, and what all users of tiles share.
//!
//! Vector p of a tile holds rows 2p and 2p + 1 in turns, which is what the unit makes of two vectors of f32 and takes
//! apart into two: nothing is shuffled. A row carries its own exponent: `z = x · 2^s`, with s from that row alone
//! ([`Exponent::of`]), so that the largest element lies in 1..2 whatever the row's size, and a product has the range of
//! halves on both sides. What is stored after a product is `out · 2^s`; the activation's is `h · 2^(2s + c)`
//! ([`ACTIVATION_ROOM`]), since |silu(g)·u| ≤ |g|·|u|.

use super::decode::OVERFLOW;
use super::gather::largest;
use super::hvx::{V, and, largest_uh, largest_w, max_uh, mul, narrow, splat};

/// Exponents beyond this are clamped: twice it, and the room, still are exponents of f32.
const REACH: i32 = 58;
/// c: the power of two that activations are raised by. |silu(g)·u| is rarely near its bound, so that plain halves would
/// lose small values; 2^4 leaves |G·U| up to 2^12 before anything saturates.
pub const ACTIVATION_ROOM: i32 = 4;
/// The exponent field of infinities and what is no number.
const NOT_FINITE: u32 = 255;

/// The power of two that a row is raised by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Exponent(pub i32);

impl Exponent {
    /// The exponent of a row; `None` where an element is not finite.
    #[must_use]
    pub fn of(row: &[V]) -> Option<Self> {
        Self::of_magnitude(largest_w(largest(row)))
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
