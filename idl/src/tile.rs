//! The tile order: where weight (k, column) of a 32×32 tile stands, so that vector units need no shuffle.
//!
//! One order serves two machines. Hexagon's HVX turns a nibble vector into four HMX row-pair vectors with two `vlut16`;
//! dot-product units see in each 32-bit lane one column with four of its k's, and only the activations are permuted,
//! once. `k` counts rows of the tile (the contracted dimension), `column` its outputs; both run over `0..32`.

use crate::address::TILE;

/// Bytes of a tile's nibble plane: four vectors of 128 bytes.
pub const NIBBLE_BYTES: usize = 512;
/// Bytes of a tile's byte plane: eight vectors of 128 bytes.
pub const BYTE_BYTES: usize = 1024;
/// Bytes of one bit plane of a tile: one vector of 128 bytes.
pub const BIT_BYTES: usize = 128;

/// Where a nibble stands in its tile's 512-byte plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NibblePlace {
    /// Byte in the plane, `0..512`.
    pub byte: usize,
    /// Whether it is the high nibble of that byte.
    pub high: bool,
}

/// Nibble of weight (`k`, `column`).
///
/// Vector i = k / 8 holds at byte 2h: low = row pair 4i, high = row pair 4i+2; at byte 2h+1: low = 4i+1, high = 4i+3;
/// halfword h of row pair p is weight (k = 2p + (h & 1), column = h >> 1).
#[must_use]
pub const fn nibble(k: usize, column: usize) -> NibblePlace {
    let (vector, pair) = (k / 8, (k / 2) % 4);
    let halfword = 2 * column + (k & 1);
    NibblePlace { byte: vector * 128 + 2 * halfword + (pair & 1), high: pair >= 2 }
}

/// Byte of weight (`k`, `column`) in its tile's 1024-byte plane: vector i = k / 4, lane = column, and inside the lane
/// the k's 4i + {0, 2, 1, 3}.
#[must_use]
pub const fn byte(k: usize, column: usize) -> usize {
    let within = match k % 4 {
        1 => 2,
        2 => 1,
        other => other,
    };
    (k / 4) * 128 + column * 4 + within
}

/// Element (16- or 32-bit) of weight (`k`, `column`) in HMX order: row pairs of 64 elements, the pair's two k's of a
/// column side by side.
#[must_use]
pub const fn element(k: usize, column: usize) -> usize {
    (k / 2) * 64 + 2 * column + (k & 1)
}

/// Bit of weight (`k`, `column`) in a 128-byte bit plane, as (byte, bit). In lane `column` (32 bits, little-endian) bit n
/// belongs to the k whose nibble is number n of that lane over the tile's four nibble vectors: n = 8·vector +
/// 2·byte-in-lane + high.
#[must_use]
pub const fn bit(k: usize, column: usize) -> (usize, u32) {
    let place = nibble(k, column);
    let number = 8 * (place.byte / 128) + 2 * (place.byte % 4) + place.high as usize;
    (4 * column + number / 8, (number % 8) as u32)
}

/// Columns of the four 32-bit-lane k orders that kernels permute activations by: position j of the 8-byte group i
/// (low nibbles then high nibbles of vector i) multiplies `k = 8·i + LANE_ORDER[j]`.
pub const LANE_ORDER: [usize; 8] = [0, 2, 1, 3, 4, 6, 5, 7];

static_assertions::const_assert_eq!(TILE * TILE / 2, NIBBLE_BYTES);
static_assertions::const_assert_eq!(TILE * TILE, BYTE_BYTES);
static_assertions::const_assert_eq!(TILE * TILE / 8, BIT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_weight_has_its_own_place() {
        let all = || (0..TILE).flat_map(|k| (0..TILE).map(move |c| (k, c)));
        let nibbles: BTreeSet<_> = all().map(|(k, c)| (nibble(k, c).byte, nibble(k, c).high)).collect();
        let bytes: BTreeSet<_> = all().map(|(k, c)| byte(k, c)).collect();
        let elements: BTreeSet<_> = all().map(|(k, c)| element(k, c)).collect();
        let bits: BTreeSet<_> = all().map(|(k, c)| bit(k, c)).collect();
        assert_eq!([nibbles.len(), bytes.len(), elements.len(), bits.len()], [1024; 4]);
        assert!(bytes.iter().all(|&b| b < BYTE_BYTES) && nibbles.iter().all(|&(b, _)| b < NIBBLE_BYTES));
    }

    #[test]
    fn a_lane_is_one_column_in_the_order_the_dot_product_units_read() {
        for vector in 0..4 {
            for column in 0..TILE {
                for (j, &order) in LANE_ORDER.iter().enumerate() {
                    let place = nibble(8 * vector + order, column);
                    assert_eq!(place.byte, vector * 128 + column * 4 + j % 4);
                    assert_eq!(place.high, j >= 4);
                }
            }
        }
        assert_eq!((byte(0, 3), byte(2, 3), byte(1, 3), byte(3, 3)), (12, 13, 14, 15));
    }
}
