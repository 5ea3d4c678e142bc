//! The units on Hexagon: their words, and barriers where vector and matrix work meet in memory.

use super::{COPIES, Copy, Counters, DONE, Descriptor, LONGEST, Progress, RING};
use crate::matrix::layout::TILE_BYTES;
use crate::matrix::pad::Pad;
use estream_kernels_asm::{barrier, dma, hmx};

/// No rule is told here: silicon answers a broken one with a fault.
pub type Rule = core::convert::Infallible;

/// The matrix unit and the DMA engine of the calling thread, which holds the unit's lock and a power vote.
#[derive(Debug)]
pub struct Units {
    ring: [Descriptor; RING],
    progress: Progress,
    counters: Counters,
}

impl Units {
    /// The units; the scratchpad is wherever the pads are.
    #[must_use]
    pub const fn new(_bytes: usize) -> Self {
        Self {
            ring: [Descriptor::EMPTY; RING],
            progress: Progress { handed: 0, ended: 0, due: [0; 2] },
            counters: Counters { pairs: 0, tiles: 0, stores: 0, copies: 0 },
        }
    }

    /// Works on a pad from here on. Sequence numbers start over.
    pub fn begin(&mut self, _pad: Pad<'_>) {
        self.progress = Progress { handed: self.progress.handed, ended: self.progress.handed, due: [0; 2] };
    }

    /// Loads the scales and biases that stand at `block`.
    pub fn load_bias(&mut self, block: u32) {
        // SAFETY: the thread holds the unit; the block is written and stands in the scratchpad. The barrier puts its
        // stores before the load.
        unsafe {
            barrier::memory();
            hmx::load_bias(block);
        }
    }

    /// Clears the accumulators, and orders what vector threads wrote before the products that follow.
    pub fn clear(&mut self) {
        // SAFETY: the thread holds the unit.
        unsafe {
            barrier::memory();
            hmx::clear();
        }
    }

    /// Goes on with the accumulator as it is, and orders as [`Self::clear`] does.
    pub fn resume(&self) {
        barrier::memory();
    }

    /// Adds activation · weight over `tiles` tiles to the accumulator.
    #[inline(always)]
    pub fn multiply(&mut self, activation: u32, weight: u32, tiles: usize) {
        self.counters.pairs += 1;
        self.counters.tiles += tiles as u64;
        // SAFETY: the thread holds the unit; the layout keeps both chains in the scratchpad and inside a page, and the
        // executor's numbers keep writers away.
        unsafe { hmx::multiply(activation, weight, (tiles * TILE_BYTES) as u32 - 1) }
    }

    /// Stores the accumulator as a tile at `tile` and gives it up.
    #[inline(always)]
    pub fn store(&mut self, tile: u32) {
        self.counters.stores += 1;
        // SAFETY: as in `multiply`. The barrier puts the tile before the number that publishes it.
        unsafe {
            hmx::store(tile);
            barrier::memory();
        }
    }

    /// Begins to copy part `turn`.
    pub fn fetch<'b>(&mut self, turn: u32, copies: impl Iterator<Item = Copy<'b>>) {
        for (from, to) in copies.take(COPIES) {
            let bytes = from.len().min(LONGEST);
            let slot = Progress::slot(self.progress.handed);
            self.ring[slot] = Descriptor::linear(from.as_ptr().addr() as u32, to, bytes);
            let tail = self.descriptor(Progress::slot(self.progress.handed.wrapping_sub(1)));
            // SAFETY: the descriptor is written and stays until it has ended; its bytes stay while the run borrows them;
            // nobody reads the destination before the number that says it has come.
            unsafe { dma::link(tail, self.descriptor(slot)) };
            self.progress.handed += 1;
            self.counters.copies += 1;
        }
        self.progress.due[(turn % 2) as usize] = self.progress.handed;
    }

    /// Whether part `turn` has come; looks at the engine.
    pub fn arrived(&mut self, turn: u32) -> bool {
        // The engine's state is taken over at a poll, and no earlier. SAFETY: it is this thread's engine.
        let _ = unsafe { dma::poll() };
        while self.progress.ended < self.progress.handed {
            let control = &raw const self.ring[Progress::slot(self.progress.ended)].control;
            // SAFETY: a live word, which the engine writes behind the compiler's back.
            if unsafe { control.read_volatile() } & DONE == 0 {
                break;
            }
            self.progress.ended += 1;
        }
        self.progress.arrived(turn)
    }

    /// The first broken rule: none that is told.
    #[must_use]
    pub const fn broken(&self) -> Option<Rule> {
        None
    }

    /// What has been done.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    fn descriptor(&self, slot: usize) -> u32 {
        (&raw const self.ring[slot]).addr() as u32
    }
}
