//! The skel: FastRPC's invocations as calls of the firmware.
//!
//! The face is `idl/estream.idl`, packed as generated skels pack it; scalars, counts, lengths and null pointers are
//! checked as they check them, with their two return codes, before anything is read. Everything else a host can send is
//! judged by the session (handles, states, bytes of the calls), whose statuses are the other return values.
//!
//! Request bytes are copied to private memory before they are looked at, and replies made there: an argument may be a
//! mapping of memory that the host goes on writing, or the same one twice. A call runs on a thread of its own, since the
//! stacks of FastRPC's threads are the host's choice and small (16 KiB where it made none), and planning and self-test need
//! more than that.
//!
//! The module builds natively too, where its tests drive it with the native firmware.

use crate::platform::{self, Memory};
use crate::session::SESSIONS;
use core::ptr::NonNull;
use estream_idl::address::{PAGE, SegmentPages};
use estream_idl::call::REPLY_BYTES;
use estream_idl::fastrpc::{
    ATTACH, ATTACH_BYTES, BAD_ARGUMENTS, CALL, CALL_BYTES, CLOSE, OPEN, UNKNOWN_METHOD, to_return,
};
use estream_idl::firmware::{Firmware, Handle};
use estream_idl::memory::SharedMemory;
use estream_idl::status::Status;
use spin::Mutex;

/// Bytes of `open`'s first in-buffer: the URI's length.
const OPEN_BYTES: usize = 4;
/// Bytes of `call`'s first out-buffer: the reply's length.
const CALLED_BYTES: u32 = 4;
/// The bits of a scalars word that name the method.
const METHOD: u32 = 0x1f00_0000;

/// A buffer of an invocation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RemoteBuffer {
    /// First byte; not aligned.
    pub data: *mut u8,
    /// Bytes.
    pub bytes: usize,
}

/// FastRPC's `remote_arg`.
#[derive(Clone, Copy)]
#[repr(C)]
pub union RemoteArg {
    /// An in- or out-buffer.
    pub buffer: RemoteBuffer,
    /// An in- or out-handle.
    pub handle: u64,
}

#[cfg(target_arch = "hexagon")]
static_assertions::const_assert_eq!(size_of::<RemoteArg>(), 8);

/// How the skel reaches the buffers that the host mapped.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Where the buffer of a descriptor lies; each success is a use.
    pub map: fn(i32) -> Option<NonNull<u8>>,
    /// Ends a use.
    pub unmap: fn(i32),
}

/// Uses of buffers by sessions.
type Uses = heapless::Vec<(Handle, i32), SESSIONS>;

/// A firmware as FastRPC sees it.
#[derive(Debug)]
pub struct Skel {
    firmware: Firmware,
    buffers: Buffers,
    uses: Mutex<Uses>,
}

/// Why an invocation ends early.
enum Refused {
    Arguments,
    Method,
    Session(Status),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Session(status)
    }
}

impl Skel {
    /// The face of `firmware`.
    #[must_use]
    pub const fn new(firmware: Firmware, buffers: Buffers) -> Self {
        Self { firmware, buffers, uses: Mutex::new(Uses::new()) }
    }

    /// One invocation; what it returns is for `estream_idl::fastrpc::from_return`.
    ///
    /// # Safety
    /// `arguments` is null or has as many entries as `scalars` says; each buffer is null or has its bytes, readable where
    /// it is an in-buffer and writable where it is an out-buffer. FastRPC sees to it.
    pub unsafe fn invoke(&self, handle: Handle, scalars: u32, arguments: *mut RemoteArg) -> i32 {
        let Some(arguments) = NonNull::new(arguments).map(Arguments) else { return BAD_ARGUMENTS };
        match self.dispatch(handle, scalars, &arguments) {
            Ok(()) => 0,
            Err(Refused::Arguments) => BAD_ARGUMENTS,
            Err(Refused::Method) => UNKNOWN_METHOD,
            Err(Refused::Session(status)) => to_return(status),
        }
    }

    fn dispatch(&self, handle: Handle, scalars: u32, arguments: &Arguments) -> Result<(), Refused> {
        match scalars {
            OPEN => {
                let [length] = arguments.block::<OPEN_BYTES, 1>(0)?;
                arguments.buffer(1).first(length)?;
                arguments.set_handle(2, (self.firmware.open)()?);
                Ok(())
            }
            CLOSE => self.close(arguments.handle(0)),
            ATTACH => {
                let [fd, control, io, dense, embed, arena] = arguments.block::<ATTACH_BYTES, 6>(0)?;
                self.attach(handle, fd.cast_signed(), SegmentPages([control, io, dense, embed, arena]))
            }
            CALL => {
                let [length, capacity] = arguments.block::<CALL_BYTES, 2>(0)?;
                let request = arguments.buffer(1).first(length)?;
                let written = arguments.buffer(2).first(CALLED_BYTES)?;
                let reply = arguments.buffer(3).first(capacity)?;
                let mut private = Memory::request(request.bytes).ok_or(Status::NoMemory)?;
                let bytes = &mut private.as_mut_slice()[..request.bytes];
                request.read(bytes);
                let mut answer = [0; REPLY_BYTES];
                let room = reply.bytes.min(REPLY_BYTES);
                let length = self.call(handle, bytes, &mut answer[..room])?;
                reply.write(&answer[..length]);
                written.write(&(length as u32).to_le_bytes());
                Ok(())
            }
            _ => {
                let method = |word: u32| word & METHOD;
                let known = [OPEN, CLOSE, ATTACH, CALL].map(method).contains(&method(scalars));
                Err(if known { Refused::Arguments } else { Refused::Method })
            }
        }
    }

    fn attach(&self, handle: Handle, fd: i32, pages: SegmentPages) -> Result<(), Refused> {
        let base = (self.buffers.map)(fd).ok_or(Status::NoMemory)?;
        let attached = self.attach_mapped(handle, base, fd, pages);
        if attached.is_err() {
            (self.buffers.unmap)(fd);
        }
        Ok(attached?)
    }

    fn attach_mapped(
        &self,
        handle: Handle,
        base: NonNull<u8>,
        fd: i32,
        pages: SegmentPages,
    ) -> Result<(), Status> {
        let first = base.addr().get();
        let last = usize::try_from(pages.total_bytes()).ok().and_then(|bytes| first.checked_add(bytes));
        if last.is_none() || first % PAGE != 0 {
            return Err(Status::Protocol);
        }
        // SAFETY: the buffer is mapped until `close` or the next `attach` ends this use, both of which the session outlives
        // only detached. Its length is the host's word: no platform tells it, and a host that lies about it can fault the
        // protection domain, which is its own, and reach nothing beyond.
        let memory = unsafe { SharedMemory::new(base, pages) };
        // The lock is held over the session's own, so that a `close` which comes between finds the use.
        let mut uses = self.uses.lock();
        (self.firmware.attach)(handle, memory)?;
        let before = uses.iter().position(|&(owner, _)| owner == handle).map(|at| uses.swap_remove(at).1);
        // There are as many places as sessions, and a session has one.
        let full = uses.push((handle, fd)).is_err();
        drop(uses);
        if let Some(before) = before {
            (self.buffers.unmap)(before);
        }
        if full { Err(Status::NoMemory) } else { Ok(()) }
    }

    fn close(&self, handle: Handle) -> Result<(), Refused> {
        (self.firmware.close)(handle)?;
        let mut uses = self.uses.lock();
        let fd = uses.iter().position(|&(owner, _)| owner == handle).map(|at| uses.swap_remove(at).1);
        drop(uses);
        if let Some(fd) = fd {
            (self.buffers.unmap)(fd);
        }
        Ok(())
    }

    /// Runs one call of the firmware on a thread with a firmware's stack.
    fn call(&self, handle: Handle, request: &[u8], reply: &mut [u8]) -> Result<usize, Status> {
        struct Job<'a> {
            call: estream_idl::firmware::Call,
            handle: Handle,
            request: &'a [u8],
            reply: &'a mut [u8],
            outcome: Result<usize, Status>,
        }
        fn run(job: usize) {
            // SAFETY: `job` is the address of the Job below, which its owner leaves alone until this thread has ended.
            let job = unsafe { &mut *core::ptr::with_exposed_provenance_mut::<Job<'_>>(job) };
            job.outcome = (job.call)(job.handle, job.request, job.reply);
        }
        let call = self.firmware.call;
        let mut job = Job { call, handle, request, reply, outcome: Err(Status::Stopped) };
        platform::spawn("estream-call", run, (&raw mut job).expose_provenance())?.join();
        job.outcome
    }
}

/// The arguments of one invocation: as many, and with such buffers, as its scalars word says.
struct Arguments(NonNull<RemoteArg>);

impl Arguments {
    fn buffer(&self, index: usize) -> RemoteBuffer {
        // SAFETY: the method's scalars word, which `dispatch` has matched, counts more than `index` arguments; any bits
        // are a pointer and a length.
        unsafe { self.0.add(index).read().buffer }
    }

    fn handle(&self, index: usize) -> Handle {
        // SAFETY: as in `buffer`.
        unsafe { self.0.add(index).read().handle }
    }

    fn set_handle(&self, index: usize, handle: Handle) {
        // SAFETY: as in `buffer`; the argument is the skel's to write.
        unsafe { self.0.add(index).write(RemoteArg { handle }) }
    }

    /// The words of a primitive block.
    fn block<const BYTES: usize, const WORDS: usize>(&self, index: usize) -> Result<[u32; WORDS], Refused> {
        const { assert!(BYTES == WORDS * 4) };
        let mut bytes = [0; BYTES];
        self.buffer(index).first(BYTES as u32)?.read(&mut bytes);
        Ok(core::array::from_fn(|word| {
            u32::from_le_bytes([
                bytes[4 * word],
                bytes[4 * word + 1],
                bytes[4 * word + 2],
                bytes[4 * word + 3],
            ])
        }))
    }
}

impl RemoteBuffer {
    /// The first `length` bytes, which the buffer must have. An empty sequence may be null.
    fn first(self, length: u32) -> Result<Self, Refused> {
        let bytes = length as usize;
        if bytes > self.bytes || self.data.is_null() && bytes > 0 {
            return Err(Refused::Arguments);
        }
        let data = if bytes == 0 { NonNull::dangling().as_ptr() } else { self.data };
        Ok(Self { data, bytes })
    }

    /// Copies the bytes of a buffer that [`Self::first`] gave to private memory.
    fn read(self, to: &mut [u8]) {
        assert_eq!(to.len(), self.bytes);
        // SAFETY: the buffer is an in-buffer with these bytes, by `invoke`'s contract; private memory lies elsewhere.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(self.data, self.bytes) };
    }

    /// Copies private memory to the beginning of a buffer that [`Self::first`] gave.
    fn write(self, from: &[u8]) {
        assert!(from.len() <= self.bytes);
        // SAFETY: the buffer is an out-buffer with these bytes, by `invoke`'s contract; private memory lies elsewhere.
        unsafe { self.data.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }
}

#[cfg(test)]
mod tests;
