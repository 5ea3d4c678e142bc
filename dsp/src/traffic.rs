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
use estream_idl::address::{PAGE, Segment};
use estream_idl::control::MAX_TICKETS;
use estream_idl::io::PANELS;
use estream_idl::log::Message;
use estream_idl::status::{Refusal, Status};
use estream_idl::streaming::Schedule;

/// Dense weights are asked for in loads of at least this size, whole matrices each.
const DENSE_LOAD: u64 = 8 << 20;
/// Tickets kept free for embedding waves and panels.
pub(crate) const RESERVED_TICKETS: usize = 72;

/// The traffic of one session.
pub(crate) struct Traffic<'a> {
    pub(crate) mailbox: Mailbox<'a>,
    pub(crate) residency: Residency<'a>,
    store: Store<'a>,
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
    pub(crate) const fn new(mailbox: Mailbox<'a>, residency: Residency<'a>, store: Store<'a>) -> Self {
        Self {
            mailbox,
            residency,
            store,
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
        Ok(self.residency.begin_pass()?)
    }

    /// Ends a pass: what is in flight is drained, then the host is told.
    pub(crate) fn finish(&mut self, pass: u32, refusal: Refusal, began: u64) -> Result<(), Status> {
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

    /// Brings every group into its bank and waits for all of them, where the schedule keeps them there.
    pub(crate) fn load_experts(&mut self) -> Result<(), Fault> {
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

    /// Asks for all dense matrices, neighbours in one load, and waits for them.
    pub(crate) fn load_dense(&mut self, model: &Model<'_>) -> Result<(), Fault> {
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
