//! The units natively: their software models over the pad and over windows on whatever is copied from.
//!
//! The models see 32-bit addresses: the pad stands at [`PAD_ADDRESS`], the ring of descriptors at its own, and each
//! descriptor's source in a window of its own. The first broken rule is kept and everything after it is skipped, so that
//! a run comes to its end and the failure has a name.

use super::{COPIES, Copy, Counters, DONE, Descriptor, LONGEST, Progress, RING};
use crate::matrix::layout::{BIAS_BYTES, TILE_BYTES};
use crate::matrix::pad::Pad;
use core::ptr::NonNull;
use estream_kernels_asm::model::dma::{Engine, Pace};
use estream_kernels_asm::model::hmx::{Revision, Unit};
use estream_kernels_asm::model::{Memory, Vtcm, dma, hmx};

/// Where the models see the pad: high in the address space, as on the DSP, and at a border that no operand may cross.
pub const PAD_ADDRESS: u32 = 0xd800_0000;
const RING_ADDRESS: u32 = 0x1000_0000;
const WINDOWS: u32 = 0x2000_0000;
const WINDOW_BYTES: u32 = 1 << 24;

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One of the matrix unit's.
    Matrix(hmx::Violation),
    /// One of the DMA engine's.
    Dma(dma::Violation),
}

impl core::fmt::Display for Rule {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Matrix(violation) => violation.fmt(f),
            Self::Dma(violation) => violation.fmt(f),
        }
    }
}

/// Memory as the models see it.
#[derive(Debug)]
struct Space {
    pad: (NonNull<u8>, usize),
    ring: [Descriptor; RING],
    windows: [(NonNull<u8>, usize); RING],
}

// SAFETY: the pointers are used under the owner's lock, within calls that borrow what they point to.
unsafe impl Send for Space {}

impl Space {
    /// The place behind `address` if `bytes` bytes are mapped there, and whether it may be written.
    fn place(&self, address: u32, bytes: usize) -> Option<(NonNull<u8>, bool)> {
        let within = |base: u32, (start, length): (NonNull<u8>, usize)| {
            let offset = address.checked_sub(base)? as usize;
            // SAFETY: the offset lies inside the mapped length.
            (offset.checked_add(bytes)? <= length).then(|| unsafe { start.add(offset) })
        };
        let ring = (NonNull::from(&self.ring).cast(), size_of_val(&self.ring));
        if let Some(place) = within(PAD_ADDRESS, self.pad).or_else(|| within(RING_ADDRESS, ring)) {
            return Some((place, true));
        }
        let number = address.checked_sub(WINDOWS)? / WINDOW_BYTES;
        let window = self.windows.get(number as usize)?;
        Some((within(WINDOWS + number * WINDOW_BYTES, *window)?, false))
    }
}

impl Memory for Space {
    fn read(&self, address: u32, into: &mut [u8]) -> bool {
        let Some((place, _)) = self.place(address, into.len()) else { return false };
        // SAFETY: `place` has as many bytes; nobody writes an operand or a source while a unit reads it (the executor).
        unsafe { core::ptr::copy_nonoverlapping(place.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    fn write(&mut self, address: u32, from: &[u8]) -> bool {
        let Some((place, true)) = self.place(address, from.len()) else { return false };
        // SAFETY: as in `read`; `&mut self` owns the ring, and nobody else touches what a unit writes.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), place.as_ptr(), from.len()) };
        true
    }
}

/// The matrix unit and a DMA engine.
pub struct Units {
    unit: Unit,
    engine: Engine,
    space: Space,
    progress: Progress,
    broken: Option<Rule>,
}

impl Units {
    /// Units over a pad of `bytes` bytes: locked, powered, nothing loaded. They behave as v73's, whose scratchpad is not
    /// one page.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let vtcm = Vtcm { base: PAD_ADDRESS, length: bytes as u32, single_page: false };
        let mut unit = Unit::new(Revision::V73, vtcm);
        unit.set_power(true);
        unit.set_lock(true);
        let nothing = (NonNull::dangling(), 0);
        Self {
            unit,
            // As late as a DMA engine may be: who does not wait reads stale bytes.
            engine: Engine::new(vtcm, Pace::Deferred),
            space: Space { pad: nothing, ring: [Descriptor::EMPTY; RING], windows: [nothing; RING] },
            progress: Progress::default(),
            broken: None,
        }
    }

    /// Works on `pad` from here on. Sequence numbers start over.
    pub fn begin(&mut self, pad: Pad<'_>) {
        self.space.pad = (pad.base(), pad.bytes());
        self.progress = Progress { handed: self.progress.handed, ended: self.progress.handed, due: [0; 2] };
    }

    /// Loads the scales and biases that stand at `block`.
    pub fn load_bias(&mut self, block: u32) {
        debug_assert!((block as usize).is_multiple_of(BIAS_BYTES));
        let loaded = self.unit.load_bias(&self.space, block);
        self.keep(loaded.map_err(Rule::Matrix));
    }

    /// Clears the accumulators.
    pub fn clear(&mut self) {
        let cleared = self.unit.clear();
        self.keep(cleared.map_err(Rule::Matrix));
    }

    /// Goes on with the accumulator as it is; the models see memory as it is.
    pub const fn resume(&self) {}

    /// Adds activation · weight over `tiles` tiles to the accumulator.
    pub fn multiply(&mut self, activation: u32, weight: u32, tiles: usize) {
        if self.broken.is_some() {
            return;
        }
        let limit = (tiles * TILE_BYTES) as u32 - 1;
        let multiplied = self.unit.multiply(&self.space, (activation, limit), (weight, limit));
        self.keep(multiplied.map_err(Rule::Matrix));
    }

    /// Stores the accumulator as a tile at `tile` and gives it up.
    pub fn store(&mut self, tile: u32) {
        if self.broken.is_some() {
            return;
        }
        let stored = self.unit.store(&mut self.space, tile, false, false);
        self.keep(stored.map_err(Rule::Matrix));
    }

    /// Begins to copy part `turn`.
    pub fn fetch<'b>(&mut self, turn: u32, copies: impl Iterator<Item = Copy<'b>>) {
        for (from, to) in copies.take(COPIES) {
            let bytes = from.len().min(LONGEST);
            let slot = Progress::slot(self.progress.handed);
            self.space.windows[slot] = (NonNull::from(from).cast(), bytes);
            self.space.ring[slot] = Descriptor::linear(WINDOWS + slot as u32 * WINDOW_BYTES, to, bytes);
            let tail = Self::descriptor(Progress::slot(self.progress.handed.wrapping_sub(1)));
            let linked = self.engine.link(&mut self.space, tail, Self::descriptor(slot));
            self.keep(linked.map_err(Rule::Dma));
            self.progress.handed += 1;
        }
        self.progress.due[(turn % 2) as usize] = self.progress.handed;
    }

    /// Whether part `turn` has come; looks at the engine.
    pub fn arrived(&mut self, turn: u32) -> bool {
        let polled = self.engine.poll(&mut self.space).map(drop);
        self.keep(polled.map_err(Rule::Dma));
        while self.progress.ended < self.progress.handed
            && self.space.ring[Progress::slot(self.progress.ended)].control & DONE != 0
        {
            self.progress.ended += 1;
        }
        // After a broken rule nothing comes any more, and a run must end all the same.
        self.progress.arrived(turn) || self.broken.is_some()
    }

    /// The first broken rule.
    #[must_use]
    pub fn broken(&self) -> Option<Rule> {
        self.broken
    }

    /// What has been done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (unit, engine) = (self.unit.counters(), self.engine.counters());
        Counters { pairs: unit.pairs, tiles: unit.tiles, stores: unit.stores, copies: engine.descriptors }
    }

    fn descriptor(slot: usize) -> u32 {
        RING_ADDRESS + (slot * size_of::<Descriptor>()) as u32
    }

    fn keep(&mut self, result: Result<(), Rule>) {
        if let Err(rule) = result {
            self.broken.get_or_insert(rule);
        }
    }
}
