//! The matrix unit as a state machine over a scratchpad: fp16 tiles of 32×32, two accumulators, one bias block a bank.
//!
//! Only the forms of a matrix product are served (`:deep` activations with plain weights, `:after.hf` stores, bias blocks,
//! clear and swap), in the unit's default mode. Strictness is the point: each rule that silicon answers with a fault, a hang
//! or a wrong number is a [`Violation`] here. Where sources leave a case open, the strict reading is taken: a store without
//! `:retain` leaves both accumulators to be cleared by `mxclracc.hf` before the next product (QEMU's model would go on with
//! zeros), and weights must be tile-aligned as activations are.

mod accumulator;
mod convert;
mod violation;
#[allow(unsafe_code)]
mod wide;

pub use violation::{Place, Violation};

use super::{Memory, Vtcm};
use crate::word::{Block, Hmx, Reach};
use accumulator::{Accumulator, Operand, SIDE};
use convert::Column;

/// Bytes of a tile of 32×32 halves.
pub const TILE: u32 = 2048;
/// The most tiles of one fused multiply; a longer chain gives wrong results on silicon.
pub const MAX_TILES: u32 = 32;
/// Bytes of a bias block.
pub const BIAS_BLOCK: u32 = 256;
/// Where VTCM is not one page, no operand may cross a multiple of this.
const PAGE: u64 = 256 << 10;
const BANKS: usize = 4;

/// The architecture whose unit this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Products in groups of 4.
    V73,
    /// Products in groups of 8.
    V75,
    /// As v75.
    V79,
    /// As v75, with wider accumulator exponents.
    V81,
}

impl Revision {
    /// Products that are added before they meet the accumulator.
    const fn group(self) -> usize {
        match self {
            Self::V73 => 4,
            Self::V75 | Self::V79 | Self::V81 => 8,
        }
    }

    const fn smallest_exponent(self) -> i32 {
        match self {
            Self::V73 | Self::V75 | Self::V79 => -64,
            Self::V81 => -256,
        }
    }
}

/// What the unit has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Fused multiplies.
    pub pairs: u64,
    /// Tiles of 32×32×32 multiplied: 32,768 multiply-adds each.
    pub tiles: u64,
    /// Output tiles stored.
    pub stores: u64,
    /// Output elements beyond 65504, which an IEEE reader takes for infinities or NaNs.
    pub saturations: u64,
}

/// A word with the values of its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Which word.
    pub word: Hmx,
    /// The value of Rs.
    pub s: u32,
    /// The value of Rt.
    pub t: u32,
}

/// What is known of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Nothing: before the first clear, or since a store.
    Spent,
    /// Zeros.
    Clear,
    /// Products.
    Live,
}

/// The matrix unit. Everything it holds is about 32 KiB.
#[derive(Clone)]
pub struct Unit {
    revision: Revision,
    vtcm: Vtcm,
    locked: bool,
    powered: bool,
    accumulators: [Accumulator; 2],
    contents: [Content; 2],
    current: usize,
    banks: [Option<[Column; SIDE]>; BANKS],
    counters: Counters,
}

impl Unit {
    /// A unit that nobody has locked or powered.
    #[must_use]
    pub fn new(revision: Revision, vtcm: Vtcm) -> Self {
        Self {
            revision,
            vtcm,
            locked: false,
            powered: false,
            accumulators: [Accumulator::zero(revision), Accumulator::zero(revision)],
            contents: [Content::Spent; 2],
            current: 0,
            banks: [None; BANKS],
            counters: Counters::default(),
        }
    }

    /// The scratchpad changed hands.
    pub fn set_vtcm(&mut self, vtcm: Vtcm) {
        self.vtcm = vtcm;
    }

    /// A power vote was given or taken back.
    pub fn set_power(&mut self, powered: bool) {
        self.powered = powered;
    }

    /// The lock was taken or given back. Nobody guarantees the unit's contents across that.
    pub fn set_lock(&mut self, locked: bool) {
        self.locked = locked;
        self.contents = [Content::Spent; 2];
        self.banks = [None; BANKS];
    }

    /// What the unit has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// All HMX words of one packet, in the order of their addresses.
    pub fn packet(&mut self, memory: &mut (impl Memory + ?Sized), issues: &[Issue]) -> Result<(), Violation> {
        if let Some(issue) = issues.iter().find(|issue| !issue.word.is_modelled()) {
            return Err(Violation::NotModelled(issue.word.mnemonic()));
        }
        match issues {
            [] => Ok(()),
            [
                Issue { word: Hmx::Activation(Block::Deep), s, t },
                Issue { word: Hmx::Weight(Reach::Plain), s: ws, t: wt },
            ] => self.multiply(memory, (*s, *t), (*ws, *wt)),
            [Issue { word: Hmx::Activation(_), .. }, ..] => Err(Violation::SplitPair(Place::Activation)),
            [Issue { word: Hmx::Weight(_), .. }, ..] => Err(Violation::SplitPair(Place::Weight)),
            [Issue { word, s, t }] => match *word {
                Hmx::Clear => self.clear(),
                Hmx::Swap => self.swap(),
                Hmx::LoadBias => self.load_bias(memory, *s),
                Hmx::LoadBiasLow => self.load_bias_low(memory, *s),
                Hmx::StoreBias => self.store_bias(memory, *s, BIAS_BLOCK),
                Hmx::StoreBiasLow => self.store_bias(memory, *s, BIAS_BLOCK / 2),
                Hmx::Store { retain, positive } if *t == 0 => self.store(memory, *s, retain, positive),
                Hmx::Store { .. } => Err(Violation::StoreOffset(*t)),
                other => Err(Violation::NotModelled(other.mnemonic())),
            },
            _ => Err(Violation::CrowdedPacket(issues.len())),
        }
    }

    /// `mxclracc.hf`: clears both accumulators.
    pub fn clear(&mut self) -> Result<(), Violation> {
        self.usable()?;
        for accumulator in &mut self.accumulators {
            accumulator.clear(self.revision);
        }
        self.contents = [Content::Clear; 2];
        Ok(())
    }

    /// `mxswapacc.hf`
    pub fn swap(&mut self) -> Result<(), Violation> {
        self.usable()?;
        self.current ^= 1;
        Ok(())
    }

    /// `bias=mxmem2(Rs)`: bits 1:0 of the address choose the bank.
    pub fn load_bias(&mut self, memory: &(impl Memory + ?Sized), address: u32) -> Result<(), Violation> {
        let (bank, address) = self.bias_block(address, BIAS_BLOCK)?;
        let mut block = [0; BIAS_BLOCK as usize];
        self.read(memory, Place::Bias, address, &mut block)?;
        let word = |index: usize| u32::from_le_bytes(core::array::from_fn(|i| block[4 * index + i]));
        self.banks[bank] = Some(core::array::from_fn(|c| Column { low: word(c), high: word(SIDE + c) }));
        Ok(())
    }

    /// `bias=mxmem(Rs)`: the low words; the high ones stay, and are 0 in a bank never loaded.
    pub fn load_bias_low(&mut self, memory: &(impl Memory + ?Sized), address: u32) -> Result<(), Violation> {
        let (bank, address) = self.bias_block(address, BIAS_BLOCK / 2)?;
        let mut block = [0; BIAS_BLOCK as usize / 2];
        self.read(memory, Place::Bias, address, &mut block)?;
        let mut columns = self.banks[bank].unwrap_or([Column { low: 0, high: 0 }; SIDE]);
        for (column, bytes) in columns.iter_mut().zip(block.as_chunks().0) {
            column.low = u32::from_le_bytes(*bytes);
        }
        self.banks[bank] = Some(columns);
        Ok(())
    }

    /// `mxmem2(Rs)=bias` and, with half the bytes, `mxmem(Rs)=bias`.
    fn store_bias(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        address: u32,
        length: u32,
    ) -> Result<(), Violation> {
        let (bank, address) = self.bias_block(address, length)?;
        let columns = self.banks[bank].ok_or(Violation::NoBias { address })?;
        let mut block = [0; BIAS_BLOCK as usize];
        let words = columns.iter().map(|c| c.low).chain(columns.iter().map(|c| c.high));
        for (bytes, word) in block.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        self.write(memory, Place::Bias, address, &block[..length as usize])
    }

    /// The fused pair `activation.hf=mxmem(Rs,Rt):deep` and `weight.hf=mxmem(Rs,Rt)`: (address, limit) of each, the limit
    /// being 2048·tiles − 1.
    pub fn multiply(
        &mut self,
        memory: &(impl Memory + ?Sized),
        activation: (u32, u32),
        weight: (u32, u32),
    ) -> Result<(), Violation> {
        self.usable()?;
        let tiles = self.chain(Place::Activation, activation)?;
        let weight_tiles = self.chain(Place::Weight, weight)?;
        if tiles != weight_tiles {
            return Err(Violation::UnequalTiles { activation: tiles, weight: weight_tiles });
        }
        if self.contents[self.current] == Content::Spent {
            return Err(Violation::AccumulatorNotCleared);
        }
        let mut bytes = [0; TILE as usize];
        for tile in 0..tiles {
            self.read(memory, Place::Activation, activation.0 + tile * TILE, &mut bytes)?;
            let a = Operand::decode(&bytes);
            self.read(memory, Place::Weight, weight.0 + tile * TILE, &mut bytes)?;
            let w = Operand::decode(&bytes);
            wide::multiply(&mut self.accumulators[self.current], &a, &w, self.revision);
        }
        self.contents[self.current] = Content::Live;
        self.counters.pairs += 1;
        self.counters.tiles += u64::from(tiles);
        Ok(())
    }

    /// `mxmem(Rs,0):after.hf=acc`, with `:retain` and `:pos`: converts by bank 0 and stores the current accumulator. Without
    /// `:retain` it is given up and the other one becomes current.
    pub fn store(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        address: u32,
        retain: bool,
        positive: bool,
    ) -> Result<(), Violation> {
        self.usable()?;
        self.operand(Place::Output, address, TILE, TILE)?;
        let columns = self.banks[0].ok_or(Violation::NoBias { address })?;
        if self.contents[self.current] == Content::Spent {
            return Err(Violation::NothingAccumulated { address });
        }
        let accumulator = &self.accumulators[self.current];
        let mut tile = [0; TILE as usize];
        let mut saturated = 0;
        for row in 0..SIDE {
            for (column, record) in columns.iter().enumerate() {
                let (half, beyond) = record.convert(accumulator.cell(row, column), positive);
                saturated += u64::from(beyond);
                let at = row / 2 * 128 + column * 4 + (row & 1) * 2;
                tile[at..at + 2].copy_from_slice(&half.to_le_bytes());
            }
        }
        self.write(memory, Place::Output, address, &tile)?;
        self.counters.stores += 1;
        self.counters.saturations += saturated;
        if !retain {
            self.contents[self.current] = Content::Spent;
            self.current ^= 1;
            if self.contents[self.current] == Content::Clear {
                self.contents[self.current] = Content::Spent;
            }
        }
        Ok(())
    }

    fn usable(&self) -> Result<(), Violation> {
        if !self.powered {
            Err(Violation::NotPowered)
        } else if !self.locked {
            Err(Violation::NotLocked)
        } else {
            Ok(())
        }
    }

    /// Checks a chain of tiles and counts them.
    fn chain(&self, place: Place, (address, limit): (u32, u32)) -> Result<u32, Violation> {
        if limit % TILE != TILE - 1 {
            return Err(Violation::PartialTile { place, limit });
        }
        let tiles = limit / TILE + 1;
        if tiles > MAX_TILES {
            return Err(Violation::TooManyTiles { place, tiles });
        }
        self.operand(place, address, tiles * TILE, TILE)?;
        Ok(tiles)
    }

    /// Splits a bias address into bank and block, and checks the block.
    fn bias_block(&self, address: u32, length: u32) -> Result<(usize, u32), Violation> {
        self.usable()?;
        let (bank, address) = (address as usize % BANKS, address & !(BANKS as u32 - 1));
        self.operand(Place::Bias, address, length, length)?;
        Ok((bank, address))
    }

    /// The rules for where an operand may lie.
    fn operand(&self, place: Place, address: u32, length: u32, alignment: u32) -> Result<(), Violation> {
        if !address.is_multiple_of(alignment) {
            return Err(Violation::Misaligned { place, address, alignment });
        }
        if !self.vtcm.contains(address, length) {
            return Err(Violation::OutsideVtcm { place, address, length });
        }
        let last = u64::from(address) + u64::from(length) - 1;
        if !self.vtcm.single_page && u64::from(address) / PAGE != last / PAGE {
            return Err(Violation::CrossesPage { place, address, length });
        }
        Ok(())
    }

    fn read(
        &self,
        memory: &(impl Memory + ?Sized),
        place: Place,
        address: u32,
        into: &mut [u8],
    ) -> Result<(), Violation> {
        let length = into.len() as u32;
        if memory.read(address, into) {
            Ok(())
        } else {
            Err(Violation::OutsideVtcm { place, address, length })
        }
    }

    fn write(
        &self,
        memory: &mut (impl Memory + ?Sized),
        place: Place,
        address: u32,
        from: &[u8],
    ) -> Result<(), Violation> {
        let length = from.len() as u32;
        if memory.write(address, from) {
            Ok(())
        } else {
            Err(Violation::OutsideVtcm { place, address, length })
        }
    }
}
