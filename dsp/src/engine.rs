//! The engine: one pass over all tokens of a batch, layer by layer, while the banks fill ahead of it.
//!
//! The engine runs on the session's own thread. Between operators it looks into the mailbox, publishes what has arrived
//! and asks for what free banks can take; it sleeps only when the next group is not in yet. A refusal ends the pass, a
//! breach of the protocol ends the session.

use crate::batch::Batch;
use crate::block::Carver;
use crate::buffers::Buffers;
use crate::kernels::Backend;
use crate::mailbox::Mailbox;
use crate::matrix::{self, Machine};
use crate::model::{FeedWeights, Model, SparseWeights, Unit};
use crate::plan::Planned;
use crate::platform;
use crate::pool::Pool;
use crate::report::PassReport;
use crate::residency::{Residency, ResidencyError, Store};
use crate::routes::{Route, RouteMap};
use crate::shared::{Panels, Shared};
use crate::topology::Topology;
use crate::traffic::Traffic;
use crate::window::Stage;
use crate::{rope, topology};
use estream_idl::address::Segment;
use estream_idl::call::Config;
use estream_idl::io::IoLayout;
use estream_idl::log::Message;
use estream_idl::memory::SharedMemory;
use estream_idl::recipe::Mixer;
use estream_idl::status::{Refusal, Status};
use estream_idl::streaming::Planning;
use estream_idl::sync::AtomicU32;

/// Why a pass ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pass is refused or failed; the session goes on.
    Pass(Refusal),
    /// The session cannot go on.
    Session(Status),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Pass(refusal)
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        match status {
            Status::Protocol | Status::Stopped | Status::Internal => Self::Session(status),
            other => Self::Pass(other.into()),
        }
    }
}

impl From<ResidencyError> for Fault {
    fn from(error: ResidencyError) -> Self {
        match error {
            // The pass was given up for a reason that is recorded elsewhere.
            ResidencyError::Aborted => Self::Pass(Status::Cancelled.into()),
            _ => Self::Session(Status::Protocol),
        }
    }
}

/// The activations of a pass, and what the operators work in.
pub(crate) struct Work<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) side: &'a mut [f32],
    pub(crate) query: &'a mut [f32],
    pub(crate) keys: &'a mut [f32],
    pub(crate) values: &'a mut [f32],
    pub(crate) angles: &'a mut [f32],
    pub(crate) logits: &'a mut [f32],
    pub(crate) chosen: &'a mut [u16],
    pub(crate) weights: &'a mut [f32],
    pub(crate) positions: &'a mut [u16],
    pub(crate) latent: &'a mut [f32],
    pub(crate) wide: &'a mut [f32],
    pub(crate) packed: &'a mut [f32],
    pub(crate) scratch: &'a mut [f32],
    pub(crate) order: &'a mut [u32],
    pub(crate) row: &'a mut [u8],
    pub(crate) summaries: &'a mut [crate::head::Summary],
    pub(crate) candidates: &'a mut [crate::head::Candidate],
}

/// One session at work.
pub(crate) struct Engine<'a> {
    pub(crate) model: Model<'a>,
    pub(crate) config: Config,
    pub(crate) backend: Backend,
    pub(crate) io: IoLayout,
    pub(crate) shared: Shared<'a>,
    pub(crate) panels: Panels<'a>,
    pub(crate) pool: Pool<'a>,
    pub(crate) batch: Batch<'a>,
    pub(crate) work: Work<'a>,
    pub(crate) routes: RouteMap<'a>,
    pub(crate) layers: &'a [Option<crate::model::LayerWeights>],
    pub(crate) topologies: &'a [Option<topology::Topology>],
    pub(crate) class: &'a [u32],
    /// Scratchpad bytes that topologies are planned for.
    budget: u32,
    /// One route a token with weight 1.
    pub(crate) everyone: &'a [Route],
    pub(crate) traffic: Traffic<'a>,
    pub(crate) report: PassReport,
    /// Elements of one layer kind's rotary table.
    pub(crate) angle_elements: usize,
}

impl<'a> Engine<'a> {
    /// Carves the tables, makes the threads and builds the topologies.
    ///
    /// # Errors
    /// `NoMemory`, `NoThreads`, or what planning finds.
    pub(crate) fn new(
        planned: Planned<'a>,
        block: &'a mut [u8],
        memory: SharedMemory<'a>,
        stop: &'a AtomicU32,
    ) -> Result<Self, Refusal> {
        let Planned { model, config, backend, io, sizes, budget, cut, reply } = planned;
        if memory.pages() != reply.segments {
            return Err(Status::BadState.into());
        }
        let control = memory.control().ok_or(Refusal::from(Status::Protocol))?;
        let mut carver = Carver::carving(block);
        let buffers = Buffers::layout(&mut carver, &sizes, model.recipe.kinds.len())?;
        for (index, layer) in buffers.layers.iter_mut().enumerate() {
            let weights = model.layer(index)?;
            if let FeedWeights::Sparse(SparseWeights { ordinal, store, .. }) = &weights.feed {
                buffers.layer_experts[*ordinal] = store.experts as u32;
                buffers.records[*ordinal] = (store.file, store.record_bytes as u32);
            }
            *layer = Some(weights);
        }
        (0..).zip(buffers.everyone.iter_mut()).for_each(|(token, route)| route.token = token);
        topology::build(&model, &backend, &config, budget, buffers.topologies, buffers.class)?;
        let angle_elements = sizes.angle_elements();
        for (kind, table) in
            model.recipe.kinds.iter().zip(buffers.angles.chunks_exact_mut(angle_elements.max(1)))
        {
            let rope = match &kind.mixer {
                Mixer::Attention(attention) => &attention.rope,
                Mixer::Latent(latent) => &latent.rope,
                Mixer::Convolution(_) => continue,
            };
            let positions = (config.max_tokens as usize).min(model.recipe.context as usize);
            rope::fill(rope, &mut table[..rope::elements(rope, positions)]);
        }
        let mut pool = Pool::beating(config.threads as usize, Some(control.heartbeat()[0]))?;
        if backend.matrix {
            pool = pool.with_matrix(Machine::new(budget as usize)?);
            matrix::selftest::check(&pool, &mut *buffers.scratch)?;
        }
        let layer_experts = &*buffers.layer_experts;
        let residency = Residency::new(buffers.banks, buffers.groups, layer_experts, config.group)
            .map_err(|_| Refusal::from(Status::BadDirectory))?
            .with_schedule(config.streaming.schedule);
        let bank_bytes = reply.segments.bytes_of(Segment::Arena) as usize / config.banks as usize;
        // Without a window all dense weights lie in the segment as they lie in the pack.
        let whole = 0..reply.segments.bytes_of(Segment::Dense) as usize;
        let resident = cut.as_ref().map_or(whole, |cut| cut.resident.clone());
        let store = Store::new(
            buffers.records,
            layer_experts,
            config.group as usize,
            bank_bytes,
            config.streaming.gap,
            buffers.wanted,
        );
        Ok(Self {
            pool,
            batch: Batch {
                requests: buffers.requests,
                ids: buffers.ids,
                outputs: buffers.outputs,
                request_count: 0,
                tokens: 0,
                output_count: 0,
            },
            work: Work {
                x: buffers.x,
                side: buffers.side,
                query: buffers.query,
                keys: buffers.keys,
                values: buffers.values,
                angles: buffers.angles,
                logits: buffers.logits,
                chosen: buffers.chosen,
                weights: buffers.weights,
                positions: buffers.positions,
                latent: buffers.latent,
                wide: buffers.wide,
                packed: buffers.packed,
                scratch: buffers.scratch,
                order: buffers.order,
                row: buffers.row,
                summaries: buffers.summaries,
                candidates: buffers.candidates,
            },
            routes: RouteMap::new(buffers.offsets, buffers.routes),
            layers: buffers.layers,
            topologies: buffers.topologies,
            class: buffers.class,
            budget,
            everyone: buffers.everyone,
            traffic: Traffic::new(Mailbox::new(control, stop), residency, store, cut),
            model,
            config,
            backend,
            io,
            shared: Shared::new(memory, bank_bytes, resident),
            panels: Panels::new(memory),
            report: PassReport::default(),
            angle_elements,
        })
    }

    /// Loads the dense weights, then answers batches until the session stops; how it ended.
    pub(crate) fn serve(&mut self) -> Status {
        let Config { threads, banks, group, .. } = self.config;
        self.traffic.mailbox.log(Message::Started, [threads, banks, group].map(u64::from));
        // A panic is a bug of this crate. Where it unwinds, the log tells the host that the session is over.
        let mut status = Status::Internal;
        platform::guarded(|| status = self.answer());
        if status != Status::Stopped {
            self.traffic.mailbox.log(Message::SessionFails, [status as u64, 0, 0]);
        }
        status
    }

    fn answer(&mut self) -> Status {
        // What is resident comes in before the first pass; where it does not, every pass is refused.
        let dense = match self.traffic.load_resident(&self.model) {
            Ok(()) => None,
            Err(Fault::Pass(refusal)) => Some(refusal),
            Err(Fault::Session(status)) => return status,
        };
        match dense {
            None => self.traffic.mailbox.log(Message::Resident, [0; 3]),
            Some(Refusal { status, detail, .. }) => {
                self.traffic.mailbox.log(Message::NotResident, [status as u64, detail.into(), 0]);
            }
        }
        // The host may be waiting for this before it asks for anything.
        self.traffic.mailbox.ring();
        loop {
            let (pass, requests) = match self.traffic.next_batch() {
                Ok(batch) => batch,
                Err(status) => return status,
            };
            self.traffic.mailbox.log(Message::PassBegins, [pass.into(), requests.into(), 0]);
            let began = platform::now_ns();
            let ended = dense.map_or_else(|| self.pass(pass, requests), |refusal| Err(refusal.into()));
            let refusal = match ended {
                Ok(()) => Status::Ok.into(),
                Err(Fault::Pass(refusal)) => refusal,
                Err(Fault::Session(status)) => {
                    // The host learns of it if the ring still carries; otherwise its heartbeat watch does.
                    let _ = self.traffic.mailbox.done(pass, status.into());
                    return status;
                }
            };
            if let Err(status) = self.traffic.finish(pass, refusal, began) {
                return status;
            }
        }
    }

    fn pass(&mut self, pass: u32, requests: u32) -> Result<(), Fault> {
        let began = platform::now_ns();
        self.report = PassReport::default();
        self.traffic.begin(pass)?;
        self.batch.read(self.shared.io(), &self.io, &self.config, &self.model.recipe, requests)?;
        self.traffic.ask(&self.model, Stage::Layer(0))?;
        self.embed()?;
        self.report.mixer_ns += platform::now_ns() - began;
        let head = self.batch.output_count > 0 || self.batch.spans().iter().any(|request| request.rows != 0);
        for layer in 0..self.model.layers() {
            self.traffic.work_on(&self.model, &mut self.shared, Stage::Layer(layer), head)?;
            self.layer(layer)?;
        }
        let head = platform::now_ns();
        self.head()?;
        let (wait_ns, dropped) = self.traffic.mailbox.take_counters();
        self.report.groups = self.traffic.residency.counters();
        self.report.head_ns = platform::now_ns() - head;
        self.report.pass_ns = platform::now_ns() - began;
        self.report.wait_ns = wait_ns;
        self.report.events_dropped = dropped;
        self.report.write(self.shared.io(), &self.io);
        Ok(())
    }

    /// The topology of an expert call: the one of its class, or one made for this call alone.
    pub(crate) fn topology(&self, class: usize, unit: &Unit) -> Result<Topology, Fault> {
        match self.config.streaming.planning {
            Planning::Once => Ok(self.topologies[self.class[class] as usize].ok_or(Status::BadDirectory)?),
            Planning::PerExpert => Ok(Topology::new(unit, &self.backend, &self.config, self.budget)?),
        }
    }

    fn embed(&mut self) -> Result<(), Fault> {
        let width = self.model.recipe.width as usize;
        let staging = crate::embed::staging_pages(&self.model.embedding, self.config.max_tokens as usize);
        let tokens = self.batch.tokens;
        crate::embed::embed(
            &self.model.embedding,
            staging,
            self.batch.tokens(),
            &mut self.work.order[..tokens],
            self.work.row,
            width,
            self.work.x,
            &mut self.traffic,
            &self.shared,
        )
    }
}
