//! The loader: Q reader threads that bring byte ranges of the pack straight into the shared memory.
//!
//! A load is checked when it is submitted, waits in one queue, and is read by the first free thread: so at most Q reads
//! are in flight, and they start in the firmware's order. Each thread then says `Loaded`, after the landing was given
//! back: the firmware may ask for the same range again at once. A read that fails is the firmware's to hear as a status
//! and the user's to hear as a sentence, which is kept here until the pass ends.

use crate::arena::Arena;
use crate::error::FirstError;
use crate::link::Outbox;
use crate::pack::Pack;
use crate::read::Reader;
use crate::report::{IoReport, ReadSpan};
use crate::sums::Sums;
use crate::verify::Verify;
use crate::window::{Flights, Landing};
use crate::{Error, Exit, IoMode};
use estream_idl::address::Segment;
use estream_idl::message::{Load, ToDsp};
use estream_idl::status::Status;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Where loads are read from.
pub(crate) struct Source {
    path: Arc<Path>,
    reader: Reader,
    /// The checksums, where each load is checked.
    sums: Option<Sums>,
    file_bytes: u64,
}

impl Source {
    /// The pack as a source, its tables left behind, with how it is read.
    pub(crate) fn new(pack: Pack) -> (Self, IoMode) {
        let file_bytes = pack.header().file_bytes;
        let check = pack.verified().policy == Verify::Always;
        let Pack { path, reader, io_mode, sums, .. } = pack;
        (Self { path, reader, sums: check.then_some(sums), file_bytes }, io_mode)
    }

    /// Reads one load into its landing, and checks it where that is the policy.
    fn read(&self, landing: &mut Landing, arena: &Arena) -> Result<(), (Status, Error)> {
        let load = landing.load();
        let memory = arena.memory();
        let bytes = landing.bytes(&memory).map_err(|error| (Status::Protocol, error))?;
        self.reader.fill(bytes, load.file).map_err(|error| {
            let end = load.file + bytes.len() as u64;
            let what = format!("bytes {}..{end} cannot be read: {error}", load.file);
            let told = Error::bad_pack("load_failed", &self.path, load.file, what);
            (Status::LoadFailed, Error { exit: Exit::Runtime, ..told })
        })?;
        match self.sums.as_ref().map_or(Ok(()), |sums| sums.check(load.file, bytes)) {
            Ok(()) => Ok(()),
            Err(mismatch) => {
                let error = Error::bad_pack("checksum", &self.path, mismatch.file(), mismatch);
                Err((Status::Checksum, error))
            }
        }
    }
}

struct Shared {
    source: Source,
    arena: Arena,
    outbox: Arc<Outbox>,
    failure: Arc<FirstError>,
    /// What the first failed read of the pass met.
    fault: FirstError,
    /// What the first failed read met of what is loaded before the first pass: no pass gets past it.
    open_fault: FirstError,
    /// Whether a pass has begun.
    begun: AtomicBool,
    queue: Mutex<Queue>,
    work: Condvar,
    log: Mutex<Log>,
}

struct Queue {
    flights: Flights,
    waiting: VecDeque<Landing>,
    closed: bool,
}

#[derive(Default)]
struct Log {
    spans: Vec<ReadSpan>,
    io: IoReport,
}

/// The queue and its readers.
pub(crate) struct Loader {
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
}

/// A way to hand loads to the readers.
#[derive(Clone)]
pub(crate) struct Submitter(Arc<Shared>);

impl Loader {
    /// Starts `depth` readers.
    pub(crate) fn start(
        source: Source,
        depth: u32,
        arena: &Arena,
        outbox: &Arc<Outbox>,
        failure: &Arc<FirstError>,
    ) -> Result<Self, Error> {
        let flights = Flights::new(arena.memory().pages(), source.file_bytes);
        let shared = Arc::new(Shared {
            source,
            arena: arena.clone(),
            outbox: outbox.clone(),
            failure: failure.clone(),
            fault: FirstError::default(),
            open_fault: FirstError::default(),
            begun: AtomicBool::new(false),
            queue: Mutex::new(Queue { flights, waiting: VecDeque::new(), closed: false }),
            work: Condvar::new(),
            log: Mutex::default(),
        });
        let mut loader = Self { shared, readers: Vec::new() };
        for number in 0..depth {
            let shared = loader.shared.clone();
            let reader = thread::Builder::new().name(format!("estream-read-{number}"));
            // On failure the readers made so far end with the loader.
            let reader = reader.spawn(move || shared.run()).map_err(|error| {
                Error::runtime("no_threads", format!("reader thread {number} could not be made: {error}"))
            })?;
            loader.readers.push(reader);
        }
        Ok(loader)
    }

    /// A handle for the thread that receives loads.
    pub(crate) fn submitter(&self) -> Submitter {
        Submitter(self.shared.clone())
    }

    /// Loads that were admitted and have not ended.
    pub(crate) fn pending(&self) -> usize {
        self.shared.queue().flights.len()
    }

    /// Forgets the reads and faults so far: a pass begins.
    pub(crate) fn begin_pass(&self) {
        let mut log = self.shared.log();
        log.spans.clear();
        (log.io.bytes, log.io.reads) = (0, 0);
        drop(log);
        self.shared.fault.take();
        // Ordering: a load of this pass is asked for after it, through the rings.
        self.shared.begun.store(true, Ordering::Release);
    }

    /// The reads since the pass began.
    pub(crate) fn take_reads(&self) -> (IoReport, Vec<ReadSpan>) {
        let mut log = self.shared.log();
        (log.io, std::mem::take(&mut log.spans))
    }

    /// The error of bytes that were handed over and could not be checked, under a policy that checks all: parts of an
    /// extent whose others were never asked for.
    pub(crate) fn unchecked(&self) -> Option<Error> {
        let Source { sums, path, .. } = &self.shared.source;
        let file = sums.as_ref()?.unchecked()?;
        let what = "the firmware asked for a part of an extent only, so it cannot be checked";
        Some(Error { exit: Exit::Runtime, ..Error::bad_pack("unchecked", path, file, what) })
    }

    /// What the first failed read met: of this pass, else of what was loaded before any.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.shared.fault.check().and(self.shared.open_fault.check()).err()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.work.notify_all();
        for reader in self.readers.drain(..) {
            // A reader that panicked has said so on standard error; its load never ended, which the session noticed.
            let _ = reader.join();
        }
    }
}

impl Submitter {
    /// Checks `load` and queues it.
    pub(crate) fn submit(&self, load: Load) -> Result<(), Error> {
        let mut queue = self.0.queue();
        let landing = queue.flights.begin(load)?;
        queue.waiting.push_back(landing);
        drop(queue);
        self.0.work.notify_one();
        Ok(())
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next load, or `None` when the loader closes.
    fn next(&self) -> Option<Landing> {
        let idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.closed;
        let queue = self.work.wait_while(self.queue(), idle);
        queue.unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }

    fn run(&self) {
        let _alarm = Alarm(&self.failure);
        while let Some(mut landing) = self.next() {
            let Load { ticket, segment, page, pages, file } = landing.load();
            let begin_ns = now_ns();
            let status = match self.source.read(&mut landing, &self.arena) {
                Ok(()) => {
                    let span = ReadSpan { segment, page, pages, file, begin_ns, end_ns: now_ns() };
                    self.log().add(span);
                    Status::Ok
                }
                Err((status, error)) => {
                    let begun = self.begun.load(Ordering::Acquire);
                    // Dense weights may still be on their way when the first pass is asked for.
                    if !begun || segment == Segment::Dense {
                        self.open_fault.set(error.clone());
                    }
                    if begun {
                        self.fault.set(error);
                    }
                    status
                }
            };
            self.queue().flights.end(landing);
            if let Err(error) = self.outbox.send(ToDsp::Loaded { ticket, status }) {
                self.failure.set(error);
            }
        }
    }
}

/// Fails the session if its thread panics: the load at work would otherwise be pending for ever.
struct Alarm<'a>(&'a FirstError);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.set(Error::runtime("reader", "a reader thread has panicked"));
        }
    }
}

impl Log {
    fn add(&mut self, span: ReadSpan) {
        let bytes = u64::from(span.pages) * estream_idl::address::PAGE as u64;
        self.io.bytes += bytes;
        self.io.reads += 1;
        self.io.session_bytes += bytes;
        self.io.session_reads += 1;
        self.spans.push(span);
    }
}

/// The monotonic clock, the one that the native firmware's events use.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests;
