//! Topologies: the scratchpad plan of each shape class, made once at `start` and kept.
//!
//! Layers whose experts have the same widths and formats are one class. A call binds routes and slots to its class's plan
//! and plans nothing.

use crate::model::{ExpertStore, Model};
use crate::vtcm::{Elements, Plan, PlanError, Shape};
use estream_idl::call::Config;
use estream_idl::status::{Refusal, Status};

/// Element sizes of the native backends: f32 throughout.
const ELEMENTS: Elements = Elements { activation: 4, weight: 4, output: 4 };

/// The plan of a shape class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    shape: Shape,
    /// Offsets and cuts.
    pub plan: Plan,
}

impl Topology {
    /// The topology of a layer's experts in `budget` bytes.
    ///
    /// # Errors
    /// `ScratchTooSmall` with the minimum, or `BadConfig` for a row chunk that is no multiple of 32.
    pub fn new(store: &ExpertStore, config: &Config, budget: u32) -> Result<Self, Refusal> {
        let shape = Shape {
            inputs: store.gate.k,
            inner: store.gate.n,
            gate: store.gate.format,
            up: store.up.format,
            down: store.down.format,
            elements: ELEMENTS,
            lanes: config.threads as usize,
            max_rows: config.max_tokens as usize,
        };
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
        Ok(Self { shape, plan })
    }

    fn serves(&self, store: &ExpertStore) -> bool {
        let (shape, parts) = (&self.shape, [&store.gate, &store.up, &store.down]);
        shape.inputs == store.gate.k
            && shape.inner == store.gate.n
            && parts.map(|part| part.format) == [shape.gate, shape.up, shape.down]
    }
}

/// Fills `topologies` with the distinct classes of a model's layers and `class` with each layer's; the number of classes.
///
/// # Errors
/// As [`Topology::new`].
pub fn build(
    model: &Model<'_>,
    config: &Config,
    budget: u32,
    topologies: &mut [Option<Topology>],
    class: &mut [u32],
) -> Result<usize, Refusal> {
    let mut count = 0;
    for (index, class) in class.iter_mut().enumerate() {
        let store = model.layer(index)?.store;
        let known =
            topologies[..count].iter().position(|known| known.is_some_and(|known| known.serves(&store)));
        *class = known.unwrap_or(count) as u32;
        if known.is_none() {
            topologies[count] = Some(Topology::new(&store, config, budget)?);
            count += 1;
        }
    }
    Ok(count)
}
