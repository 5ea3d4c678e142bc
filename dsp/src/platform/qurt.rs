//! The platform of the cDSP: QuRT threads and futexes, the heap of the protection domain, HAP's clock.
//!
//! Two things differ from the native platform, and both are hidden behind "`wait` may return early". QuRT's futex has no
//! timeout, and no wake crosses from the host's processor: a wait with a timeout (every doorbell) is therefore one short
//! nap, a wait without (the pool's workers, woken by the DSP itself) is a futex. Images that export no futex nap always.
//!
//! The clock goes through an import, not the timer register alone: its unit is the image's business, and a simulator,
//! where that register stands still, can answer from its own clock.

mod vtcm;

pub use vtcm::{Vtcm, has_matrix_unit};

use super::STACK_BYTES;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use estream_idl::address::PAGE;
use estream_idl::operator::Operator;
use estream_idl::status::Status;
use hexagon_sdk_sys as sys;

/// A nap in microseconds: the price of a doorbell's latency against the DSP's power while idle.
const NAP_US: u64 = 50;
/// Bytes of a line of the platform's log.
const LOG_BYTES: usize = 200;
/// Mode of a vector context with vectors of 128 bytes.
const VECTORS_OF_128: c_int = 1;
/// What stands at the low end of a thread's block, before its stack.
const LAUNCH_BYTES: usize = 128;

/// Monotonic time in nanoseconds, in steps of a microsecond.
#[must_use]
pub fn now_ns() -> u64 {
    // SAFETY: a pure conversion of a number.
    unsafe { sys::HAP_perf_qtimer_count_to_us(sys::HAP_perf_get_qtimer_count()) }.saturating_mul(1000)
}

/// Sleeps while `word` is `seen`, until [`wake`], the timeout, or the end of a nap: the caller looks again.
pub fn wait(word: &AtomicU32, seen: u32, timeout_ns: Option<u64>) {
    if word.load(Ordering::Acquire) != seen {
        return;
    }
    // SAFETY: the weak static is read once loaded and never changes.
    let futex = unsafe { sys::qurt_futex_wait };
    match (timeout_ns, futex) {
        (None, Some(futex)) => {
            // SAFETY: the address is that of a live, aligned word.
            unsafe { futex(word.as_ptr().cast(), seen as c_int) };
        }
        (timeout, _) => {
            let nap = timeout.map_or(NAP_US, |ns| NAP_US.min(ns.div_ceil(1000)));
            // SAFETY: sleeping has no precondition.
            unsafe { sys::qurt_sleep(nap) };
        }
    }
}

/// Wakes everyone on this processor who waits on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the weak static is read once loaded and never changes.
    if let Some(futex) = unsafe { sys::qurt_futex_wake } {
        // SAFETY: the address is that of a live, aligned word.
        unsafe { futex(word.as_ptr().cast(), c_int::MAX) };
    }
}

/// Where the buffer of a host's file descriptor lies in this domain; `None` for one that the host has not mapped. The
/// platform does not tell its length. Each success is one use, which [`unmap`] ends.
#[must_use]
pub fn map(fd: i32) -> Option<NonNull<u8>> {
    let mut base = core::ptr::null_mut();
    // SAFETY: the address is written through a live pointer; null asks for no physical address.
    let failed = unsafe { sys::HAP_mmap_get(fd, &raw mut base, core::ptr::null_mut()) };
    if failed == 0 { NonNull::new(base.cast()) } else { None }
}

/// Ends a use of [`map`].
pub fn unmap(fd: i32) {
    // SAFETY: any descriptor may be named; one that is not in use answers with an error, which changes nothing.
    unsafe { sys::HAP_mmap_put(fd) };
}

/// Writes `message`, cut to [`LOG_BYTES`], to the platform's log as what ends the domain, with the place that says so.
pub fn log_fatal(message: &str, file: &str, line: u32) {
    // SAFETY: the weak static is read once loaded and never changes.
    let Some(debug) = (unsafe { sys::HAP_debug }) else { return };
    let (message, file) = (c_string(message), c_string(file));
    // SAFETY: both strings end with a NUL and outlive the call.
    unsafe { debug(message.as_ptr(), sys::HAP_LEVEL_FATAL, file.as_ptr(), line as c_int) };
}

fn c_string(text: &str) -> [c_char; LOG_BYTES + 1] {
    let mut string = [0; LOG_BYTES + 1];
    for (to, &from) in string[..LOG_BYTES].iter_mut().zip(text.as_bytes()) {
        *to = from as c_char;
    }
    string
}

/// Runs `body`, told to a simulator as work of all threads for `operator`.
pub fn working_for<T>(operator: Operator, body: impl FnOnce() -> T) -> T {
    // SAFETY: the weak static is read once loaded and never changes.
    marked(unsafe { sys::estream_sim_mark }, operator, body)
}

/// Runs `body`, told to a simulator as work of this thread for `operator`.
pub fn thread_working_for<T>(operator: Operator, body: impl FnOnce() -> T) -> T {
    // SAFETY: the weak static is read once loaded and never changes.
    marked(unsafe { sys::estream_sim_mark_thread }, operator, body)
}

fn marked<T>(mark: Option<sys::Mark>, operator: Operator, body: impl FnOnce() -> T) -> T {
    let Some(mark) = mark else { return body() };
    // SAFETY: a mark has no precondition.
    let before = unsafe { mark(operator as u32) };
    let result = body();
    // SAFETY: as above.
    unsafe { mark(before) };
    result
}

/// Runs `body`. A panic aborts the protection domain here, so whoever sees an answer sees `true`.
pub fn guarded(body: impl FnOnce()) -> bool {
    body();
    true
}

/// What a new thread finds at the low end of its block.
struct Launch {
    body: fn(usize),
    argument: usize,
}

const _: () = assert!(size_of::<Launch>() <= LAUNCH_BYTES);

extern "C" fn run(block: *mut c_void) {
    // SAFETY: `spawn` wrote a Launch there; the block lives until after this thread was joined.
    let launch = unsafe { block.cast::<Launch>().read() };
    // SAFETY: the weak statics are read once loaded and never change.
    let (lock, unlock) = unsafe { (sys::qurt_hvx_lock, sys::qurt_hvx_unlock) };
    // SAFETY: a vector context for this thread, given back below. An image that does not have the call, or refuses it,
    // gives threads their contexts itself.
    let locked = lock.is_some_and(|lock| unsafe { lock(VECTORS_OF_128) } == 0);
    (launch.body)(launch.argument);
    if let (true, Some(unlock)) = (locked, unlock) {
        // SAFETY: locked above, on this thread.
        unsafe { unlock() };
    }
    // SAFETY: nothing on this stack waits to be dropped.
    unsafe { sys::qurt_thread_exit(0) }
}

/// A running firmware thread. Its stack is freed by [`Thread::join`] and by nothing else: a thread that is not joined
/// keeps it, as it must.
#[derive(Debug)]
pub struct Thread {
    id: u32,
    block: core::mem::ManuallyDrop<Memory>,
}

impl Thread {
    /// Waits for the thread's end and frees its stack.
    pub fn join(self) {
        let mut status = 0;
        // SAFETY: `id` names a joinable thread and is used up here. One that is gone already answers with an error.
        unsafe { sys::qurt_thread_join(self.id, &raw mut status) };
        drop(core::mem::ManuallyDrop::into_inner(self.block));
    }
}

/// Starts a thread that runs `body(argument)` at the caller's priority; the first 15 bytes of `name` show in debuggers.
///
/// # Errors
/// [`Status::NoThreads`] when there is no memory for the stack or the system refuses.
pub fn spawn(name: &'static str, body: fn(usize), argument: usize) -> Result<Thread, Status> {
    let mut block = Memory::request(LAUNCH_BYTES + STACK_BYTES).ok_or(Status::NoThreads)?;
    let base = block.as_mut_slice().as_mut_ptr();
    let mut attributes = sys::ThreadAttributes::new();
    for (to, &from) in attributes.name[..15].iter_mut().zip(name.as_bytes()) {
        *to = from as c_char;
    }
    attributes.stack_size = STACK_BYTES as u32;
    // SAFETY: the block is LAUNCH_BYTES + STACK_BYTES long and aligned to a page: the Launch stands at its low end, the
    // stack above it. The calls only read the attributes during the call.
    let (created, id) = unsafe {
        base.cast::<Launch>().write(Launch { body, argument });
        attributes.stack_addr = base.add(LAUNCH_BYTES).cast();
        let own = sys::qurt_thread_get_priority(sys::qurt_thread_get_id());
        attributes.priority = u16::try_from(own).unwrap_or(attributes.priority).clamp(1, 254);
        let mut id = 0;
        (sys::qurt_thread_create(&raw mut id, &raw const attributes, run, base.cast()), id)
    };
    if created != 0 {
        return Err(Status::NoThreads);
    }
    Ok(Thread { id, block: core::mem::ManuallyDrop::new(block) })
}

/// Hardware threads of the DSP that a vector context can be had for: a thread beyond them would wait for one.
#[must_use]
pub fn processors() -> u32 {
    let mut count = [0; 4];
    // SAFETY: the call writes one word; the array has room for the fields of newer images.
    let failed = unsafe { sys::qurt_sysenv_get_max_hw_threads(count.as_mut_ptr()) };
    let threads = if failed == 0 { count[0].max(1) } else { 1 };
    // SAFETY: the weak static is read once loaded and never changes; asking has no precondition.
    let units = unsafe { sys::qurt_hvx_get_units.map(|units| units()) };
    let contexts = units.map_or(0, |units| units.cast_unsigned() >> 8 & 0xff);
    if contexts == 0 { threads } else { threads.min(contexts) }
}

/// Bytes of VTCM; 0 on an image that does not tell, where the planner then refuses by name.
#[must_use]
pub fn scratch_bytes() -> u32 {
    // SAFETY: the weak static is read once loaded and never changes.
    let Some(query) = (unsafe { sys::compute_resource_query_VTCM }) else { return 0 };
    let (mut total, none) = (0, core::ptr::null_mut());
    // SAFETY: the total is written through a live pointer; null asks for nothing else.
    let failed = unsafe { query(0, &raw mut total, none, none.cast(), none) };
    if failed == 0 { total } else { 0 }
}

/// One zeroed, page-aligned block of memory that only this protection domain sees; freed on drop.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    free: sys::Free,
}

// SAFETY: a Memory owns its block alone and reaches it through `&mut self` only.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared Memory gives no access to the block.
unsafe impl Sync for Memory {}

impl Memory {
    /// A block of `bytes` (at least one), or `None` when the domain does not have them.
    #[must_use]
    pub fn request(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1);
        // SAFETY: the weak statics are read once loaded and never change.
        let (wrapped, plain) =
            unsafe { (sys::__wrap_memalign.zip(sys::__wrap_free), sys::memalign.zip(sys::free)) };
        let (memalign, free) = wrapped.or(plain)?;
        // SAFETY: the alignment is a power of two and the size is not zero.
        let base = NonNull::new(unsafe { memalign(PAGE, bytes) }.cast::<u8>())?;
        // SAFETY: `bytes` bytes at `base` were just allocated.
        unsafe { base.write_bytes(0, bytes) };
        Some(Self { base, bytes, free })
    }

    /// The block.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the block is `bytes` long, initialised (zero), and borrowed through `&mut self`.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the block came from the memalign that belongs to this free, and nothing borrows it any more.
        unsafe { (self.free)(self.base.as_ptr().cast()) };
    }
}
