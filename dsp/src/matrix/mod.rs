//! The machine around the matrix unit: its scratchpad, the unit and the DMA engine, and what is computed on them.
//!
//! On Hexagon a [`Machine`] holds VTCM and the unit's lock for a session; natively it holds the units' software models, and
//! a part of the session's own scratch stands for VTCM. Everything else is the same code: [`layout`] places operands,
//! [`operator`] runs gated units and single matrices over the step table, [`attention`] scores and mixes key blocks.
//!
//! Nothing here falls back to another way of computing. What the unit cannot take (rows or weights that are not finite,
//! products beyond a half's range) is counted while it is computed, and fails the pass at the end of its layer.
//!
//! # Fences
//! `pad`, `units`, `operator` and `attention`, listed below: many threads and two engines share one block.

#[allow(unsafe_code)]
pub mod attention;
#[allow(unsafe_code)]
mod gather;
pub mod layout;
#[allow(unsafe_code)]
pub mod operator;
#[allow(unsafe_code)]
pub mod pad;
pub mod selftest;
#[allow(unsafe_code)]
pub mod units;

use crate::attention::Pass;
use crate::expert::Expert;
use crate::kernels::Chain;
use crate::latent;
use crate::linear::Weights;
use crate::model::Model;
#[cfg(target_arch = "hexagon")]
use crate::platform;
use crate::platform::working_for;
use crate::pool::Pool;
use crate::routes::Route;
use crate::view::{Grid, Rows};
use estream_idl::address::TILE;
use estream_idl::call::Config;
use estream_idl::operator::Operator;
use estream_idl::recipe::Mixer;
use estream_idl::status::{Refusal, Status};
use estream_idl::sync::{AtomicU32, Ordering};
use layout::{Layout, Shape};
use operator::{Context, Rowed};
use pad::Pad;
use spin::Mutex;
use units::{Counters, Rule, Units};

/// A column's scale of 1 and no bias, as the low word of the unit's records has it; the high words are 0.
const SCALE_ONE: u32 = 0x3c00;

/// The matrix unit, its DMA engine and its scratchpad. Owned, and its units used, by one thread.
pub struct Machine {
    units: Mutex<Units>,
    #[cfg(target_arch = "hexagon")]
    vtcm: Mutex<platform::Vtcm>,
    bytes: usize,
    /// Whether the unit has its scales.
    loaded: AtomicU32,
    /// Outputs beyond a half's range.
    saturated: AtomicU32,
    /// Rows with elements that are not finite.
    rows: AtomicU32,
    /// Shares of weights that no half holds.
    weights: AtomicU32,
    /// Operators that did not fit.
    misfits: AtomicU32,
}

impl core::fmt::Debug for Machine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Machine")
            .field("bytes", &self.bytes)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl Machine {
    /// The machine with a scratchpad of `bytes` bytes, for the calling thread.
    ///
    /// # Errors
    /// `ScratchTooSmall` or `NoKernels` where the platform does not give scratchpad, lock or power.
    pub fn new(bytes: usize) -> Result<Self, Refusal> {
        Ok(Self {
            units: Mutex::new(Units::new(bytes)),
            #[cfg(target_arch = "hexagon")]
            vtcm: Mutex::new(platform::Vtcm::acquire(bytes)?),
            bytes,
            loaded: AtomicU32::new(0),
            saturated: AtomicU32::new(0),
            rows: AtomicU32::new(0),
            weights: AtomicU32::new(0),
            misfits: AtomicU32::new(0),
        })
    }

    /// Bytes of the scratchpad.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Words of the session's scratch that stand for the scratchpad: none where there is one.
    #[must_use]
    pub const fn scratch_words(bytes: usize) -> usize {
        if cfg!(target_arch = "hexagon") { 0 } else { bytes.div_ceil(4) }
    }

    /// Calls `body` with the scratchpad and the units ready for one operator. `scratch` holds [`Self::scratch_words`].
    ///
    /// # Panics
    /// When `scratch` is shorter.
    fn with(&self, pool: &Pool<'_>, scratch: &mut [f32], body: impl FnOnce(Context<'_>)) {
        #[cfg(target_arch = "hexagon")]
        let mut vtcm = self.vtcm.lock();
        #[cfg(target_arch = "hexagon")]
        let mut pad = {
            let _ = scratch;
            // What was held is gone where the system took the scratchpad back in between.
            if !vtcm.hold() {
                self.loaded.store(0, Ordering::Relaxed);
            }
            let address = vtcm.address();
            Pad::new(vtcm.block(), address)
        };
        #[cfg(not(target_arch = "hexagon"))]
        let mut pad = {
            let words = &mut scratch[..Self::scratch_words(self.bytes)];
            Pad::new(zerocopy::IntoBytes::as_mut_bytes(words), units::PAD_ADDRESS)
        };
        {
            let mut units = self.units.lock();
            units.begin(pad);
            // Ordering: one thread owns the machine.
            if self.loaded.swap(1, Ordering::Relaxed) == 0 {
                pad.fill_bias(SCALE_ONE);
                units.load_bias(pad.address(0));
            }
        }
        body(Context { machine: self, pad, pool });
    }

    /// `out = x · weights` (or `out += …`), for all strips of `out` from the matrix's strip `first_strip` on.
    pub fn product(
        &self,
        pool: &Pool<'_>,
        scratch: &mut [f32],
        x: Rows<'_>,
        weights: Weights<'_>,
        first_strip: usize,
        out: Rowed<'_>,
        chain: Chain,
    ) {
        let shape = Shape { inward: None, inputs: weights.k, formats: &[weights.format], max_rows: x.rows };
        let Ok(layout) = Layout::new(&shape, self.bytes, 0) else { return self.misfit() };
        self.with(pool, scratch, |context| {
            operator::product(context, &layout, weights, first_strip, x, &out, chain)
        });
    }

    /// Adds an expert's output for `routes` to `y`; a token comes once.
    pub fn gated(
        &self,
        pool: &Pool<'_>,
        scratch: &mut [f32],
        layout: &Layout,
        expert: Expert<'_>,
        x: Rows<'_>,
        routes: &[Route],
        y: &mut [f32],
    ) {
        let (width, inner) = (expert.down.0.n, expert.gate.0.n);
        let weights = [expert.gate, expert.up, expert.down].map(|(matrix, bytes)| Weights {
            format: matrix.format,
            k: matrix.k,
            bytes,
        });
        let y = Grid::new(y, width);
        self.with(pool, scratch, |context| operator::gated(context, layout, weights, x, routes, &y, inner));
    }

    /// Causal attention; arguments as [`Pass::attend`] has them.
    pub fn attend(
        &self,
        pass: &Pass<'_>,
        scratch: &mut [f32],
        queries: Rows<'_>,
        keys: &[f32],
        values: &[f32],
        tokens: usize,
        out: &Grid<'_>,
    ) {
        let Pass { attention, spans, .. } = *pass;
        self.with(pass.pool, scratch, |context| {
            working_for(Operator::Attention, || {
                attention::attend(context, attention, spans, queries, keys, values, tokens, out);
            });
        });
    }

    /// An operator that the planner let through does not fit: a bug of this crate, told by [`Self::check`].
    fn misfit(&self) {
        self.misfits.store(1, Ordering::Relaxed);
    }

    /// What the units have done since the session began.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.units.lock().counters()
    }

    /// The first rule of the units that was broken.
    #[must_use]
    pub fn broken(&self) -> Option<Rule> {
        self.units.lock().broken()
    }

    /// Whether everything computed since the last look stayed inside the units' range and rules.
    ///
    /// # Errors
    /// `Saturated` with the number of outputs (or `detail` 1 and the number of shares of weights) beyond it, `NotFinite`
    /// with the number of rows that were not; `Internal` for a broken rule or an operator that did not fit.
    pub fn check(&self) -> Result<(), Refusal> {
        let take = |counter: &AtomicU32| counter.swap(0, Ordering::Relaxed);
        let [rows, weights, saturated] = [&self.rows, &self.weights, &self.saturated].map(take);
        let count =
            |count: u32, status: Status, detail| Refusal { needed: count.into(), limit: 0, detail, status };
        if self.broken().is_some() || take(&self.misfits) > 0 {
            return Err(Status::Internal.into());
        }
        match (rows, weights, saturated) {
            (0, 0, 0) => Ok(()),
            (0, 0, saturated) => Err(count(saturated, Status::Saturated, 0)),
            (0, weights, _) => Err(count(weights, Status::Saturated, 1)),
            (rows, ..) => Err(count(rows, Status::NotFinite, 0)),
        }
    }

    fn add(counter: &AtomicU32, count: u32) {
        if count > 0 {
            // Ordering: read after the pool has joined.
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// The least scratchpad for a model's single matrices and mixers; gated units have layouts of their own.
#[must_use]
pub fn least_bytes(model: &Model<'_>, config: &Config) -> usize {
    let tokens = config.max_tokens as usize;
    let matrices = model.directory.matrices.iter().filter(|entry| entry.n > 0).filter_map(|entry| {
        let shape = Shape {
            inward: None,
            inputs: entry.k as usize,
            formats: &[entry.format.check()?],
            max_rows: TILE,
        };
        Layout::new(&shape, 0, TILE).err()
    });
    let mixers = model.recipe.kinds.iter().filter_map(|kind| match &kind.mixer {
        Mixer::Attention(attention) => Some(attention::least_bytes(attention, tokens)),
        Mixer::Latent(mixer) => Some(attention::least_bytes(&latent::attention(mixer), tokens)),
        Mixer::Convolution(_) => None,
    });
    matrices.chain(mixers).max().unwrap_or(0)
}
