//! Topologies: the scratchpad plan of each shape class, made once at `start` and kept.
//!
//! Layers whose experts have the same widths and formats are one class. A call binds routes and slots to its class's plan
//! and plans nothing.

use crate::kernels::Backend;
use crate::matrix::layout::{self, Layout};
use crate::model::{FeedWeights, Model, Unit};
use crate::vtcm::{Plan, PlanError, Shape};
use estream_idl::call::Config;
use estream_idl::status::{Refusal, Status};

/// The plan of a shape class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    shape: Shape,
    /// Offsets and cuts.
    pub place: Place,
}

/// How a unit's buffers stand in the scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In lanes, for products of vectors.
    Lanes(Plan),
    /// In tiles, for the matrix unit.
    Tiles(Layout),
}

impl Place {
    /// Rows of a chunk.
    #[must_use]
    pub const fn rows(&self) -> usize {
        match self {
            Self::Lanes(plan) => plan.rows,
            Self::Tiles(layout) => layout.rows,
        }
    }

    /// Bytes of everything.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Lanes(plan) => plan.bytes,
            Self::Tiles(layout) => layout.bytes,
        }
    }
}

impl Topology {
    /// The topology of a gated unit (an expert, or one that all tokens pass) on `backend` in `budget` bytes.
    ///
    /// # Errors
    /// `ScratchTooSmall` with the minimum, or `BadConfig` for a row chunk that is no multiple of 32.
    pub fn new(unit: &Unit, backend: &Backend, config: &Config, budget: u32) -> Result<Self, Refusal> {
        let formats = unit.formats();
        let shape = Shape {
            inputs: unit.gate.k,
            inner: unit.gate.n,
            gate: unit.gate.format,
            up: unit.up.format,
            down: unit.down.format,
            packing: backend.serving(&formats).packing(&formats),
            lanes: config.threads as usize,
            max_rows: config.max_tokens as usize,
        };
        if backend.matrix {
            let place = Place::Tiles(tiles(&shape, budget, config.row_chunk as usize)?);
            return Ok(Self { shape, place });
        }
        let plan =
            Plan::new(&shape, budget.into(), config.row_chunk as usize).map_err(|error| match error {
                PlanError::Minimum { bytes } => {
                    Refusal { needed: bytes, limit: budget.into(), ..Status::ScratchTooSmall.into() }
                }
                PlanError::Rows { rows } => {
                    Refusal { needed: rows as u64, limit: 32, ..Status::BadConfig.into() }
                }
                PlanError::Shape => Status::BadDirectory.into(),
            })?;
        Ok(Self { shape, place: Place::Lanes(plan) })
    }

    fn serves(&self, unit: &Unit) -> bool {
        let shape = &self.shape;
        shape.inputs == unit.gate.k
            && shape.inner == unit.gate.n
            && unit.formats() == [shape.gate, shape.up, shape.down]
    }
}

/// The layout of a shape for the matrix unit.
fn tiles(shape: &Shape, budget: u32, rows: usize) -> Result<Layout, Refusal> {
    if !rows.is_multiple_of(32) {
        return Err(Refusal { needed: rows as u64, limit: 32, ..Status::BadConfig.into() });
    }
    let shape = layout::Shape {
        inward: Some((shape.inputs, [shape.gate, shape.up])),
        inputs: shape.inner,
        formats: &[shape.down],
        max_rows: shape.max_rows,
    };
    Layout::new(&shape, budget as usize, rows).map_err(|bytes| Refusal {
        needed: bytes as u64,
        limit: budget.into(),
        ..Status::ScratchTooSmall.into()
    })
}

/// The gated units of a layer: its experts' (all of one shape), then the one that all tokens pass.
#[must_use]
pub fn units(feed: &FeedWeights) -> [Option<Unit>; 2] {
    match feed {
        FeedWeights::Sparse(sparse) => [Some(sparse.store.unit), sparse.shared],
        FeedWeights::Dense(unit) => [None, Some(*unit)],
    }
}

/// Fills `topologies` with the distinct classes of a model's units and `class` with those of each layer, two a layer as
/// in [`units`].
///
/// # Errors
/// As [`Topology::new`].
pub fn build(
    model: &Model<'_>,
    backend: &Backend,
    config: &Config,
    budget: u32,
    topologies: &mut [Option<Topology>],
    class: &mut [u32],
) -> Result<(), Refusal> {
    let mut count = 0;
    for (index, class) in class.chunks_exact_mut(2).enumerate() {
        for (unit, class) in units(&model.layer(index)?.feed).iter().zip(class) {
            let Some(unit) = unit else { continue };
            let known =
                topologies[..count].iter().position(|known| known.is_some_and(|known| known.serves(unit)));
            *class = known.unwrap_or(count) as u32;
            if known.is_none() {
                topologies[count] = Some(Topology::new(unit, backend, config, budget)?);
                count += 1;
            }
        }
    }
    Ok(())
}
