//! A firmware that a test writes: calls, threads and rings are real, what it does with them is the test's behaviour.

use crate::support::{DENSE, DENSE_AT, DENSE_PAGES, EMBEDDING_PAGES, RECIPE, RECORD_PAGES, directory};
use estream_idl::address::{PAGE, Segment, SegmentPages};
use estream_idl::call::{Hello, KernelSet, Plan, Reply, Request};
use estream_idl::control::{CONTROL_PAGES, Control};
use estream_idl::firmware::{Firmware, Handle};
use estream_idl::memory::SharedMemory;
use estream_idl::message::{Load, ToDsp, ToHost};
use estream_idl::ring::{Consumer, Producer};
use estream_idl::status::{Refusal, Status};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Banks of the arena, each of two records.
pub const BANKS: usize = 2;
/// Pages of the io segment.
pub const IO_PAGES: u32 = 16;

/// What a firmware does.
pub trait Behaviour: 'static {
    /// Serves one pass.
    fn pass(peer: &mut Peer, pass: u32, requests: u32);

    /// What it does once its dense weights are asked for.
    fn started(_: &mut Peer) {}

    /// Answers a call in the place of the usual answer.
    fn answer(_: &Request<'_>) -> Option<Reply> {
        None
    }
}

/// The functions of a firmware that behaves as `B`.
pub fn firmware<B: Behaviour>() -> Firmware {
    Firmware { open, attach, call: call::<B>, close }
}

struct Running {
    memory: Option<SharedMemory<'static>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

static SESSIONS: Mutex<Option<HashMap<Handle, Running>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn session<T>(handle: Handle, with: impl FnOnce(&mut Running) -> T) -> Result<T, Status> {
    let mut sessions = SESSIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    sessions.get_or_insert_default().get_mut(&handle).map(with).ok_or(Status::BadHandle)
}

fn open() -> Result<Handle, Status> {
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    let running = Running { memory: None, stop: Arc::default(), thread: None };
    let mut sessions = SESSIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    sessions.get_or_insert_default().insert(handle, running);
    Ok(handle)
}

fn attach(handle: Handle, memory: SharedMemory<'static>) -> Result<(), Status> {
    session(handle, |session| session.memory = Some(memory))
}

fn close(handle: Handle) -> Result<(), Status> {
    stop(handle)?;
    let mut sessions = SESSIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    sessions.get_or_insert_default().remove(&handle).map(drop).ok_or(Status::BadHandle)
}

fn stop(handle: Handle) -> Result<(), Status> {
    let thread = session(handle, |session| {
        session.stop.store(true, Ordering::SeqCst);
        session.thread.take()
    })?;
    if let Some(thread) = thread {
        thread.join().map_err(|_| Status::Stopped)?;
    }
    Ok(())
}

fn call<B: Behaviour>(handle: Handle, request: &[u8], reply: &mut [u8]) -> Result<usize, Status> {
    let request: Request<'_> = postcard::from_bytes(request).map_err(|_| Status::Protocol)?;
    let answer = match B::answer(&request) {
        Some(answer) => answer,
        None => match request {
            Request::Hello { .. } => Reply::Hello(Hello {
                protocol: estream_idl::PROTOCOL,
                kernels: KernelSet::SCALAR,
                processors: 1,
                scratch: 0,
            }),
            Request::Plan(prepare) => {
                assert_eq!((prepare.recipe, prepare.directory), (RECIPE, &directory()[..]));
                Reply::Plan(plan(prepare.config.depth))
            }
            Request::Start(prepare) => {
                session(handle, |session| {
                    let (memory, stop) = (session.memory.expect("attached"), session.stop.clone());
                    session.thread = Some(thread::spawn(move || serve::<B>(memory, stop)));
                })?;
                Reply::Plan(plan(prepare.config.depth))
            }
            Request::Stop => {
                stop(handle)?;
                Reply::Stopped(Status::Ok)
            }
        },
    };
    postcard::to_slice(&answer, reply).map(|bytes| bytes.len()).map_err(|_| Status::ReplyTooSmall)
}

/// The plan of every behaviour.
pub fn plan(depth: u32) -> Plan {
    let arena = (BANKS * 2 * RECORD_PAGES) as u32;
    let segments = [CONTROL_PAGES, IO_PAGES, DENSE_PAGES as u32, EMBEDDING_PAGES as u32, arena];
    Plan {
        segments: SegmentPages(segments),
        private_bytes: 1000,
        stack_bytes: 2000,
        group: 2,
        banks: BANKS as u32,
        depth,
        threads: 1,
        kernels: KernelSet::SCALAR,
        row_chunk: 32,
        scratch_bytes: 0,
    }
}

fn serve<B: Behaviour>(memory: SharedMemory<'static>, stop: Arc<AtomicBool>) {
    let control = memory.control().expect("a control segment");
    let mut peer = Peer {
        memory,
        control,
        to_host: control.to_host().producer(),
        to_dsp: control.to_dsp().consumer(),
        stop,
        heard: 0,
    };
    let mut page = 0;
    for (ticket, pages) in DENSE.iter().map(|&pages| pages as u32).enumerate() {
        let file = ((DENSE_AT + page as usize) * PAGE) as u64;
        peer.load(Load { ticket: ticket as u32, segment: Segment::Dense, page, pages, file });
        page += pages;
    }
    B::started(&mut peer);
    let mut dense = 0;
    while let Some(message) = peer.wait() {
        match message {
            ToDsp::Loaded { ticket: 0..3, .. } => dense += 1,
            ToDsp::Prefill { pass, requests } => {
                while dense < 3 {
                    let Some(ToDsp::Loaded { ticket: 0..3, .. }) = peer.wait() else { return };
                    dense += 1;
                }
                B::pass(&mut peer, pass, requests);
            }
            _ => {}
        }
    }
}

/// The firmware's end of everything.
pub struct Peer {
    /// The shared memory.
    pub memory: SharedMemory<'static>,
    /// Its control words.
    pub control: Control<'static>,
    to_host: Producer<'static>,
    to_dsp: Consumer<'static>,
    stop: Arc<AtomicBool>,
    heard: u32,
}

impl Peer {
    /// Sends an entry as it is.
    pub fn send_raw(&mut self, entry: [u32; 16]) {
        self.to_host.push(&entry).expect("room");
        self.ring();
    }

    /// Rings the host.
    pub fn ring(&self) {
        self.control.bell_host().fetch_add(1, Ordering::Release);
        let _ =
            rustix::thread::futex::wake(self.control.bell_host(), rustix::thread::futex::Flags::empty(), 9);
    }

    /// Sends a message.
    pub fn send(&mut self, message: ToHost) {
        self.send_raw(message.encode());
    }

    /// Asks for a load.
    pub fn load(&mut self, load: Load) {
        self.send(ToHost::Load(load));
    }

    /// Ends a pass well.
    pub fn done(&mut self, pass: u32, status: Status) {
        self.send(ToHost::Done { pass, refusal: Refusal::from(status) });
    }

    /// The next message, or `None` when the session stops.
    pub fn wait(&mut self) -> Option<ToDsp> {
        loop {
            if let Some(entry) = self.to_dsp.pop().expect("a sound ring") {
                self.heard += 1;
                return Some(ToDsp::decode(&entry).expect("a known message"));
            }
            if self.stopped() {
                return None;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether the host rings once for each message; this peer polls, so it has to be asked.
    pub fn was_rung(&self) -> bool {
        (0..2000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            self.control.bell_dsp().load(Ordering::Acquire) == self.heard
        })
    }

    /// Whether the session shall stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
