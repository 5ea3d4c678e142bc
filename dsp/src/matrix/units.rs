//! The matrix unit and the DMA engine of the thread that owns both.
//!
//! One module stands behind these names in a build: `hexagon` emits the words, `model` gives them to their software
//! models and remembers the first rule that was broken. What is common is here: the ring of descriptors.
//!
//! # The ring
//! Descriptors stand in a fixed ring and are handed over one behind the other (`dmlink`, which starts an idle engine), so
//! the engine ends them in order, and how many have ended is one number. A copy is linear, goes from memory to the
//! scratchpad and bypasses the cache on the scratchpad's side alone: the other side is what the host has just read, and is
//! coherent through the cache. A full ring is a caller's mistake: a part is at most [`COPIES`] copies, and two parts are
//! ever under way.

#[cfg(target_arch = "hexagon")]
mod hexagon;
#[cfg(not(target_arch = "hexagon"))]
mod model;

#[cfg(target_arch = "hexagon")]
pub use hexagon::{Rule, Units};
#[cfg(not(target_arch = "hexagon"))]
pub use model::{PAD_ADDRESS, Rule, Units};

/// Copies that a part comes in: a strip's planes.
pub const COPIES: usize = 5;
/// Descriptors of the ring: two parts under way, and one more that is being filled.
const RING: usize = 16;
/// Bits of a descriptor's second word: its end, bypass on the destination's side.
const DONE: u32 = 1 << 31;
const BYPASS_TO: u32 = 1 << 28;
/// The most bytes of a linear copy.
const LONGEST: usize = (1 << 24) - 1;

/// A linear descriptor, alone in its line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Descriptor {
    next: u32,
    control: u32,
    from: u32,
    to: u32,
}

impl Descriptor {
    const EMPTY: Self = Self { next: 0, control: DONE, from: 0, to: 0 };

    const fn linear(from: u32, to: u32, bytes: usize) -> Self {
        Self { next: 0, control: bytes as u32 | BYPASS_TO, from, to }
    }
}

/// One copy of a part: bytes of memory, and the scratchpad's address that they go to.
pub type Copy<'a> = (&'a [u8], u32);

/// How far the ring is: copies handed over, copies ended, and for the parts under way (by their parity) how many copies
/// had been handed over with them.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    handed: u32,
    ended: u32,
    due: [u32; 2],
}

impl Progress {
    const fn slot(number: u32) -> usize {
        number as usize % RING
    }

    const fn arrived(&self, turn: u32) -> bool {
        self.ended >= self.due[(turn % 2) as usize]
    }
}

/// What the units have done since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Fused multiplies.
    pub pairs: u64,
    /// Tiles multiplied: 32 · 32 · 32 multiply-adds each.
    pub tiles: u64,
    /// Output tiles stored.
    pub stores: u64,
    /// DMA descriptors.
    pub copies: u64,
}
