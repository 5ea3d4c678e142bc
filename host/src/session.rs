//! A session: a pack, a firmware and the memory between them, opened once and asked many times.
//!
//! Opening goes hello → plan → memory → attach → threads → start. The threads run before `start`, because the firmware
//! asks for its dense weights from then on. Closing goes the other way round: the firmware is stopped (it may drain
//! loads through the threads), then the threads end, then the memory goes with its last handle.
//!
//! A session fails once: after a breach of the protocol or a firmware that fell silent, every further pass returns that
//! first error. A refusal, a failed read, a cancelled pass or a sink that could not write end the pass alone.

use crate::arena::Arena;
use crate::batch::{Request, Results, RowSink, Tables, check_rows};
use crate::cancel::{Canceller, Running};
use crate::error::FirstError;
use crate::link::{Attachment, Outbox};
use crate::loader::{Loader, Source, now_ns};
use crate::pack::Pack;
use crate::pump::{Arrival, EventLog, Pump};
use crate::report::{MemoryReport, Outcome};
use crate::room;
use crate::watch::Watch;
use crate::window::panel;
use crate::{Error, IoMode, Transport};
use estream_idl::PROTOCOL;
use estream_idl::address::Segment;
use estream_idl::call::{self, Config, Plan, Prepare, Reply};
use estream_idl::control::{CONTROL_PAGES, MAX_TICKETS};
use estream_idl::log::Record;
use estream_idl::message::ToDsp;
use estream_idl::status::{Refusal, Status};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a firmware may show no sign of life.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a firmware that has failed may take to stop before it is left behind.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often a pass that hears nothing looks at the heartbeat.
const LOOK: Duration = Duration::from_millis(100);

/// An open session.
pub struct Session {
    device: Option<Attachment>,
    pump: Option<Pump>,
    loader: Option<Loader>,
    populate: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    inbox: Receiver<Arrival>,
    running: Arc<Running>,
    failure: Arc<FirstError>,
    arena: Arena,
    tables: Tables,
    plan: Plan,
    io_mode: IoMode,
    path: Arc<Path>,
    silence: Duration,
    passes: u32,
}

impl Session {
    /// Opens a session of the firmware behind `transport` on `pack`.
    ///
    /// # Errors
    /// When the firmware is another version or refuses the configuration or the pack, or memory or threads are not to be
    /// had.
    pub fn open(pack: Pack, mut transport: Box<dyn Transport>, config: Config) -> Result<Self, Error> {
        let path: Arc<Path> = pack.path().into();
        let named =
            |error: Error| if error.exit == crate::Exit::Input { error.in_file(&path) } else { error };
        match transport.call(&call::Request::Hello { protocol: PROTOCOL })? {
            Reply::Hello(hello) if hello.protocol == PROTOCOL => {}
            Reply::Hello(hello) => {
                let (needed, limit) = (PROTOCOL.into(), hello.protocol.into());
                return Err(Error::refused(Refusal { status: Status::Version, needed, limit, detail: 0 }));
            }
            other => return Err(unexpected(other)),
        }
        let prepare = Prepare { config, recipe: pack.recipe(), directory: pack.directory() };
        let plan = planned(transport.call(&call::Request::Plan(prepare))?).map_err(named)?;
        check_plan(&plan, &config)?;
        let tables = Tables::new(config, plan.segments.of(Segment::Io))?;
        room::check(&plan)?;

        let arena = match transport.memory_file() {
            Some(file) => Arena::make_in(plan.segments, file)?,
            None => Arena::make(plan.segments, transport.needs_shared_memory())?,
        };
        let mut device = Attachment::new(transport, arena.clone())?;
        let failure = Arc::new(FirstError::default());
        let outbox = Arc::new(Outbox::new(arena.clone())?);
        let (recipe, directory) = (pack.recipe().to_vec(), pack.directory().to_vec());
        let (source, io_mode) = Source::new(pack);
        let readers = plan.depth.min(MAX_TICKETS as u32);
        let loader = Loader::start(source, readers, &arena, &outbox, &failure)?;
        let (pump, inbox) = Pump::start(&arena, loader.submitter(), &failure)?;
        let populate = populate(&arena)?;

        let prepare = Prepare { config, recipe: &recipe, directory: &directory };
        let started = device.call(&call::Request::Start(prepare)).and_then(planned).map_err(named);
        let session = Self {
            device: Some(device),
            pump: Some(pump),
            loader: Some(loader),
            populate: Some(populate),
            inbox,
            running: Arc::new(Running::new(outbox)),
            failure,
            arena,
            tables,
            plan,
            io_mode,
            path: path.clone(),
            silence: SILENCE,
            passes: 0,
        };
        // On an error the session is dropped here, which undoes everything in order.
        if started? != plan {
            return Err(Error::protocol("it started with another plan than it gave"));
        }
        Ok(session)
    }

    /// What the firmware chose, after clamping.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Memory by component.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let bytes = |segment| self.plan.segments.bytes_of(segment);
        let (page_kind, reason) = self.arena.pages();
        MemoryReport {
            arena_bytes: bytes(Segment::Arena),
            dense_bytes: bytes(Segment::Dense),
            io_bytes: bytes(Segment::Io),
            control_bytes: bytes(Segment::Control),
            embed_bytes: bytes(Segment::Embed),
            private_bytes: self.plan.private_bytes,
            stack_bytes: self.plan.stack_bytes,
            page_kind,
            reason: reason.to_owned(),
        }
    }

    /// How the pack is read.
    #[must_use]
    pub fn io_mode(&self) -> IoMode {
        self.io_mode.clone()
    }

    /// A handle that gives up the running pass.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller::of(&self.running)
    }

    /// Sets how long the firmware may show no sign of life during a pass while no read is pending; 30 s at first.
    pub const fn set_silence_limit(&mut self, limit: Duration) {
        self.silence = limit;
    }

    /// What the firmware has said since the last call, oldest first.
    pub fn take_log(&mut self) -> Vec<Record> {
        self.pump.as_ref().map(Pump::take_records).unwrap_or_default()
    }

    /// Waits until what stays resident is in, or the firmware has said that it will not be (the first pass then tells
    /// why). A pass waits for it anyway; waiting here puts the time where it belongs.
    ///
    /// # Errors
    /// When the session has failed, or the firmware falls silent.
    pub fn settle(&self) -> Result<(), Error> {
        let (Some(loader), Some(pump)) = (&self.loader, &self.pump) else {
            return Err(Status::Stopped.into());
        };
        let memory = self.arena.memory();
        let mut watch = Watch::new(memory.control().ok_or(Status::BadState)?, self.silence);
        let mut busy = Instant::now();
        while !pump.settled(LOOK) {
            self.failure.check()?;
            self.device.as_ref().map_or(Ok(()), Attachment::check)?;
            watch.look(loader.pending()).inspect_err(|error| self.failure.set(error.clone()))?;
            if loader.pending() > 0 {
                busy = Instant::now();
            }
            // A firmware that beats and asks for nothing could go on like this for ever.
            if busy.elapsed() > self.silence {
                let what =
                    format!("the firmware has loaded nothing for {:.1?} and is not ready", busy.elapsed());
                let error = Error::runtime("silent", what);
                self.failure.set(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Runs one pass over `requests`; panels of logits go to `sink`.
    ///
    /// # Errors
    /// When the batch exceeds a limit of the configuration, the firmware refuses it, a read or a checksum fails, the
    /// sink does, the pass is cancelled, or the firmware breaks the protocol or falls silent.
    pub fn prefill(&mut self, requests: &[Request<'_>], sink: &mut dyn RowSink) -> Result<Outcome, Error> {
        let begin = now_ns();
        self.failure.check()?;
        self.tables.check(requests)?;
        let (Some(loader), Some(pump)) = (&self.loader, &self.pump) else {
            return Err(Status::Stopped.into());
        };
        self.passes = self.passes.checked_add(1).unwrap_or(1);
        self.running.begin(self.passes);
        loader.begin_pass();
        pump.take_events();
        let ended = self.run(self.passes, requests, loader, sink);
        self.running.end();
        let (refusal, unwritten) = ended.inspect_err(|error| self.failure.set(error.clone()))?;
        if let Some(error) = unwritten {
            return Err(Error::runtime("sink", format!("the rows of logits were not taken: {error}")));
        }
        self.verdict(refusal, loader)?;
        if let Some(error) = loader.unchecked().or_else(|| loader.changed()) {
            return Err(error);
        }

        let memory = self.arena.memory();
        let words = memory.words(Segment::Io);
        let Results { tops, target_logprobs } = self.tables.results(words, requests)?;
        let mut report = self.tables.report(words);
        let (io, reads) = loader.take_reads();
        let EventLog { events, dropped } = pump.take_events();
        report.events_dropped = report.events_dropped.saturating_add(dropped);
        let wall_ns = now_ns() - begin;
        Ok(Outcome { tops, target_logprobs, report, io, reads, events, wall_ns })
    }

    /// Sends the pass and serves it to its end: how it ended, and what the sink said where it failed. An error here is
    /// the session's end.
    fn run(
        &self,
        pass: u32,
        requests: &[Request<'_>],
        loader: &Loader,
        sink: &mut dyn RowSink,
    ) -> Result<(Refusal, Option<std::io::Error>), Error> {
        let memory = self.arena.memory();
        let outbox = self.running.outbox();
        let control = memory.control().ok_or(Status::BadState)?;
        self.tables.write(memory.words(Segment::Io), requests);
        let mut watch = Watch::new(control, self.silence);
        let mut unwritten = None;
        self.running.send(pass, requests.len() as u32)?;
        loop {
            match self.inbox.recv_timeout(LOOK) {
                Ok(Arrival::Rows(rows)) => {
                    check_rows(&rows, requests)?;
                    let panel = panel(&memory, &rows, self.tables.panel_page());
                    let panel = panel.ok_or_else(|| Error::protocol(format!("{rows:?} is no panel")))?;
                    if unwritten.is_none() {
                        unwritten = sink.rows(&rows, panel).err();
                        if unwritten.is_some() {
                            outbox.send(ToDsp::Cancel { pass })?;
                        }
                    }
                    outbox.send(ToDsp::Taken { ticket: rows.ticket })?;
                    watch.heard();
                }
                Ok(Arrival::Done { pass: ended, refusal }) if ended == pass => {
                    return Ok((refusal, unwritten));
                }
                Ok(Arrival::Done { refusal, .. }) if ends_session(refusal.status) => {
                    return Err(Error::refused(refusal));
                }
                Ok(Arrival::Done { pass: ended, .. }) => {
                    return Err(Error::protocol(format!("pass {ended} ended while pass {pass} ran")));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.failure.check()?;
                    self.device.as_ref().map_or(Ok(()), Attachment::check)?;
                    watch.look(loader.pending())?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.failure.check()?;
                    return Err(Error::runtime("pump", "the thread that hears the firmware has ended"));
                }
            }
        }
    }

    /// The error that a pass's end stands for, if any.
    fn verdict(&self, refusal: Refusal, loader: &Loader) -> Result<(), Error> {
        let plain = || Error::refused(refusal);
        let error = match refusal.status {
            Status::Ok => return Ok(()),
            // What the reader met says more than the status that it sent.
            Status::LoadFailed | Status::Checksum => {
                let told = loader.fault().unwrap_or_else(|| plain().in_file(&self.path));
                Error { refusal: Some(refusal), ..told }
            }
            status if ends_session(status) => {
                self.failure.set(plain());
                plain()
            }
            _ => plain(),
        };
        Err(error)
    }

    /// Ends the session and gives its memory back.
    ///
    /// # Errors
    /// When the firmware had failed, or does not stop.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        let Some(device) = self.device.take() else { return Ok(()) };
        let patience = if self.failure.check().is_ok() { self.silence } else { FAREWELL };
        let stopped = farewell(device, patience);
        if let Some((stop, thread)) = self.populate.take() {
            stop.store(true, Ordering::Relaxed);
            // It only asks the kernel for pages; a panic there has been printed.
            let _ = thread.join();
        }
        self.pump = None;
        self.loader = None;
        self.failure.check().and(stopped)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // `close` is where a caller hears of it.
        let _ = self.shut_down();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("path", &self.path).field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Stops the firmware and closes its session, on a thread of its own: a firmware that never returns is ended by its
/// transport or, where that cannot, left behind with its handle on the memory, and the program goes on.
fn farewell(mut device: Attachment, patience: Duration) -> Result<(), Error> {
    let (tell, hear) = channel();
    let terminate = device.terminator();
    let stop = move || {
        let reply = device.call(&call::Request::Stop);
        drop(device);
        // Nobody listens any more when it took too long.
        let _ = tell.send(reply);
    };
    thread::Builder::new().name("estream-stop".into()).spawn(stop).map_err(|error| {
        Error::runtime("no_threads", format!("the firmware could not be stopped: {error}"))
    })?;
    match hear.recv_timeout(patience) {
        Ok(Ok(Reply::Stopped(Status::Ok | Status::Stopped))) => Ok(()),
        Ok(Ok(Reply::Stopped(status))) => Err(status.into()),
        Ok(Ok(other)) => Err(unexpected(other)),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            if let Some(terminate) = terminate {
                terminate();
                // It has ended, so the thread comes back soon.
                let _ = hear.recv_timeout(FAREWELL);
            }
            Err(Error::runtime("silent", format!("the firmware did not stop within {patience:?}")))
        }
    }
}

/// Starts the thread that brings the pages in while the dense weights arrive.
fn populate(arena: &Arena) -> Result<(Arc<AtomicBool>, JoinHandle<()>), Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let run = {
        let (arena, stop) = (arena.clone(), stop.clone());
        move || arena.populate(&stop)
    };
    let thread = thread::Builder::new().name("estream-populate".into()).spawn(run);
    let thread = thread.map_err(|error| {
        Error::runtime("no_threads", format!("the thread that populates memory could not be made: {error}"))
    })?;
    Ok((stop, thread))
}

fn planned(reply: Reply) -> Result<Plan, Error> {
    if let Reply::Plan(plan) = reply { Ok(plan) } else { Err(unexpected(reply)) }
}

fn unexpected(reply: Reply) -> Error {
    match reply {
        Reply::Refused(refusal) => Error::refused(refusal),
        other => Error::protocol(format!("{other:?} answers no call that was made")),
    }
}

/// Whether a firmware that says this has ended.
const fn ends_session(status: Status) -> bool {
    matches!(status, Status::Protocol | Status::Stopped | Status::Internal)
}

/// Checks what the host relies on in a plan.
fn check_plan(plan: &Plan, config: &Config) -> Result<(), Error> {
    let control = plan.segments.of(Segment::Control);
    if control < CONTROL_PAGES {
        return Err(Error::protocol(format!(
            "a control segment of {control} pages, {CONTROL_PAGES} are needed"
        )));
    }
    if plan.depth == 0 || plan.depth > config.depth {
        let (planned, asked) = (plan.depth, config.depth);
        return Err(Error::protocol(format!(
            "it plans {planned} reads in flight where {asked} were asked for"
        )));
    }
    Ok(())
}
