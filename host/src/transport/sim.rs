//! The simulator: the skel that ships, in a simulated protection domain under `qemu-hexagon`.
//!
//! The domain is a child process. Calls go over a socket ([`estream_idl::carrier`]), everything else through the same
//! shared memory and rings as on a device, with futexes for doorbells. Socket and memory stand in the place of the child's
//! standard input and output, so no other descriptor is inherited and none has to be prepared by unsafe code; what the
//! skel logs comes out at this program's standard error.
//!
//! A domain that cannot be started is a device that is not available; one that dies or falls silent afterwards is a
//! failure at run time. Death is noticed at once during a call (the socket ends) and at the session's next look during a
//! pass (the child is gone); silence after [`Simulator::patience`] in a call, and by the heartbeat in a pass. In neither
//! case is the child left behind.

use super::{Transport, decode, encode};
use crate::error::{Error, Exit};
use estream_idl::address::Segment;
use estream_idl::call::{REPLY_BYTES, Reply, Request};
use estream_idl::carrier::{DIGEST_BYTES, LOADED, MAX_ARGUMENTS, MAX_FRAME, MEMORY_FD, REFUSED, Reader};
use estream_idl::fastrpc::{ATTACH, CALL, CLOSE, OPEN, URI, from_return};
use estream_idl::memory::SharedMemory;
use estream_idl::status::{Refusal, Status};
use rustix::fs::MemfdFlags;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a child whose socket has ended may take to end too.
const DEATH: Duration = Duration::from_millis(500);
/// How often an ending child is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Where the parts of the simulator are, and what it simulates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulator {
    /// `qemu-hexagon`, 10.0 or newer.
    pub qemu: PathBuf,
    /// The protection domain's program.
    pub guest: PathBuf,
    /// The skel to load.
    pub skel: PathBuf,
    /// Bytes of VTCM that the domain reports; 0 = it refuses to say.
    pub vtcm: u32,
    /// Imports that the domain does not provide: how images differ, and what a skel makes of it.
    pub without: Vec<String>,
    /// How long a call may take, and how long a pass may show no sign of life: simulated floats are a thousand times slower
    /// than silicon's, and a debugger is slower still.
    pub patience: Duration,
    /// Whether the domain writes to its log, when it ends, what its units did for each operator.
    pub counts: bool,
}

impl Simulator {
    /// A domain like that of a v73 part: 8 MiB of VTCM and all imports.
    #[must_use]
    pub const fn new(qemu: PathBuf, guest: PathBuf, skel: PathBuf) -> Self {
        let patience = Duration::from_secs(120);
        Self { qemu, guest, skel, vtcm: 8 << 20, without: Vec::new(), patience, counts: false }
    }
}

/// What a skel is, by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkelReport {
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of the bytes that the domain loaded, in hexadecimal; the same as the file's.
    pub sha256: String,
    /// The architecture that it was linked for, such as 0x73.
    pub architecture: u32,
}

/// What an invocation returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The return value; `estream_idl::fastrpc::from_return` reads it.
    pub value: i32,
    /// The out-buffers.
    pub buffers: Vec<Vec<u8>>,
    /// The out-handles.
    pub handles: Vec<u64>,
}

/// A session of the skel in a simulated protection domain.
#[derive(Debug)]
pub struct Sim {
    socket: UnixStream,
    child: Arc<Mutex<Child>>,
    memory: OwnedFd,
    handle: u64,
    skel: SkelReport,
    patience: Duration,
}

impl Sim {
    /// Starts a domain, has it load the skel, and opens a session.
    ///
    /// # Errors
    /// When a part is missing, the domain does not start, or it refuses the skel.
    pub fn open(simulator: &Simulator) -> Result<Self, Error> {
        let unavailable = |code, message| Error { exit: Exit::Device, ..Error::runtime(code, message) };
        for (what, path) in [("qemu-hexagon", &simulator.qemu), ("its guest program", &simulator.guest)] {
            if !path.is_file() {
                let message = format!("the simulator has no {what} at {}", path.display());
                return Err(unavailable("no_simulator", message));
            }
        }
        let bytes = std::fs::read(&simulator.skel).map_err(|error| {
            unavailable("no_skel", format!("the skel cannot be read: {error}")).in_file(&simulator.skel)
        })?;
        let failed = |error: &dyn std::fmt::Display| {
            unavailable("no_simulator", format!("the simulator cannot be started: {error}"))
        };
        let (socket, theirs) = UnixStream::pair().map_err(|error| failed(&error))?;
        let memory =
            rustix::fs::memfd_create("estream", MemfdFlags::CLOEXEC).map_err(|error| failed(&error))?;
        let their_memory = memory.try_clone().map_err(|error| failed(&error))?;
        socket
            .set_read_timeout(Some(simulator.patience))
            .and_then(|()| socket.set_write_timeout(Some(simulator.patience)))
            .map_err(|error| failed(&error))?;
        let mut command = Command::new(&simulator.qemu);
        command.args(["-cpu", "v73"]).arg(&simulator.guest).arg(&simulator.skel);
        command.arg(format!("vtcm={}", simulator.vtcm));
        command.args(simulator.counts.then_some("counts=on"));
        command.args(simulator.without.iter().map(|name| format!("without={name}")));
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::from(their_memory));
        // A group of its own: an interrupt from the terminal is this program's to handle, by cancelling the pass.
        command.process_group(0);
        let child = command.spawn().map_err(|error| failed(&error))?;
        // The command holds this program's copy of the child's end: without it the socket ends with the child.
        drop(command);
        let skel = SkelReport { path: simulator.skel.clone(), sha256: String::new(), architecture: 0 };
        let child = Arc::new(Mutex::new(child));
        let mut sim = Self { socket, child, memory, handle: 0, skel, patience: simulator.patience };
        sim.greet(&bytes).map_err(|error| Error { exit: Exit::Device, ..error })?;
        sim.handle = sim.open_session()?;
        Ok(sim)
    }

    /// The skel that runs.
    #[must_use]
    pub const fn skel(&self) -> &SkelReport {
        &self.skel
    }

    /// The session's handle.
    #[must_use]
    pub const fn handle(&self) -> u64 {
        self.handle
    }

    /// The child's process id.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child().id()
    }

    /// Hears whether the domain has loaded the skel, whose file is `bytes`.
    fn greet(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let frame = self.receive()?;
        let mut reader = Reader::new(&frame);
        match reader.word() {
            Some(LOADED) => {
                let (Some(digest), Some(flags), []) =
                    (reader.bytes(DIGEST_BYTES), reader.word(), reader.rest())
                else {
                    return Err(carrier("a greeting that is cut short"));
                };
                if *digest != *Sha256::digest(bytes) {
                    let error = Error::runtime("skel_changed", "the skel changed while it was loaded");
                    return Err(error.in_file(&self.skel.path));
                }
                for byte in digest {
                    // A string takes whatever is written to it.
                    let _ = write!(self.skel.sha256, "{byte:02x}");
                }
                self.skel.architecture = flags & 0xff;
                Ok(())
            }
            Some(REFUSED) => {
                let why = String::from_utf8_lossy(reader.rest());
                let message = format!("the skel cannot be loaded: {why}");
                Err(Error::runtime("bad_skel", message).in_file(&self.skel.path))
            }
            _ => Err(carrier("a greeting of an unknown kind")),
        }
    }

    fn open_session(&mut self) -> Result<u64, Error> {
        let uri = URI.to_bytes_with_nul();
        let returned = self.invoke(0, OPEN, &[&(uri.len() as u32).to_le_bytes(), uri], &[], &[])?;
        check(&returned)?;
        match returned.handles[..] {
            [handle] if handle != 0 => Ok(handle),
            _ => Err(Error::protocol("a session without a handle")),
        }
    }

    /// One FastRPC invocation, as any client of the skel could make it: in-buffers, capacities of the out-buffers,
    /// in-handles. How many there are is what `scalars` says, or the domain ends.
    ///
    /// # Errors
    /// When the domain has died, does not answer in time, or answers something else.
    pub fn invoke(
        &mut self,
        handle: u64,
        scalars: u32,
        buffers: &[&[u8]],
        capacities: &[u32],
        handles: &[u64],
    ) -> Result<Returned, Error> {
        let mut frame = handle.to_le_bytes().to_vec();
        frame.extend(scalars.to_le_bytes());
        for buffer in buffers {
            let length = u32::try_from(buffer.len()).map_err(|_| carrier("a buffer beyond 4 GiB"))?;
            frame.extend(length.to_le_bytes());
            frame.extend(*buffer);
        }
        frame.extend(capacities.iter().flat_map(|capacity| capacity.to_le_bytes()));
        frame.extend(handles.iter().flat_map(|handle| handle.to_le_bytes()));
        if frame.len() > MAX_FRAME || buffers.len() + capacities.len() + handles.len() > MAX_ARGUMENTS {
            return Err(carrier("a call beyond the carrier's limits"));
        }
        let length = (frame.len() as u32).to_le_bytes();
        self.socket.write_all(&[&length[..], &frame].concat()).map_err(|error| self.broken(&error))?;

        let frame = self.receive()?;
        let cut = || carrier("a return that is cut short");
        let mut reader = Reader::new(&frame);
        let value = reader.word().ok_or_else(cut)?.cast_signed();
        let buffer = |_| reader.buffer().map(<[u8]>::to_vec).ok_or_else(cut);
        let buffers = capacities.iter().map(buffer).collect::<Result<_, _>>()?;
        let handle = |_| reader.double().ok_or_else(cut);
        let handles = (0..scalars & 0xf).map(handle).collect::<Result<_, _>>()?;
        Ok(Returned { value, buffers, handles })
    }

    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).map_err(|error| self.broken(&error))?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(carrier("a frame beyond the carrier's limits"));
        }
        let mut frame = vec![0; length];
        self.socket.read_exact(&mut frame).map_err(|error| self.broken(&error))?;
        Ok(frame)
    }

    /// What it means that the socket cannot be read or written.
    fn broken(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                // Nothing that it says later could be told from the answer to another call.
                terminate(&self.child);
                let message = format!("the simulator has not answered a call within {:?}", self.patience);
                Error::runtime("silent", message)
            }
            _ => died(wait(&mut self.child(), DEATH)),
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Sim {
    fn call(&mut self, request: &Request<'_>) -> Result<Reply, Error> {
        let request = encode(request)?;
        let lengths = [request.len() as u32, REPLY_BYTES as u32].map(u32::to_le_bytes).concat();
        let returned =
            self.invoke(self.handle, CALL, &[&lengths, &request], &[4, REPLY_BYTES as u32], &[])?;
        check(&returned)?;
        let [length, reply] = &returned.buffers[..] else { return Err(carrier("another number of buffers")) };
        let length = length.as_slice().try_into().map(u32::from_le_bytes);
        decode(reply, length.map_err(|_| carrier("a length that is no word"))? as usize)
    }

    fn attach(&mut self, memory: SharedMemory<'static>) -> Result<(), Error> {
        let pages = memory.pages();
        let mut block = MEMORY_FD.to_le_bytes().to_vec();
        block.extend(Segment::ALL.iter().flat_map(|&segment| pages.of(segment).to_le_bytes()));
        let returned = self.invoke(self.handle, ATTACH, &[&block], &[], &[])?;
        check(&returned).map_err(|error| match error.refusal {
            Some(Refusal { status: Status::NoMemory, .. }) => {
                let bytes = pages.total_bytes();
                let message = format!("the simulated domain cannot map {bytes} bytes of shared memory");
                Error { message, ..error }
            }
            _ => error,
        })
    }

    fn needs_shared_memory(&self) -> bool {
        true
    }

    fn memory_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.memory.as_fd())
    }

    fn check(&self) -> Result<(), Error> {
        match self.child().try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(died(Some(status))),
            Err(_) => Err(died(None)),
        }
    }

    fn terminator(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let child = self.child.clone();
        Some(Box::new(move || terminate(&child)))
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if self.check().is_ok() && self.handle != 0 {
            // Nobody is left to tell: the session was stopped before, and a domain that fails here ends here.
            let _ = self.invoke(self.handle, CLOSE, &[], &[], &[self.handle]);
        }
        // The domain ends when the socket does; one that is stuck is ended.
        let _ = self.socket.shutdown(Shutdown::Both);
        if wait(&mut self.child(), DEATH).is_none() {
            terminate(&self.child);
        }
    }
}

/// The error that a return value stands for, if any.
fn check(returned: &Returned) -> Result<(), Error> {
    match from_return(returned.value) {
        Some(Status::Ok) => Ok(()),
        Some(status) => Err(status.into()),
        None => Err(Error::protocol(format!("a skel that returns {:#x}", returned.value))),
    }
}

fn carrier(what: impl std::fmt::Display) -> Error {
    Error::runtime("protocol", format!("the simulator broke the protocol: {what}"))
}

fn died(status: Option<ExitStatus>) -> Error {
    let how = status.map_or_else(|| "its socket has ended".into(), |status| status.to_string());
    Error::runtime("died", format!("the simulator died: {how}"))
}

/// Waits a little for the child's end.
fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if begun.elapsed() < patience => thread::sleep(LOOK),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

/// Ends the child, stopped or not, and takes its status, so that nothing is left of it.
fn terminate(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    // An error means that it has ended and was waited for already.
    if child.kill().is_ok() {
        let _ = child.wait();
    }
}
