//! The engine: one pass over all tokens of a batch, layer by layer, while the banks fill ahead of it.
//!
//! The engine runs on the session's own thread. Between operators it looks into the mailbox, publishes what has arrived
//! and asks for what free banks can take; it sleeps only when the next group is not in yet. A refusal ends the pass, a
//! breach of the protocol ends the session.

use crate::batch::Batch;
use crate::block::Carver;
use crate::buffers::Buffers;
use crate::kernels::Kernels;
use crate::mailbox::{Arrived, Mailbox, Purpose};
use crate::model::{FeedWeights, Model, SparseWeights};
use crate::plan::Planned;
use crate::platform;
use crate::pool::Pool;
use crate::report::PassReport;
use crate::residency::{Residency, ResidencyError};
use crate::routes::{Route, RouteMap};
use crate::shared::Shared;
use crate::{rope, topology};
use estream_idl::address::{PAGE, Segment};
use estream_idl::call::Config;
use estream_idl::io::{IoLayout, PANELS};
use estream_idl::log::Message;
use estream_idl::memory::SharedMemory;
use estream_idl::recipe::Mixer;
use estream_idl::status::{Refusal, Status};
use estream_idl::sync::AtomicU32;

/// The most that one load reads: a group beyond it is asked for in several, cut at record borders.
pub(crate) const MAX_LOAD: usize = 1 << 30;
/// Dense weights are asked for in loads of at least this size, whole matrices each.
const DENSE_LOAD: u64 = 8 << 20;
/// Tickets kept free for embedding waves and panels.
pub(crate) const RESERVED_TICKETS: usize = 72;

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
    pub(crate) kernels: &'static dyn Kernels,
    pub(crate) io: IoLayout,
    pub(crate) shared: Shared<'a>,
    pub(crate) pool: Pool<'a>,
    pub(crate) batch: Batch<'a>,
    pub(crate) work: Work<'a>,
    pub(crate) routes: RouteMap<'a>,
    pub(crate) layers: &'a [Option<crate::model::LayerWeights>],
    pub(crate) topologies: &'a [Option<topology::Topology>],
    pub(crate) class: &'a [u32],
    /// One route a token with weight 1.
    pub(crate) everyone: &'a [Route],
    pub(crate) traffic: Traffic<'a>,
    pub(crate) report: PassReport,
    /// Elements of one layer kind's rotary table.
    pub(crate) angle_elements: usize,
}

/// Loads, banks and panels: everything that moves while the engine computes.
pub(crate) struct Traffic<'a> {
    pub(crate) mailbox: Mailbox<'a>,
    pub(crate) residency: Residency<'a>,
    /// For each layer with experts: byte offset of its first record in the pack, and W_l.
    records: &'a [(u64, u32)],
    layer_experts: &'a [u32],
    group: usize,
    /// Bytes of a bank, G · W_e.
    pub(crate) bank_bytes: usize,
    /// Outstanding loads that are not for banks.
    pub(crate) loading: usize,
    pub(crate) panel_free: [bool; PANELS],
    /// The pass at work.
    pass: Option<u32>,
    /// A batch that came in while dense weights were loading.
    waiting: Option<(u32, u32)>,
    /// The last pass that the host gave up before it began.
    cancelled: Option<u32>,
    /// The first failure of this pass.
    failure: Option<Refusal>,
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
        let Planned { model, config, kernels, io, sizes, budget, reply } = planned;
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
        topology::build(&model, &config, budget, buffers.topologies, buffers.class)?;
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
        let layer_experts = &*buffers.layer_experts;
        let residency = Residency::new(buffers.banks, buffers.groups, layer_experts, config.group)
            .map_err(|_| Refusal::from(Status::BadDirectory))?;
        let banks = reply.segments.bytes_of(Segment::Arena) as usize / config.banks as usize;
        Ok(Self {
            pool: Pool::beating(config.threads as usize, Some(control.heartbeat()[0]))?,
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
            everyone: buffers.everyone,
            traffic: Traffic {
                mailbox: Mailbox::new(control, stop),
                residency,
                records: buffers.records,
                layer_experts,
                group: config.group as usize,
                bank_bytes: banks,
                loading: 0,
                panel_free: [true; PANELS],
                pass: None,
                waiting: None,
                cancelled: None,
                failure: None,
            },
            model,
            config,
            kernels,
            io,
            shared: Shared::new(memory, banks),
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
        let dense = match self.traffic.load_dense(&self.model) {
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
        self.embed()?;
        self.report.mixer_ns += platform::now_ns() - began;
        for layer in 0..self.model.layers() {
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

impl Traffic<'_> {
    /// The next batch to work on.
    fn next_batch(&mut self) -> Result<(u32, u32), Status> {
        if let Some(batch) = self.waiting.take() {
            return Ok(batch);
        }
        loop {
            match self.mailbox.wait()? {
                Arrived::Prefill { pass, requests } => return Ok((pass, requests)),
                // It was given up while its `Done` was on the way.
                Arrived::Cancel(_) => {}
                Arrived::Loaded(..) | Arrived::Taken(_) => return Err(Status::Protocol),
            }
        }
    }

    fn begin(&mut self, pass: u32) -> Result<(), Fault> {
        self.pass = Some(pass);
        self.failure = (self.cancelled == Some(pass)).then(|| Status::Cancelled.into());
        let _ = self.mailbox.take_counters();
        Ok(self.residency.begin_pass()?)
    }

    /// Ends a pass: what is in flight is drained, then the host is told.
    fn finish(&mut self, pass: u32, refusal: Refusal, began: u64) -> Result<(), Status> {
        self.residency.abort();
        while self.mailbox.outstanding() > 0 {
            let arrived = self.mailbox.wait()?;
            match self.absorb(arrived) {
                Ok(()) | Err(Fault::Pass(_)) => {}
                Err(Fault::Session(status)) => return Err(status),
            }
        }
        self.pass = None;
        let refusal = self.failure.take().filter(|_| refusal.status != Status::Ok).unwrap_or(refusal);
        // Said before the pass ends for the host, which then finds it in the ring.
        match refusal {
            Refusal { status: Status::Ok, .. } => {
                let taken = platform::now_ns().saturating_sub(began) / 1000;
                self.mailbox.log(Message::PassEnds, [pass.into(), taken, 0]);
            }
            Refusal { status, detail, .. } => {
                self.mailbox.log(Message::PassRefused, [pass.into(), status as u64, detail.into()]);
            }
        }
        self.mailbox.done(pass, refusal)
    }

    /// Takes in what has come, asks for what free banks can take, and reports the first failure.
    pub(crate) fn pump(&mut self) -> Result<(), Fault> {
        while let Some(arrived) = self.mailbox.poll()? {
            self.absorb(arrived)?;
        }
        if let Some(refusal) = self.failure {
            return Err(refusal.into());
        }
        while self.mailbox.has_room(RESERVED_TICKETS) {
            let Some(fill) = self.residency.next_fill() else { break };
            let (layer, group) = (fill.layer() as usize, fill.group() as usize);
            let (file, record) = self.records[layer];
            let record = record as usize;
            let first = group * self.group;
            let records = self.group.min(self.layer_experts[layer] as usize - first);
            let each = (MAX_LOAD / record).max(1);
            let tickets = records.div_ceil(each);
            if !self.mailbox.has_room(tickets) {
                break;
            }
            let bank = fill.bank();
            for piece in 0..tickets {
                let from = piece * each;
                let bytes = (records - from).min(each) * record;
                let page = (bank as usize * self.bank_bytes + from * record) / PAGE;
                let file = file + ((first + from) * record) as u64;
                let purpose = Purpose::Bank(bank);
                self.mailbox.load(purpose, Segment::Arena, page as u32, (bytes / PAGE) as u32, file)?;
            }
            self.residency.issued(fill, tickets as u32)?;
        }
        Ok(())
    }

    /// Sleeps until something comes, and takes it in.
    pub(crate) fn sleep(&mut self) -> Result<(), Fault> {
        let arrived = self.mailbox.wait()?;
        self.absorb(arrived)
    }

    /// Waits until no load but those of banks is outstanding.
    pub(crate) fn settle(&mut self) -> Result<(), Fault> {
        while self.loading > 0 {
            self.sleep()?;
        }
        self.failure.map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    fn absorb(&mut self, arrived: Arrived) -> Result<(), Fault> {
        match arrived {
            Arrived::Loaded(purpose, status) => {
                let sound = status == Status::Ok;
                if !sound {
                    self.mailbox.log(Message::LoadFailed, [status as u64, 0, 0]);
                    self.failure.get_or_insert(status.into());
                }
                match purpose {
                    Purpose::Bank(bank) if sound => drop(self.residency.loaded(bank)?),
                    Purpose::Bank(bank) => drop(self.residency.failed(bank)?),
                    Purpose::Dense | Purpose::Embed | Purpose::Panel(_) => self.loading -= 1,
                }
            }
            Arrived::Taken(panel) => self.panel_free[panel as usize] = true,
            Arrived::Cancel(pass) => {
                self.cancelled = Some(pass);
                if self.pass == Some(pass) {
                    self.failure.get_or_insert(Status::Cancelled.into());
                }
            }
            // One batch at a time: a second one may only wait while the dense weights load.
            Arrived::Prefill { pass, requests } => {
                if self.pass.is_some() || self.waiting.replace((pass, requests)).is_some() {
                    return Err(Fault::Session(Status::Protocol));
                }
            }
        }
        Ok(())
    }

    /// Asks for all dense matrices, neighbours in one load, and waits for them.
    fn load_dense(&mut self, model: &Model<'_>) -> Result<(), Fault> {
        let base = model.directory.header.dense.file;
        let mut matrices = model.directory.matrices.iter().peekable();
        while let Some(matrix) = matrices.next() {
            let (file, mut end) = (matrix.file, matrix.file + matrix.bytes);
            while end - file < DENSE_LOAD {
                let Some(next) = matrices.next_if(|next| next.file == end) else { break };
                end += next.bytes;
            }
            // A matrix beyond the largest load comes in several.
            for file in (file..end).step_by(MAX_LOAD) {
                while !self.mailbox.has_room(1) {
                    self.sleep()?;
                }
                let bytes = (end - file).min(MAX_LOAD as u64);
                let (page, pages) = ((file - base) / PAGE as u64, bytes / PAGE as u64);
                self.mailbox.load(Purpose::Dense, Segment::Dense, page as u32, pages as u32, file)?;
                self.loading += 1;
            }
        }
        self.settle()
    }
}
