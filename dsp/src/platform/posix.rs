//! The native platform: Linux through `rustix` and the standard library.
//!
//! Firmware threads are marked in a thread-local flag, so that a test's counting allocator can tell the firmware's
//! allocations from those of the host in the same process. The flag is `const`-initialised and has no destructor: asking
//! for it never allocates, not even in a thread that is coming up or going down.

use super::STACK_BYTES;
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use estream_idl::operator::Operator;
use estream_idl::status::Status;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};
use std::string::ToString;
use std::thread::JoinHandle;

std::thread_local! {
    static FIRMWARE: Cell<bool> = const { Cell::new(false) };
}

/// Blocks from this size on ask for transparent huge pages.
const HUGE: usize = 2 << 20;

/// Whether the calling thread is one that [`spawn`] made.
#[must_use]
pub fn is_firmware_thread() -> bool {
    FIRMWARE.with(Cell::get)
}

/// Monotonic time in nanoseconds, comparable between all processes of the machine.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps while `word` is `seen`, until [`wake`], the timeout, a signal, or no reason at all: the caller looks again.
pub fn wait(word: &AtomicU32, seen: u32, timeout_ns: Option<u64>) {
    let timeout = timeout_ns.map(|ns| futex::Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    // Every way this can end (woken, another value, timeout, signal) is a reason to look again, which the caller does.
    let _ = futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref());
}

/// Wakes everyone who waits on `word`, in this process or another.
pub fn wake(word: &AtomicU32) {
    // The only failure is an unmapped address, which a reference is not.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Runs `body`; `false` when it panicked. The message has then been printed by the panic hook.
pub fn guarded(body: impl FnOnce()) -> bool {
    // What the body left half done is not looked at again: its caller panics in turn.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok()
}

/// A running firmware thread. Dropped without [`Thread::join`] it runs on by itself.
#[derive(Debug)]
pub struct Thread(JoinHandle<()>);

impl Thread {
    /// Waits for the thread's end. One that panicked has printed its message and counts as ended.
    pub fn join(self) {
        let _ = self.0.join();
    }
}

/// Starts a thread that runs `body(argument)`; `name` shows in debuggers (the first 15 bytes on Linux).
///
/// # Errors
/// [`Status::NoThreads`] when the system refuses.
pub fn spawn(name: &'static str, body: fn(usize), argument: usize) -> Result<Thread, Status> {
    let marked = move || {
        FIRMWARE.with(|flag| flag.set(true));
        body(argument);
        // What the standard library frees or allocates on the way out is not the firmware's doing.
        FIRMWARE.with(|flag| flag.set(false));
    };
    std::thread::Builder::new()
        .name(name.to_string())
        .stack_size(STACK_BYTES)
        .spawn(marked)
        .map(Thread)
        .map_err(|_| Status::NoThreads)
}

/// Processors that this process may use.
#[must_use]
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get().try_into().unwrap_or(u32::MAX))
}

/// Bytes of scratchpad. A CPU has caches instead; 8 MiB is what the v69 to v79 DSPs have as VTCM, so that a plan made
/// natively with no budget of its own is the plan of the device.
#[must_use]
pub const fn scratch_bytes() -> u32 {
    8 << 20
}

/// Runs `body`: nobody listens for what it is natively.
pub fn working_for<T>(_: Operator, body: impl FnOnce() -> T) -> T {
    body()
}

/// As [`working_for`], of the calling thread alone.
pub fn thread_working_for<T>(_: Operator, body: impl FnOnce() -> T) -> T {
    body()
}

/// Whether there is a matrix unit: its software model, always.
#[must_use]
pub const fn has_matrix_unit() -> bool {
    true
}

/// One zeroed, page-aligned block of memory that no other process sees; freed on drop.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Memory owns its block alone and reaches it through `&mut self` only.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared Memory gives no access to the block.
unsafe impl Sync for Memory {}

impl Memory {
    /// A block of `bytes` (at least one), or `None` when the system does not have them.
    #[must_use]
    pub fn request(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, access, flags) }.ok()?;
        if bytes >= HUGE {
            // SAFETY: the advice covers the mapping just made and does not change its contents. A kernel without huge
            // pages refuses it, which costs speed only.
            let _ = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxHugepage) };
        }
        Some(Self { base: NonNull::new(base.cast())?, bytes })
    }

    /// The block.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `bytes` long, initialised (zero), and borrowed through `&mut self`.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `request`, is whole, and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
