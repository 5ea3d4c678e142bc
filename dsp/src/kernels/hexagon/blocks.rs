//! One tile of a codec that is more than a table lookup and a product: its packets by hand below v79.
//!
//! The compiler orders such a tile's instructions well and overlaps none of it: it takes two to three times the packets that
//! the shift unit, which lookups, conversions, sums and roundings all need, or the multipliers bind it to. Here one row
//! pair's sums and its rounding run beside the products of the next, so that a pair takes three packets (of bytes without
//! minima two under halves, three under floats) and a nibble vector's two lookups one each. A tile begins and ends by
//! itself: that costs a packet or three, and leaves scales, minima and what is read to the caller, who has the compiler
//! place them.
//!
//! Elsewhere there are no such packets, and the same arithmetic in the same order makes the same bits.

use super::decode::Tile;
use super::hvx::{Q, V};

/// A tile's bytes, in the order of [`estream_idl::tile::byte`].
pub(super) type TileBytes = [V; 8];

/// What a tile's two halves of k are under in f32: scales, and minima where there are some.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub scales: [Q; 2],
    pub mins: Option<[Q; 2]>,
}

#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
#[macro_use]
mod words;

#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
mod bytes;
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
mod nibbles;
#[cfg(any(not(target_arch = "hexagon"), target_feature = "hvxv79"))]
mod plain;

#[cfg(any(not(target_arch = "hexagon"), target_feature = "hvxv79"))]
pub(super) use plain::{assemble, bytes_floats, bytes_halves, nibbles_floats, nibbles_halves};
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
pub(super) use {
    bytes::{assemble, bytes_floats, bytes_halves},
    nibbles::{nibbles_floats, nibbles_halves},
};
