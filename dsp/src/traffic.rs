//! Traffic: loads, banks and panels, everything that moves while the engine computes.
//!
//! What comes in is taken in wherever the engine looks ([`Traffic::pump`]) or sleeps; what free banks can take is asked for
//! at the same places, by the schedule that the residency keeps. The first failure of a pass is kept until the engine
//! looks again.

use crate::engine::Fault;
use crate::mailbox::{Arrived, Mailbox, Purpose};
use crate::model::Model;
use crate::platform;
use crate::residency::{Issue, MAX_LOAD, Residency, Store};
use crate::routes::RouteMap;
use crate::shared::Shared;
use crate::window::{Cut, Stage, loads};
use core::ops::Range;
use estream_idl::address::{PAGE, Segment, TILE};
use estream_idl::control::MAX_TICKETS;
use estream_idl::io::PANELS;
use estream_idl::log::Message;
use estream_idl::message::EventKind;
use estream_idl::status::{Refusal, Status};
use estream_idl::streaming::Schedule;

/// Dense weights are asked for in loads of at least this size, whole matrices each.
const DENSE_LOAD: u64 = 8 << 20;
/// Tickets kept free for embedding waves and panels.
pub(crate) const RESERVED_TICKETS: usize = 72;

/// The window of streamed dense weights at run time.
#[derive(Debug)]
struct Window {
    cut: Cut,
    /// The half of the stage at work.
    half: usize,
    /// The stage at work.
    now: Option<Stage>,
    /// What was asked for into the other half.
    ahead: Option<Stage>,
    /// Its loads that have not ended.
    loading: usize,
}

/// The traffic of one session.
pub(crate) struct Traffic<'a> {
    pub(crate) mailbox: Mailbox<'a>,
    pub(crate) residency: Residency<'a>,
    store: Store<'a>,
    window: Option<Window>,
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

impl<'a> Traffic<'a> {
    /// Nothing on its way yet.
    pub(crate) fn new(
        mailbox: Mailbox<'a>,
        residency: Residency<'a>,
        store: Store<'a>,
        cut: Option<Cut>,
    ) -> Self {
        Self {
            mailbox,
            residency,
            store,
            window: cut.map(|cut| Window { cut, half: 0, now: None, ahead: None, loading: 0 }),
            loading: 0,
            panel_free: [true; PANELS],
            pass: None,
            waiting: None,
            cancelled: None,
            failure: None,
        }
    }
}

impl Traffic<'_> {
    /// The next batch to work on.
    pub(crate) fn next_batch(&mut self) -> Result<(u32, u32), Status> {
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

    pub(crate) fn begin(&mut self, pass: u32) -> Result<(), Fault> {
        self.pass = Some(pass);
        self.failure = (self.cancelled == Some(pass)).then(|| Status::Cancelled.into());
        let _ = self.mailbox.take_counters();
        self.store.begin_pass();
        if let Some(window) = &mut self.window {
            // What a pass that was given up had asked for is in by now, or failed: nobody knows.
            window.ahead = None;
        }
        Ok(self.residency.begin_pass()?)
    }

    /// Ends a pass: what is in flight is drained, then the host is told.
    pub(crate) fn finish(&mut self, pass: u32, refusal: Refusal, began: u64) -> Result<(), Status> {
        self.drain()?;
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

    /// Takes in whatever was asked for and is not wanted any more: whoever waits for the next batch knows of no loads.
    fn drain(&mut self) -> Result<(), Status> {
        self.residency.abort();
        while self.mailbox.outstanding() > 0 {
            let arrived = self.mailbox.wait()?;
            match self.absorb(arrived) {
                Ok(()) | Err(Fault::Pass(_)) => {}
                Err(Fault::Session(status)) => return Err(status),
            }
        }
        Ok(())
    }

    /// The router has spoken: unwanted groups are retired or skipped, and what may be read now is asked for.
    pub(crate) fn routed(&mut self, routes: &RouteMap<'_>) -> Result<(), Fault> {
        self.store.routed(&mut self.residency, |position| !routes.position(position).is_empty())?;
        Ok(())
    }

    /// Takes in what has come, asks for what free banks can take, and reports the first failure.
    pub(crate) fn pump(&mut self) -> Result<(), Fault> {
        while let Some(arrived) = self.mailbox.poll()? {
            self.absorb(arrived)?;
        }
        if let Some(refusal) = self.failure {
            return Err(refusal.into());
        }
        loop {
            let room = (MAX_TICKETS - RESERVED_TICKETS).saturating_sub(self.mailbox.outstanding());
            let mailbox = &mut self.mailbox;
            let issued = self.store.issue::<Fault>(&mut self.residency, room, |bank, load| {
                Ok(mailbox.load(Purpose::Bank(bank), load.segment, load.page, load.pages, load.file)?)
            })?;
            if issued != Issue::Sent {
                return Ok(());
            }
        }
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

    /// Asks for a stage of the dense weights ahead of its use, where they are streamed.
    pub(crate) fn ask(&mut self, model: &Model<'_>, stage: Stage) -> Result<(), Fault> {
        let Some(window) = self.window.as_mut().filter(|window| window.now != Some(stage)) else {
            return Ok(());
        };
        let range = window.cut.range(model, stage).ok_or(Status::BadDirectory)?;
        let (base, from) = (model.directory.header.dense.file, range.start);
        let half = window.cut.half_at(1 - window.half);
        window.ahead = Some(stage);
        for load in loads(range) {
            let (page, pages) = ((half + load.start - from) / PAGE, load.len() / PAGE);
            let file = base + load.start as u64;
            self.mailbox.load(Purpose::Stage, Segment::Dense, page as u32, pages as u32, file)?;
            window.loading += 1;
        }
        Ok(())
    }

    /// Puts a stage of the dense weights to work, where they are streamed: waits for its loads, gives the half of the one
    /// before away, and asks for `ahead` into it.
    pub(crate) fn work_on(
        &mut self,
        model: &Model<'_>,
        shared: &mut Shared<'_>,
        stage: Stage,
        ahead: bool,
    ) -> Result<(), Fault> {
        let Some(Window { now, ahead: asked, .. }) = self.window else { return Ok(()) };
        if now == Some(stage) {
            return Ok(());
        }
        if asked != Some(stage) {
            self.await_stage(model, stage)?;
            self.ask(model, stage)?;
        }
        self.await_stage(model, stage)?;
        let Some(window) = &mut self.window else { return Ok(()) };
        window.half = 1 - window.half;
        (window.now, window.ahead) = (Some(stage), None);
        let range = window.cut.range(model, stage).ok_or(Status::BadDirectory)?;
        shared.work_on(range, window.cut.half_at(window.half));
        match window.cut.after(stage, model.layers(), ahead) {
            Some(next) => self.ask(model, next),
            None => Ok(()),
        }
    }

    /// The strips of the head from `strip` on that are in memory now, brought there if need be.
    pub(crate) fn head_strips(
        &mut self,
        model: &Model<'_>,
        shared: &mut Shared<'_>,
        strip: usize,
    ) -> Result<Range<usize>, Fault> {
        let Some(Window { cut, .. }) = &self.window else {
            return Ok(0..model.head.n.div_ceil(TILE));
        };
        let piece = cut.piece(strip);
        let strips = cut.piece_strips(piece);
        if strip == strips.start {
            self.work_on(model, shared, Stage::Head(piece), true)?;
        }
        Ok(strips)
    }

    /// Waits for the loads of the stage that was asked for, in the name of the one that needs the window.
    fn await_stage(&mut self, model: &Model<'_>, needed: Stage) -> Result<(), Fault> {
        let loading = |traffic: &Self| traffic.window.as_ref().is_some_and(|window| window.loading > 0);
        if loading(self) {
            let layer = match needed {
                Stage::Layer(layer) => layer,
                Stage::Head(_) => model.layers(),
            };
            self.mailbox.event(EventKind::WaitBegin, layer, 0, 0);
            while loading(self) {
                self.sleep()?;
                self.pump()?;
            }
            self.mailbox.event(EventKind::WaitEnd, layer, 0, 0);
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
                    Purpose::Stage => self.window.iter_mut().for_each(|window| window.loading -= 1),
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

    /// Brings in what stays for all passes and waits for it. Where a load fails, the others have ended too.
    pub(crate) fn load_resident(&mut self, model: &Model<'_>) -> Result<(), Fault> {
        let loaded = self.load_dense(model).and_then(|()| self.load_experts());
        if loaded.is_err() {
            self.drain()?;
        }
        loaded
    }

    /// Brings every group into its bank and waits for all of them, where the schedule keeps them there.
    fn load_experts(&mut self) -> Result<(), Fault> {
        if self.residency.schedule() != Schedule::Resident {
            return Ok(());
        }
        self.residency.begin_pass()?;
        loop {
            self.pump()?;
            if self.mailbox.outstanding() == 0 {
                return Ok(());
            }
            self.sleep()?;
        }
    }

    /// Brings in what stays of the dense weights, neighbours in one load, and waits for it.
    fn load_dense(&mut self, model: &Model<'_>) -> Result<(), Fault> {
        let base = model.directory.header.dense.file;
        if let Some(Window { cut, .. }) = &self.window {
            let Range { start, end } = cut.resident;
            let (file, pages) = (base + start as u64, (end - start) / PAGE);
            self.mailbox.load(Purpose::Dense, Segment::Dense, 0, pages as u32, file)?;
            self.loading += 1;
            return self.settle();
        }
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
