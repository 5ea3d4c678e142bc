//! Pages, segments and addresses: how the two sides name shared memory without a pointer.

use serde::{Deserialize, Serialize};

/// Bytes of a page: the unit of shared addresses, of O_DIRECT transfers and of the pack's extents.
pub const PAGE: usize = 4096;

/// Columns and rows of a tile (`design` word: tile), and the step in which rows of activations are cut.
pub const TILE: usize = 32;

/// `bytes` in whole pages, rounded up.
#[must_use]
pub const fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE as u64)
}

/// A named piece of the memory that both sides see. The order is the order in the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Segment {
    /// Rings, doorbells, heartbeat. Nothing in it is trusted later.
    Control = 0,
    /// Token ids and positions in, results and logits panels out.
    Io = 1,
    /// Every weight that is not a routed expert, and the head; written by the host only.
    Dense = 2,
    /// Staging for pages of the embedding; written by the host only.
    Embed = 3,
    /// The banks, and nothing else; written by the host only.
    Arena = 4,
}

impl Segment {
    /// All segments, in mapping order.
    pub const ALL: [Self; 5] = [Self::Control, Self::Io, Self::Dense, Self::Embed, Self::Arena];

    /// The segment with this wire number, or `None` for a number no version has used.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Control),
            1 => Some(Self::Io),
            2 => Some(Self::Dense),
            3 => Some(Self::Embed),
            4 => Some(Self::Arena),
            _ => None,
        }
    }
}

/// Pages of each segment, indexed by [`Segment`] in mapping order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentPages(pub [u32; 5]);

impl SegmentPages {
    /// Pages of `segment`.
    #[must_use]
    pub const fn of(&self, segment: Segment) -> u32 {
        self.0[segment as usize]
    }

    /// Bytes of `segment`.
    #[must_use]
    pub const fn bytes_of(&self, segment: Segment) -> u64 {
        self.of(segment) as u64 * PAGE as u64
    }

    /// Bytes of all segments together.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.0.iter().map(|&pages| u64::from(pages) * PAGE as u64).sum()
    }
}
