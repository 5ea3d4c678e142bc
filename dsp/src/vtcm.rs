//! The VTCM planner: where the fused operator's buffers stand in the scratchpad, and how many rows they are for.
//!
//! A budget in bytes and a shape go in; the row chunk, the cut of the strips and every offset come out. VTCM is the
//! matrix unit's memory on Hexagon; natively the same plan is cut to the cache. The packing is the backend's (HMX 2 bytes an
//! element, native f32 4, digits with scales between them), so one budget gives different chunks, and law 1 says that no
//! chunk changes a result.
//!
//! # What lives when
//! In steps of [`crate::pipeline`], with n pairs of gate and up strips:
//!
//! ```text
//! Z  rows × K         gather … last up product
//! H  rows × F         activation of pair 0 … last down product
//! C[2], D[2]          all steps, one set a lane; gate, up and down parts take turns in them
//! O[4]                O[0..4] while pairs are computed, O[0..2] while down strips are
//! ```
//! What is reused: C and D are as large as the largest part of any of the three matrices, and the down strips' two
//! outputs are the first two of the pairs' four. What is not: nothing is laid over Z, although Z is dead in the second
//! half. Everything that could go there either is alive already in the first half (H, C, D), or is small (O); a second,
//! larger pair of D for the down strips alone would buy longer parts, but between lanes it would be written while a
//! slower lane still reads Z. So the plan is a plain sum, and its minimum is exact.
//!
//! # What is chosen
//! In this order: all lanes asked for; [`FULL_ROWS`] rows, so that a decoded weight is used by two row tiles, else 32;
//! the longest parts that leave room for them; then as many rows as still fit. Rows before parts, because a strip that
//! is decoded twice costs more than a part's extra step; lanes before rows, because a lane is a processor. Each choice
//! only improves as the budget grows.
#![forbid(unsafe_code)]

use crate::pipeline::{CHAIN_TILES, Cut};
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::{Format, VECTOR};

/// Rows that are preferred to longer parts.
pub const FULL_ROWS: usize = 64;
/// Inputs, inner width and outputs lie below this: the pack's own limit, which keeps all sizes inside 64 bits.
const MAX_WIDTH: usize = 1 << 24;
/// Most bytes of a block: 8 an input.
const MAX_BLOCK: usize = 8 * TILE;

/// Bytes that a backend packs things in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Z and H: 32 inputs of one row. A multiple of 4.
    pub block: usize,
    /// D: one decoded tile of 32 × 32 weights, the largest of the shape's formats. A multiple of 128.
    pub tile: usize,
    /// O: one output. At most 8.
    pub output: usize,
}

/// What is planned for: one shape class of experts on one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Inputs of gate and up, K.
    pub inputs: usize,
    /// Outputs of gate and up, F.
    pub inner: usize,
    /// How the gate's strips are stored.
    pub gate: Format,
    /// How the up's strips are stored.
    pub up: Format,
    /// How the down's strips are stored.
    pub down: Format,
    /// Sizes of the backend.
    pub packing: Packing,
    /// Sets of C, D and O that are wanted: processors that share one expert.
    pub lanes: usize,
    /// Rows that one expert can ever get; more are never planned.
    pub max_rows: usize,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The budget is below what one lane needs with the shortest parts and 32 rows (or the rows that were forced).
    Minimum {
        /// The smallest budget that has a plan.
        bytes: u64,
    },
    /// The forced rows are not a multiple of 32.
    Rows {
        /// What was asked for.
        rows: usize,
    },
    /// A width, size of the packing or number of lanes is zero or out of range.
    Shape,
}

/// A buffer's place, in bytes from the scratchpad's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte, a multiple of 128.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Span {
    /// The bytes as a range.
    #[must_use]
    pub const fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

/// The buffers of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// A compressed part each.
    pub c: [Span; 2],
    /// A decoded part each: k-tiles of 32 × 32 weights.
    pub d: [Span; 2],
    /// An output tile column each: rows × 32.
    pub o: [Span; 4],
}

/// Where everything stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rows of a chunk, a multiple of 32.
    pub rows: usize,
    /// Sets of C, D and O.
    pub lanes: usize,
    /// How gate and up strips are cut.
    pub inward: Cut,
    /// How down strips are cut.
    pub outward: Cut,
    /// Gathered activations, `rows` × [`Self::z_stride`].
    pub z: Span,
    /// Bytes of a row of Z: a block for every 32 inputs.
    pub z_stride: usize,
    /// Activated products, `rows` × [`Self::h_stride`].
    pub h: Span,
    /// Bytes of a row of H: a block for every 32 of the inner width.
    pub h_stride: usize,
    /// Lane 0; the others follow at equal distances.
    first: Lane,
    lane_bytes: usize,
    /// Bytes of the whole plan.
    pub bytes: usize,
}

impl Plan {
    /// The plan for `shape` in `budget` bytes. `rows` forces the row chunk (0 = as many as fit); more than the shape's
    /// rows are not planned in either case.
    ///
    /// # Errors
    /// [`PlanError`], with the bytes that would be enough.
    pub fn new(shape: &Shape, budget: u64, rows: usize) -> Result<Self, PlanError> {
        if !rows.is_multiple_of(TILE) {
            return Err(PlanError::Rows { rows });
        }
        let needs = Needs::new(shape)?;
        let most = shape.max_rows.clamp(1, MAX_WIDTH).next_multiple_of(TILE);
        let forced = (rows > 0).then(|| rows.min(most));
        let [full, least] = forced.map_or([FULL_ROWS.min(most), TILE], |rows| [rows, rows]);
        let smallest = needs.sizes(CHAIN_TILES);
        let lanes = smallest.lanes(least, budget).min(shape.lanes as u64) as usize;
        let mut choices = [full, least]
            .into_iter()
            .flat_map(|rows| (1..=needs.chains()).rev().map(move |chains| (rows, chains * CHAIN_TILES)));
        let sizes = choices.find_map(|(rows, limit)| {
            let sizes = needs.sizes(limit);
            (lanes > 0 && sizes.bytes(rows, lanes) <= budget).then_some(sizes)
        });
        let sizes = sizes.ok_or(PlanError::Minimum { bytes: smallest.bytes(least, 1) })?;
        let rows = forced.unwrap_or_else(|| most.min(sizes.rows(lanes, budget)));
        needs.place(&sizes, rows, lanes).ok_or(PlanError::Shape)
    }

    /// The buffers of lane `lane`, below [`Self::lanes`].
    #[must_use]
    pub fn lane(&self, lane: usize) -> Lane {
        let shift = lane * self.lane_bytes;
        let moved = |span: Span| Span { offset: span.offset + shift, ..span };
        Lane { c: self.first.c.map(moved), d: self.first.d.map(moved), o: self.first.o.map(moved) }
    }
}

/// A checked shape, in tiles.
struct Needs<'a> {
    shape: &'a Shape,
    inward_tiles: usize,
    outward_tiles: usize,
}

/// Bytes of each buffer for one choice of parts: `rows` enter linearly, and every size is a multiple of 128, since 32 rows
/// have 32 blocks of whole words, and a tile and a strip are padded.
struct Sizes {
    inward: Cut,
    outward: Cut,
    /// One C.
    c: u64,
    /// One D.
    d: u64,
    /// One O, 32 rows of it.
    o: u64,
    /// Z and H, 32 rows of them.
    z: u64,
    h: u64,
}

impl<'a> Needs<'a> {
    fn new(shape: &'a Shape) -> Result<Self, PlanError> {
        let widths = [shape.inputs, shape.inner];
        let Packing { block, tile, output } = shape.packing;
        let sound = widths.iter().all(|width| (1..MAX_WIDTH).contains(width))
            && (4..=MAX_BLOCK).contains(&block)
            && block.is_multiple_of(4)
            && (VECTOR..=MAX_BLOCK * TILE).contains(&tile)
            && tile.is_multiple_of(VECTOR)
            && (1..=8).contains(&output)
            && (1..=usize::from(u16::MAX)).contains(&shape.lanes);
        if !sound {
            return Err(PlanError::Shape);
        }
        let [inward_tiles, outward_tiles] = widths.map(|width| width.div_ceil(TILE));
        Ok(Self { shape, inward_tiles, outward_tiles })
    }

    /// Whole chains of the longest strip: the longest part in units of [`CHAIN_TILES`].
    fn chains(&self) -> usize {
        self.inward_tiles.max(self.outward_tiles).div_ceil(CHAIN_TILES)
    }

    /// Sizes with parts of at most `limit` tiles. One limit serves all three matrices: they share C and D.
    fn sizes(&self, limit: usize) -> Sizes {
        let (inward, outward) =
            (Cut::balanced(self.inward_tiles, limit), Cut::balanced(self.outward_tiles, limit));
        // A part begins at a multiple of 32 tiles, hence of a super-block: its planes are those of a shorter strip.
        let bytes = |format: Format, cut: Cut| format.strip(cut.part * TILE).bytes as u64;
        let Shape { gate, up, down, packing, .. } = *self.shape;
        let rows = |tiles: usize, block: usize| tiles as u64 * (TILE * block) as u64;
        Sizes {
            inward,
            outward,
            c: bytes(gate, inward).max(bytes(up, inward)).max(bytes(down, outward)),
            d: inward.part.max(outward.part) as u64 * packing.tile as u64,
            o: rows(1, TILE * packing.output),
            z: rows(self.inward_tiles, packing.block),
            h: rows(self.outward_tiles, packing.block),
        }
    }

    /// The plan with these sizes, or `None` where it exceeds the address space.
    fn place(&self, sizes: &Sizes, rows: usize, lanes: usize) -> Option<Plan> {
        let bytes = usize::try_from(sizes.bytes(rows, lanes)).ok()?;
        let mut at = 0;
        let mut span = |bytes: u64| {
            let span = Span { offset: at, bytes: bytes as usize };
            at += span.bytes;
            debug_assert!(at.is_multiple_of(VECTOR));
            span
        };
        let row_tiles = (rows / TILE) as u64;
        let (z, h) = (span(row_tiles * sizes.z), span(row_tiles * sizes.h));
        let first = Lane {
            c: [(); 2].map(|()| span(sizes.c)),
            d: [(); 2].map(|()| span(sizes.d)),
            o: [(); 4].map(|()| span(row_tiles * sizes.o)),
        };
        Some(Plan {
            rows,
            lanes,
            inward: sizes.inward,
            outward: sizes.outward,
            z,
            z_stride: self.inward_tiles * self.shape.packing.block,
            h,
            h_stride: self.outward_tiles * self.shape.packing.block,
            first,
            lane_bytes: first.o[3].range().end - first.c[0].offset,
            bytes,
        })
    }
}

impl Sizes {
    /// Bytes that 32 more rows cost.
    const fn row_tile(&self, lanes: usize) -> u64 {
        self.z + self.h + 4 * self.o * lanes as u64
    }

    /// Bytes of everything.
    const fn bytes(&self, rows: usize, lanes: usize) -> u64 {
        (rows / TILE) as u64 * self.row_tile(lanes) + 2 * (self.c + self.d) * lanes as u64
    }

    /// Rows that fit with these lanes.
    fn rows(&self, lanes: usize, budget: u64) -> usize {
        let row_tiles = budget.saturating_sub(self.bytes(0, lanes)) / self.row_tile(lanes);
        usize::try_from(row_tiles).unwrap_or(usize::MAX).saturating_mul(TILE)
    }

    /// Lanes that fit with these rows.
    const fn lanes(&self, rows: usize, budget: u64) -> u64 {
        let shared = self.bytes(rows, 0);
        budget.saturating_sub(shared) / (self.bytes(rows, 1) - shared)
    }
}
