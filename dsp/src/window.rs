//! The window: dense weights that are streamed, a stage at a time, through two halves of a small segment.
//!
//! What every token passes is used once a pass, like the experts, so it need not stay in memory either. A *stage* is all
//! that a layer needs besides its experts, or a piece of the head of whole strips. While a stage is at work in one half,
//! the next one is on its way into the other. What no layer owns but the head (the final norm) stays in front of the
//! halves. Stages are used in one order that is known beforehand, so two halves are enough; giving them slots of the
//! arena would only couple their sizes to those of the experts.
//!
//! Pieces of the head begin and end at pages, so that no byte is read twice: their strips are a multiple of the number that
//! fills whole pages.
#![forbid(unsafe_code)]

use crate::model::Model;
use core::ops::Range;
use estream_idl::address::{PAGE, TILE};
use estream_idl::status::{Refusal, Status};

/// Most loads of a stage.
pub const STAGE_LOADS: usize = 8;
/// A stage is asked for in loads of at least this size.
const STAGE_LOAD: usize = 2 << 20;

/// What is in one half at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All dense weights of a layer.
    Layer(usize),
    /// A piece of the head.
    Head(usize),
}

/// How a model's dense weights are cut into stages. Offsets are bytes from the beginning of the dense range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The final norm, in whole pages: it stays at the beginning of the segment.
    pub resident: Range<usize>,
    /// Bytes of a half.
    pub half: usize,
    /// Strips of a piece of the head.
    pub strips: usize,
    /// Strips of the head.
    pub head_strips: usize,
    head: usize,
    strip_bytes: usize,
}

impl Cut {
    /// The cut for a model.
    ///
    /// # Errors
    /// `BadDirectory` where a layer's weights are more than this device can address.
    pub fn new(model: &Model<'_>) -> Result<Self, Refusal> {
        let bad = || Refusal::from(Status::BadDirectory);
        let mut largest = 0;
        for layer in 0..model.layers() {
            largest = largest.max(layer_range(model, layer).ok_or_else(bad)?.len());
        }
        let norm = model.final_norm;
        let resident = norm.at..norm.at + (4 * norm.len).next_multiple_of(PAGE);
        let strip_bytes = model.head.format.strip(model.head.k).bytes;
        // The least number of strips that fills whole pages; strips are whole vectors of 128 bytes.
        let unit = PAGE >> (strip_bytes.trailing_zeros().min(PAGE.trailing_zeros()));
        let unit_bytes = unit.checked_mul(strip_bytes).ok_or_else(bad)?;
        let half = largest.max(unit_bytes);
        let (strips, head_strips) = (half / unit_bytes * unit, model.head.n.div_ceil(TILE));
        Ok(Self { resident, half, strips, head_strips, head: model.head.at, strip_bytes })
    }

    /// Bytes of the segment.
    #[must_use]
    pub const fn segment_bytes(&self) -> usize {
        self.resident.end - self.resident.start + 2 * self.half
    }

    /// Where a half begins in the segment.
    #[must_use]
    pub const fn half_at(&self, half: usize) -> usize {
        self.resident.end - self.resident.start + half * self.half
    }

    /// The piece of the head that holds a strip.
    #[must_use]
    pub const fn piece(&self, strip: usize) -> usize {
        strip / self.strips
    }

    /// The strips of a piece.
    #[must_use]
    pub fn piece_strips(&self, piece: usize) -> Range<usize> {
        piece * self.strips..self.head_strips.min((piece + 1) * self.strips)
    }

    /// What comes after a stage: the next layer, then (if it is wanted) the head from its first piece to its last.
    #[must_use]
    pub fn after(&self, stage: Stage, layers: usize, head: bool) -> Option<Stage> {
        match stage {
            Stage::Layer(layer) if layer + 1 < layers => Some(Stage::Layer(layer + 1)),
            Stage::Layer(_) => head.then_some(Stage::Head(0)),
            Stage::Head(piece) => {
                (piece < self.piece(self.head_strips - 1)).then_some(Stage::Head(piece + 1))
            }
        }
    }

    /// The bytes of a stage, whole pages.
    #[must_use]
    pub fn range(&self, model: &Model<'_>, stage: Stage) -> Option<Range<usize>> {
        match stage {
            Stage::Layer(layer) => layer_range(model, layer),
            Stage::Head(piece) => {
                let strips = self.piece_strips(piece);
                let at = |strip: usize| self.head + strip * self.strip_bytes;
                Some(at(strips.start)..at(strips.end).next_multiple_of(PAGE))
            }
        }
    }
}

/// The loads of a stage: ranges of whole pages, end to end.
pub fn loads(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let each = range.len().div_ceil(STAGE_LOADS).max(STAGE_LOAD).next_multiple_of(PAGE);
    let end = range.end;
    range.step_by(each).map(move |at| at..end.min(at + each))
}

/// From the first to the last byte of a layer's dense weights; empty for a layer without any.
fn layer_range(model: &Model<'_>, layer: usize) -> Option<Range<usize>> {
    let base = model.directory.header.dense.file;
    let of_layer = model.directory.matrices.iter().filter(|entry| usize::from(entry.layer) == layer);
    let ends = |entry: estream_idl::pack::MatrixEntry| {
        let from = usize::try_from(entry.file.checked_sub(base)?).ok()?;
        Some((from, from.checked_add(usize::try_from(entry.bytes).ok()?)?))
    };
    let mut range: Option<Range<usize>> = None;
    for entry in of_layer {
        let (from, to) = ends(entry)?;
        range = Some(range.map_or(from..to, |range| range.start.min(from)..range.end.max(to)));
    }
    Some(range.unwrap_or(0..0))
}
