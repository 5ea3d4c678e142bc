//! The loader: Q reader threads that bring byte ranges of the pack straight into the shared memory.
//!
//! A load is checked when it is submitted, waits in one queue, and is read by the first free thread, together with those
//! behind it that adjoin (`queue`): so at most Q requests are in flight, and they start in the firmware's order. Each
//! thread then says `Loaded` for each load, after its landing was given back: the firmware may ask for the same range again
//! at once. A read that fails is the firmware's to hear as a status and the user's to hear as a sentence, which is kept
//! here until the pass ends.
//!
//! A reader that panics at a read is a fault of this program: the session ends with an error that names what was being
//! read. The thread itself goes on, since a firmware that is never answered could not be stopped.

use crate::arena::Arena;
use crate::error::FirstError;
use crate::identity::Identity;
use crate::link::Outbox;
use crate::pack::Pack;
use crate::read::Reader;
use crate::report::{IoReport, ReadSpan};
use crate::sums::Sums;
use crate::verify::Verify;
use crate::window::{Flights, Landing};
use crate::{Error, Exit, IoMode};
use estream_idl::address::{PAGE, Segment};
use estream_idl::message::{Load, ToDsp};
use estream_idl::status::Status;
use queue::Queue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

mod queue;

/// Where loads are read from.
pub(crate) struct Source {
    path: Arc<Path>,
    reader: Reader,
    /// The checksums, where each load is checked.
    sums: Option<Sums>,
    /// The file as it was opened, where loads are not checked.
    identity: Option<Identity>,
    /// Bytes of a request that several loads share, at most.
    merge_bytes: u64,
    file_bytes: u64,
}

/// What became of a load: the firmware's status, and the sentence for the user.
type Outcome = Result<(), (Status, Error)>;

impl Source {
    /// The pack as a source, its tables left behind, with how it is read.
    pub(crate) fn new(pack: Pack) -> (Self, IoMode) {
        let file_bytes = pack.header().file_bytes;
        let check = pack.verified().policy == Verify::Always;
        let Pack { path, reader, io_mode, sums, identity, merge_bytes, .. } = pack;
        let (sums, identity) = if check { (Some(sums), None) } else { (None, Some(identity)) };
        (Self { path, reader, sums, identity, merge_bytes, file_bytes }, io_mode)
    }

    /// Reads the loads of one request into their landings, and checks them where that is the policy.
    fn read(&self, landings: &mut [Landing], arena: &Arena) -> Vec<Outcome> {
        let memory = arena.memory();
        let loads: Vec<Load> = landings.iter().map(Landing::load).collect();
        let parts: Result<Vec<_>, _> = landings.iter_mut().map(|landing| landing.bytes(&memory)).collect();
        let (Ok(mut parts), Some(first)) = (parts, loads.first()) else {
            let what = |load: &Load| Error::protocol(format!("{load:?} leaves its segment"));
            return loads.iter().map(|load| Err((Status::Protocol, what(load)))).collect();
        };
        let filled = self.reader.fill_parts(&mut parts, first.file);
        let ended = filled.into_iter().zip(loads.iter().zip(&parts));
        ended
            .map(|(filled, (load, bytes))| {
                filled.map_err(|error| {
                    let told = self.failed("load_failed", load, &format!("cannot be read: {error}"));
                    (Status::LoadFailed, told)
                })?;
                self.sums.as_ref().map_or(Ok(()), |sums| sums.check(load.file, bytes)).map_err(|mismatch| {
                    let error = Error::bad_pack("checksum", &self.path, mismatch.file(), mismatch);
                    (Status::Checksum, error)
                })
            })
            .collect()
    }

    /// The error of a load that no bytes came of.
    fn failed(&self, code: &'static str, load: &Load, what: &str) -> Error {
        let end = load.file + u64::from(load.pages) * PAGE as u64;
        let what = format!("bytes {}..{end} {what}", load.file);
        Error { exit: Exit::Runtime, ..Error::bad_pack(code, &self.path, load.file, what) }
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
            queue: Mutex::new(Queue::new(flights)),
            work: Condvar::new(),
            log: Mutex::default(),
        });
        let mut loader = Self { shared, readers: Vec::new() };
        for number in 0..depth {
            let shared = loader.shared.clone();
            let reader = thread::Builder::new().name(format!("estream-read-{number}"));
            // On failure the readers made so far end with the loader.
            let reader = reader.spawn(move || shared.run(number)).map_err(|error| {
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
        self.shared.queue().pending()
    }

    /// Forgets the reads and faults so far: a pass begins.
    pub(crate) fn begin_pass(&self) {
        let mut log = self.shared.log();
        log.spans.clear();
        (log.io.bytes, log.io.reads, log.io.requests) = (0, 0, 0);
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

    /// The error of a file that was written to since it was opened, under a policy that does not check what is read.
    pub(crate) fn changed(&self) -> Option<Error> {
        let Source { identity, path, .. } = &self.shared.source;
        let change = identity.as_ref()?.change()?;
        let what = format!("the pack was changed while it was in use: {change}");
        Some(Error::bad_pack("changed", path, 0, what))
    }

    /// What the first failed read met: of this pass, else of what was loaded before any.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.shared.fault.check().and(self.shared.open_fault.check()).err()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.queue().close();
        self.shared.work.notify_all();
        for reader in self.readers.drain(..) {
            // A panic outside a read has been printed; there is nobody left to tell.
            let _ = reader.join();
        }
    }
}

impl Submitter {
    /// Checks `load` and queues it.
    pub(crate) fn submit(&self, load: Load) -> Result<(), Error> {
        self.0.queue().push(load)?;
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

    /// The loads of the next request; none when the loader closes.
    fn next(&self) -> Vec<Landing> {
        let mut queue = self.queue();
        queue.idle += 1;
        let woken = self.work.wait_while(queue, |queue| queue.is_idle());
        let mut queue = woken.unwrap_or_else(PoisonError::into_inner);
        queue.idle -= 1;
        queue.take(self.source.merge_bytes)
    }

    /// What reader `number` does.
    fn run(&self, number: u32) {
        loop {
            let mut landings = self.next();
            if landings.is_empty() {
                return;
            }
            let begin_ns = now_ns();
            // What the read had borrowed are bytes, and any bytes are as good as none: nobody is told that they came.
            let read = || self.source.read(&mut landings, &self.arena);
            let outcomes = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
                let died = |landing: &Landing| {
                    let what = format!("were being read when reader {number} panicked");
                    let error = self.source.failed("reader", &landing.load(), &what);
                    self.failure.set(error.clone());
                    Err((Status::LoadFailed, error))
                };
                landings.iter().map(died).collect()
            });
            let times = (begin_ns, now_ns());
            self.log().io.requests += 1;
            for (landing, outcome) in landings.into_iter().zip(outcomes) {
                self.complete(landing, outcome, number, times);
            }
        }
    }

    /// Keeps what became of a load, gives its landing back and tells the firmware.
    fn complete(&self, landing: Landing, outcome: Outcome, reader: u32, (begin_ns, end_ns): (u64, u64)) {
        let Load { ticket, segment, page, pages, file } = landing.load();
        let status = match outcome {
            Ok(()) => {
                self.log().add(ReadSpan { segment, page, pages, file, reader, begin_ns, end_ns });
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
        self.queue().end(landing);
        if let Err(error) = self.outbox.send(ToDsp::Loaded { ticket, status }) {
            self.failure.set(error);
        }
    }
}

impl Log {
    fn add(&mut self, span: ReadSpan) {
        let bytes = u64::from(span.pages) * PAGE as u64;
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
