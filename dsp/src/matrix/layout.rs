//! Where the matrix unit's operands stand in VTCM, and for how many rows.
//!
//! The unit sets rules that a CPU's scratch does not have: tiles of 2 KiB at multiples of 2 KiB, chains of up to 32
//! consecutive tiles (64 KiB), and no chain over a border of 256 KiB, which matters wherever VTCM is not one page. So a
//! chain never is placed where it could cross: whole chains stand at multiples of their 64 KiB, and the last, shorter
//! chains of all row tiles, m tiles each, stand ⌊128/m⌋ to a stretch of 256 KiB ([`Operand`]).
//!
//! An accumulator is the unit's and is not to be had in f32, so a strip that is cut along k is carried on in it from part
//! to part, which one row tile alone can: a layout has parts or more than 32 rows, never both. Parts come last: they
//! are taken only where a whole strip does not fit beside 32 rows.
#![forbid(unsafe_code)]

use crate::kernels::hexagon::scatter::Aim;
use crate::pipeline::{CHAIN_TILES, Cut};
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::{Format, VECTOR};

/// Bytes of an fp16 tile.
pub const TILE_BYTES: usize = 2 * TILE * TILE;
/// Bytes of a chain's operand at most.
pub(super) const CHAIN_BYTES: usize = CHAIN_TILES * TILE_BYTES;
/// Bytes between two borders that no chain crosses.
pub const STRETCH: usize = 256 << 10;
/// Bytes that say where a row goes.
pub const TARGET_BYTES: usize = size_of::<Aim>() / 2;
/// Bytes of the unit's scales and biases, which stand first.
pub const BIAS_BYTES: usize = 256;

/// Row tiles of activations over some k-tiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// Byte offset of the whole chains, `[chain][row tile]`.
    whole: usize,
    /// Byte offset of the last chains where these are shorter.
    last: usize,
    row_tiles: usize,
    /// k-tiles.
    pub tiles: usize,
}

impl Operand {
    /// k-tiles of the chain that is not whole.
    const fn rest(&self) -> usize {
        self.tiles % CHAIN_TILES
    }

    const fn whole_bytes(&self) -> usize {
        self.tiles / CHAIN_TILES * self.row_tiles * CHAIN_BYTES
    }

    const fn last_bytes(&self) -> usize {
        let rest = self.rest();
        if rest == 0 {
            return 0;
        }
        let each = STRETCH / TILE_BYTES / rest;
        self.row_tiles / each * STRETCH + self.row_tiles % each * rest * TILE_BYTES
    }

    /// k-tiles of chain `chain`.
    #[must_use]
    pub const fn chain_tiles(&self, chain: usize) -> usize {
        let left = self.tiles - chain * CHAIN_TILES;
        if left < CHAIN_TILES { left } else { CHAIN_TILES }
    }

    /// Chains along k.
    #[must_use]
    pub const fn chains(&self) -> usize {
        self.tiles.div_ceil(CHAIN_TILES)
    }

    /// Byte offset of chain `chain` of row tile `row_tile`; the chain's tiles follow each other.
    #[must_use]
    pub const fn chain(&self, row_tile: usize, chain: usize) -> usize {
        if chain < self.tiles / CHAIN_TILES {
            return self.whole + (chain * self.row_tiles + row_tile) * CHAIN_BYTES;
        }
        let rest = self.rest();
        let each = STRETCH / TILE_BYTES / rest;
        self.last + row_tile / each * STRETCH + row_tile % each * rest * TILE_BYTES
    }

    /// Byte offset of k-tile `tile` of row tile `row_tile`.
    #[must_use]
    pub const fn tile(&self, row_tile: usize, tile: usize) -> usize {
        self.chain(row_tile, tile / CHAIN_TILES) + tile % CHAIN_TILES * TILE_BYTES
    }

    /// As [`Self::tile`], with the bytes from there to the next row tile's, and how many row tiles stand at such distances,
    /// that one included.
    #[must_use]
    pub const fn column(&self, row_tile: usize, tile: usize) -> (usize, usize, usize) {
        let at = tile % CHAIN_TILES * TILE_BYTES;
        let chain = tile / CHAIN_TILES;
        if chain < self.tiles / CHAIN_TILES {
            let first = self.whole + (chain * self.row_tiles + row_tile) * CHAIN_BYTES;
            return (first + at, CHAIN_BYTES, self.row_tiles - row_tile);
        }
        let rest = self.rest();
        let each = STRETCH / TILE_BYTES / rest;
        let (stretch, place) = (row_tile / each, row_tile % each);
        (self.last + stretch * STRETCH + place * rest * TILE_BYTES + at, rest * TILE_BYTES, each - place)
    }
}

/// What is laid out: a gated unit, or (without `inward`) one matrix.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Inputs of gate and up, and how their strips are stored.
    pub inward: Option<(usize, [Format; 2])>,
    /// Inputs of down, or of the one matrix.
    pub inputs: usize,
    /// How the strips of down, or of the one matrix, are stored.
    pub formats: &'a [Format],
    /// Rows that there can be; more are never planned.
    pub max_rows: usize,
}

/// Where everything stands, as byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows of a chunk, a multiple of 32.
    pub rows: usize,
    /// An i32 a row: the power of two that it is raised by.
    pub exponents: usize,
    /// [`Aim`]s, one a row pair: where rows go, and what they are multiplied by on the way.
    pub targets: usize,
    /// Gathered activations of gate and up.
    pub z: Operand,
    /// Activated products, or the one matrix's gathered activations.
    pub h: Operand,
    /// Compressed parts.
    pub c: [usize; 2],
    /// Decoded parts.
    pub d: [usize; 2],
    /// Outputs, a tile a row tile.
    pub o: [usize; 4],
    /// How gate and up strips are cut.
    pub inward: Cut,
    /// How the other strips are cut.
    pub outward: Cut,
    /// Bytes of the whole layout.
    pub bytes: usize,
}

/// Hands out offsets.
pub(super) struct Placer(usize);

impl Placer {
    /// What follows the unit's scales and biases.
    pub(super) const fn after_bias() -> Self {
        Self(BIAS_BYTES)
    }

    /// Bytes handed out.
    pub(super) const fn end(&self) -> usize {
        self.0
    }

    pub(super) fn take(&mut self, bytes: usize, align: usize) -> usize {
        let at = self.0.next_multiple_of(align);
        self.0 = at + bytes;
        at
    }

    pub(super) fn operand(&mut self, tiles: usize, row_tiles: usize) -> Operand {
        let mut operand = Operand { tiles, row_tiles, ..Operand::default() };
        let last = operand.last_bytes();
        operand.last = self.take(last, chain_align(last).max(if last > CHAIN_BYTES { STRETCH } else { 1 }));
        operand.whole = self.take(operand.whole_bytes(), CHAIN_BYTES);
        operand
    }
}

/// An alignment at which `bytes`, or each whole chain of them, cross no border.
pub(super) const fn chain_align(bytes: usize) -> usize {
    let align = if bytes < CHAIN_BYTES { bytes.next_power_of_two() } else { CHAIN_BYTES };
    if align < TILE_BYTES { TILE_BYTES } else { align }
}

impl Layout {
    /// The layout for `shape` in `budget` bytes. `rows` forces the row chunk (0 = as many as fit).
    ///
    /// # Errors
    /// The smallest budget that has a layout.
    pub fn new(shape: &Shape<'_>, budget: usize, rows: usize) -> Result<Self, usize> {
        let most = shape.max_rows.max(1).next_multiple_of(TILE);
        let forced = (rows > 0).then(|| rows.next_multiple_of(TILE).min(most));
        let chains = shape.chains();
        let fits = |rows: usize, chains: usize| {
            let layout = Self::place(shape, rows, chains * CHAIN_TILES);
            (layout.bytes <= budget).then_some(layout)
        };
        let rows = match forced {
            Some(rows) => rows..=rows,
            None => {
                // A row tile costs at least its activations: more than this many cannot fit.
                let each =
                    (shape.inputs + shape.inward.map_or(0, |(inputs, _)| inputs)).div_ceil(TILE) * TILE_BYTES;
                TILE..=most.min((budget / each.max(1) * TILE).max(TILE))
            }
        };
        let whole = rows.clone().rev().step_by(TILE).find_map(|rows| fits(rows, chains));
        let parted = || {
            let one = *rows.start() == TILE;
            one.then(|| (1..chains).rev().find_map(|chains| fits(TILE, chains))).flatten()
        };
        whole.or_else(parted).ok_or_else(|| {
            let least = if *rows.start() == TILE { 1 } else { chains };
            Self::place(shape, *rows.start(), least * CHAIN_TILES).bytes
        })
    }

    fn place(shape: &Shape<'_>, rows: usize, limit: usize) -> Self {
        let tiles = shape.inputs.div_ceil(TILE);
        let outward = Cut::balanced(tiles, limit);
        let (inward, inward_formats) = match shape.inward {
            Some((inputs, formats)) => (Cut::balanced(inputs.div_ceil(TILE), limit), formats),
            None => (Cut { tiles: 0, part: 0 }, [Format::F16; 2]),
        };
        let c = inward_formats.iter().map(|format| format.strip(inward.part * TILE).bytes);
        let c = c
            .chain(shape.formats.iter().map(|format| format.strip(outward.part * TILE).bytes))
            .max()
            .unwrap_or(0);
        let d = inward.part.max(outward.part) * TILE_BYTES;
        let row_tiles = rows / TILE;
        let mut placer = Placer::after_bias();
        let exponents = placer.take(rows * size_of::<i32>(), VECTOR);
        let targets = placer.take(rows * TARGET_BYTES, VECTOR);
        let c = [(); 2].map(|()| placer.take(c, VECTOR));
        let o = [(); 4].map(|()| placer.take(row_tiles * TILE_BYTES, TILE_BYTES));
        let d = [(); 2].map(|()| placer.take(d, chain_align(d)));
        let z = placer.operand(inward.tiles, row_tiles);
        let h = placer.operand(tiles, row_tiles);
        Self { rows, exponents, targets, z, h, c, d, o, inward, outward, bytes: placer.end() }
    }
}

impl Shape<'_> {
    /// Whole chains of the longest strip.
    fn chains(&self) -> usize {
        let inward = self.inward.map_or(0, |(inputs, _)| inputs);
        self.inputs.max(inward).div_ceil(TILE).div_ceil(CHAIN_TILES).max(1)
    }
}

/// The byte ranges of the chains of `tiles` decoded tiles at `at`.
pub fn chains(at: usize, tiles: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    (0..tiles.div_ceil(CHAIN_TILES)).map(move |chain| {
        let first = chain * CHAIN_TILES;
        let count = (tiles - first).min(CHAIN_TILES);
        (count, at + first * TILE_BYTES..at + (first + count) * TILE_BYTES)
    })
}
