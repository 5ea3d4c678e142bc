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
        // SAFETY: the caller's contract.
        match unsafe { self.dispatch(handle, scalars, arguments) } {
            Ok(()) => 0,
            Err(Refused::Arguments) => BAD_ARGUMENTS,
            Err(Refused::Method) => UNKNOWN_METHOD,
            Err(Refused::Session(status)) => to_return(status),
        }
    }

    /// # Safety
    /// As [`Self::invoke`].
    unsafe fn dispatch(&self, handle: Handle, scalars: u32, args: *mut RemoteArg) -> Result<(), Refused> {
        let known = [OPEN, CLOSE, ATTACH, CALL];
        if !known.contains(&scalars) {
            let method = known.iter().any(|known| known & METHOD == scalars & METHOD);
            return Err(if method { Refused::Arguments } else { Refused::Method });
        }
        if args.is_null() {
            return Err(Refused::Arguments);
        }
        // SAFETY: of a buffer and a handle any bits are valid; `scalars` is a known word, whose entries are `index` below.
        let buffer = |index: usize| unsafe { (*args.add(index)).buffer };
        // SAFETY (all of the match): reading and writing buffers of the direction that `scalars` says, by the caller's
        // contract.
        match scalars {
            OPEN => {
                let [length] = words(unsafe { block(buffer(0)) }?);
                unsafe { sequence(buffer(1), length) }?;
                let opened = (self.firmware.open)()?;
                unsafe { (*args.add(2)).handle = opened };
                Ok(())
            }
            CLOSE => self.close(unsafe { (*args).handle }),
            ATTACH => {
                let [fd, pages @ ..] = words(unsafe { block::<ATTACH_BYTES>(buffer(0)) }?);
                self.attach(handle, fd as i32, SegmentPages(pages))
            }
            _ => {
                let [request, capacity] = words(unsafe { block::<CALL_BYTES>(buffer(0)) }?);
                let request = unsafe { sequence(buffer(1), request) }?;
                let (length, reply) = (buffer(2), unsafe { sequence(buffer(3), capacity) }?);
                if length.data.is_null() || length.bytes < 4 {
                    return Err(Refused::Arguments);
                }
                let mut private = Memory::request(request.bytes).ok_or(Status::NoMemory)?;
                let mut answer = [0; REPLY_BYTES];
                let written = {
                    let bytes = &mut private.as_mut_slice()[..request.bytes];
                    unsafe { copy_in(request, bytes) };
                    self.call(handle, bytes, &mut answer[..reply.bytes.min(REPLY_BYTES)])?
                };
                unsafe {
                    reply.data.copy_from_nonoverlapping(answer.as_ptr(), written);
                    length.data.cast::<u32>().write_unaligned(written as u32);
                }
                Ok(())
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

/// The bytes of a primitive block.
///
/// # Safety
/// As [`Skel::invoke`], of an in-buffer.
unsafe fn block<const BYTES: usize>(buffer: RemoteBuffer) -> Result<[u8; BYTES], Refused> {
    let mut bytes = [0; BYTES];
    // SAFETY: the caller's contract.
    unsafe { copy_in(sequence(buffer, BYTES as u32)?, &mut bytes) };
    Ok(bytes)
}

/// The first `length` bytes of a buffer, which must have them.
fn sequence(buffer: RemoteBuffer, length: u32) -> Result<RemoteBuffer, Refused> {
    let bytes = length as usize;
    if bytes > buffer.bytes || buffer.data.is_null() && bytes > 0 {
        return Err(Refused::Arguments);
    }
    // An empty sequence may be null, a pointer to copy from or to may not.
    let data = if bytes == 0 { NonNull::dangling().as_ptr() } else { buffer.data };
    Ok(RemoteBuffer { data, bytes })
}

/// # Safety
/// As [`Skel::invoke`], of an in-buffer that [`sequence`] gave; `to` has its bytes.
unsafe fn copy_in(from: RemoteBuffer, to: &mut [u8]) {
    // SAFETY: the buffer has `from.bytes` bytes, and `to` is private memory, hence elsewhere.
    unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from.data, from.bytes) };
}

/// The little-endian words of a primitive block.
fn words<const BYTES: usize, const WORDS: usize>(bytes: [u8; BYTES]) -> [u32; WORDS] {
    const { assert!(BYTES == WORDS * 4) };
    core::array::from_fn(|index| {
        let at = index * 4;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    })
}

#[cfg(test)]
mod tests;
