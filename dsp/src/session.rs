//! Sessions: the firmware's four entry points, and what stands between a handle and an engine thread.
//!
//! Sessions live in a fixed table, since the firmware has no allocator; a handle is a place in it with a generation and a
//! magic word, so that one that was never opened, or is closed, is refused. `start` asks the platform for the private
//! block, hands it to a new thread and waits until the engine stands or has refused.

use crate::engine::Engine;
use crate::plan::{plan, prepare_bytes};
use crate::platform::{self, Memory, Thread};
use crate::{kernels, selftest};
use estream_idl::PROTOCOL;
use estream_idl::call::{Config, Hello, Prepare, Reply, Request};
use estream_idl::firmware::{Firmware, Handle};
use estream_idl::memory::SharedMemory;
use estream_idl::status::{Refusal, Status};
use estream_idl::sync::{AtomicU32, Ordering};
use spin::Mutex;

/// The firmware, as transports are given it.
pub const FIRMWARE: Firmware = Firmware { open, attach, call, close };

/// Sessions at once.
pub(crate) const SESSIONS: usize = 64;
/// High word of every handle.
const MAGIC: u64 = 0x4553_5452;
/// `ready` before the engine has said anything.
const STARTING: u32 = u32::MAX;

/// What `start` leaves for the engine's thread.
struct Boot {
    block: Memory,
    memory: SharedMemory<'static>,
    config: Config,
    recipe: usize,
    directory: usize,
    prepared: usize,
}

struct Place {
    session: Mutex<Session>,
    boot: Mutex<Option<Boot>>,
    /// The refusal of an engine that did not come up.
    refusal: Mutex<Option<Refusal>>,
    ready: AtomicU32,
    stop: AtomicU32,
    ended: AtomicU32,
}

struct Session {
    open: bool,
    generation: u16,
    memory: Option<SharedMemory<'static>>,
    thread: Option<Thread>,
}

static PLACES: [Place; SESSIONS] = [const {
    Place {
        session: Mutex::new(Session { open: false, generation: 0, memory: None, thread: None }),
        boot: Mutex::new(None),
        refusal: Mutex::new(None),
        ready: AtomicU32::new(STARTING),
        stop: AtomicU32::new(0),
        ended: AtomicU32::new(0),
    }
}; SESSIONS];

const fn handle(index: usize, generation: u16) -> Handle {
    MAGIC << 32 | (generation as u64) << 16 | index as u64
}

/// Calls `body` with the open session of a handle.
fn with<T>(
    handle_: Handle,
    body: impl FnOnce(usize, &mut Session) -> Result<T, Status>,
) -> Result<T, Status> {
    let index = (handle_ & 0xffff) as usize;
    let place = PLACES.get(index).ok_or(Status::BadHandle)?;
    let mut session = place.session.lock();
    if !session.open || handle(index, session.generation) != handle_ {
        return Err(Status::BadHandle);
    }
    body(index, &mut session)
}

fn open() -> Result<Handle, Status> {
    for (index, place) in PLACES.iter().enumerate() {
        let Some(mut session) = place.session.try_lock() else { continue };
        if !session.open {
            let generation = session.generation.wrapping_add(1);
            *session = Session { open: true, generation, memory: None, thread: None };
            return Ok(handle(index, generation));
        }
    }
    Err(Status::NoMemory)
}

fn attach(handle: Handle, memory: SharedMemory<'static>) -> Result<(), Status> {
    with(handle, |_, session| {
        if session.thread.is_some() {
            return Err(Status::BadState);
        }
        session.memory = Some(memory);
        Ok(())
    })
}

fn close(handle: Handle) -> Result<(), Status> {
    with(handle, |index, session| {
        stop(index, session);
        session.open = false;
        session.memory = None;
        Ok(())
    })
}

fn call(handle: Handle, request: &[u8], reply: &mut [u8]) -> Result<usize, Status> {
    with(handle, |index, session| {
        let (request, rest): (Request<'_>, _) =
            postcard::take_from_bytes(request).map_err(|_| Status::Protocol)?;
        if !rest.is_empty() {
            return Err(Status::Protocol);
        }
        let answer = answer(index, session, &request).unwrap_or_else(Reply::Refused);
        Ok(postcard::to_slice(&answer, reply).map_err(|_| Status::ReplyTooSmall)?.len())
    })
}

fn answer(index: usize, session: &mut Session, request: &Request<'_>) -> Result<Reply, Refusal> {
    match request {
        Request::Hello { protocol } => {
            if *protocol != PROTOCOL {
                let (needed, limit) = ((*protocol).into(), PROTOCOL.into());
                return Err(Refusal { needed, limit, ..Status::Version.into() });
            }
            Ok(Reply::Hello(Hello {
                protocol: PROTOCOL,
                kernels: kernels::available(),
                processors: platform::processors(),
                scratch: platform::scratch_bytes(),
            }))
        }
        Request::Plan(prepare) => Ok(Reply::Plan(plan(prepare)?.reply)),
        Request::Start(prepare) => start(index, session, prepare),
        Request::Stop => {
            if session.thread.is_none() {
                return Err(Status::BadState.into());
            }
            Ok(Reply::Stopped(stop(index, session)))
        }
    }
}

fn start(index: usize, session: &mut Session, prepare: &Prepare<'_>) -> Result<Reply, Refusal> {
    let place = &PLACES[index];
    let (Some(memory), None) = (session.memory, &session.thread) else {
        return Err(Status::BadState.into());
    };
    let planned = plan(prepare)?;
    // The matrix unit is tried by the thread that holds it, when the engine comes up.
    if !planned.backend.matrix {
        for products in planned.backend.products() {
            selftest::check(products)?;
        }
    }
    let bytes = planned.reply.private_bytes;
    let no_memory = Refusal { needed: bytes, ..Status::NoMemory.into() };
    let mut block = usize::try_from(bytes).ok().and_then(Memory::request).ok_or(no_memory)?;
    let (recipe, directory) = (prepare.recipe.len(), prepare.directory.len());
    let private = block.as_mut_slice();
    private[..recipe].copy_from_slice(prepare.recipe);
    private[recipe..recipe + directory].copy_from_slice(prepare.directory);
    let prepared = prepare_bytes(prepare);
    *place.boot.lock() = Some(Boot { block, memory, config: prepare.config, recipe, directory, prepared });
    place.stop.store(0, Ordering::Release);
    place.ready.store(STARTING, Ordering::Release);
    let thread = platform::spawn("estream-engine", engine, index)?;
    while place.ready.load(Ordering::Acquire) == STARTING {
        platform::wait(&place.ready, STARTING, None);
    }
    let status = Status::from_wire(place.ready.load(Ordering::Acquire));
    if status != Status::Ok {
        thread.join();
        return Err(place.refusal.lock().take().unwrap_or(status.into()));
    }
    session.thread = Some(thread);
    Ok(Reply::Plan(planned.reply))
}

fn stop(index: usize, session: &mut Session) -> Status {
    let Some(thread) = session.thread.take() else { return Status::Ok };
    let place = &PLACES[index];
    place.stop.store(1, Ordering::Release);
    if let Some(control) = session.memory.and_then(|memory| memory.control()) {
        // Wakes a sleeping engine; one that was about to sleep sees `stop` at its next beat.
        platform::wake(control.bell_dsp());
    }
    thread.join();
    match Status::from_wire(place.ended.load(Ordering::Acquire)) {
        Status::Stopped => Status::Ok,
        other => other,
    }
}

/// The engine's thread.
fn engine(index: usize) {
    let place = &PLACES[index];
    let ready = |status: Status| {
        place.ready.store(status as u32, Ordering::Release);
        platform::wake(&place.ready);
    };
    place.ended.store(Status::Stopped as u32, Ordering::Release);
    let Some(mut boot) = place.boot.lock().take() else { return ready(Status::BadState) };
    let returned = platform::guarded(|| {
        let (prepared, tables) = boot.block.as_mut_slice().split_at_mut(boot.prepared);
        let (recipe, rest) = prepared.split_at(boot.recipe);
        let prepare = Prepare { config: boot.config, recipe, directory: &rest[..boot.directory] };
        let engine =
            plan(&prepare).and_then(|planned| Engine::new(planned, tables, boot.memory, &place.stop));
        match engine {
            Err(refusal) => {
                *place.refusal.lock() = Some(refusal);
                ready(refusal.status);
            }
            Ok(mut engine) => {
                ready(Status::Ok);
                place.ended.store(engine.serve() as u32, Ordering::Release);
            }
        }
    });
    if !returned {
        place.ended.store(Status::Internal as u32, Ordering::Release);
        ready(Status::Internal);
    }
}
