//! QuRT: threads, futexes, sleep.
//!
//! A thread is one of Linux's, on the stack that its creator gives; the word that the kernel clears at its end is what
//! `join` waits for. Thread ids are places in a fixed table plus one, kept in the user general pointer of each thread.

use crate::context;
use crate::memory::Range;
use crate::sys::{self, number};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Threads at once, as many as an unsigned domain may have.
pub const THREADS: usize = 128;
/// Hardware threads that the domain is told of: those of a v73 part.
const HARDWARE_THREADS: u32 = 6;
/// Vector contexts that the domain is told of: those of a v73 part.
const HVX_CONTEXTS: c_int = 4;
/// The priority of FastRPC's threads.
const PRIORITY: u16 = 192;
const FAILED: c_int = -1;

const FUTEX_WAIT: u32 = 0;
const FUTEX_WAKE: u32 = 1;

/// VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID: the only set that the simulator takes.
const CLONE_FLAGS: u32 = 0x003d_0f00;

const FREE: u32 = 0;
const TAKEN: u32 = 1;

struct Thread {
    state: AtomicU32,
    /// The kernel's id while it runs; the kernel clears it and wakes whoever waits.
    tid: AtomicU32,
    status: AtomicI32,
    priority: AtomicU32,
}

static TABLE: [Thread; THREADS] = [const {
    Thread {
        state: AtomicU32::new(FREE),
        tid: AtomicU32::new(0),
        status: AtomicI32::new(0),
        priority: AtomicU32::new(PRIORITY as u32),
    }
}; THREADS];

/// The fields of `qurt_thread_attr_t` that are looked at.
#[repr(C)]
pub struct Attributes {
    name: [u8; 16],
    tcb_partition: u8,
    stid: u8,
    priority: u16,
    flags: u8,
    bus_priority: u8,
    timetest_id: u16,
    stack_size: u32,
    stack_addr: *mut u8,
}

const _: () = assert!(core::mem::offset_of!(Attributes, stack_addr) == 28);

impl Attributes {
    /// Those of a thread on `stack`, for programs of this package's own.
    #[must_use]
    pub const fn new(stack: Range) -> Self {
        Self {
            name: [0; 16],
            tcb_partition: 0,
            stid: 0,
            priority: PRIORITY,
            flags: 0,
            bus_priority: 255,
            timetest_id: 0xfffe,
            stack_size: stack.bytes,
            stack_addr: stack.base.as_ptr(),
        }
    }
}

// The new thread starts behind the trap with r0 = 0 and its body, its argument and its context on its stack.
core::arch::global_asm!(
    ".text",
    "estream_sim_clone:",
    "r6 = #220",
    "trap0(#1)",
    "p0 = cmp.eq(r0,#0)",
    "if (!p0) jumpr:nt r31",
    "r1 = memw(r29+#8)",
    "gp = r1",
    "r1 = memw(r29+#0)",
    "r0 = memw(r29+#4)",
    "callr r1",
    "r6 = #93",
    "r0 = #0",
    "trap0(#1)",
);

unsafe extern "C" {
    fn estream_sim_clone(flags: u32, stack: u32, parent_tid: u32, child_tid: u32, tls: u32) -> i32;
}

const _: () = assert!(number::CLONE == 220 && number::EXIT == 93);

/// Starts a thread.
///
/// # Safety
/// `id` can be written; the attributes name a stack that is the thread's alone until it was joined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qurt_thread_create(
    id: *mut u32,
    attributes: *const Attributes,
    body: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's pointer.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return FAILED };
    let take = |thread: &Thread| {
        thread.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let Some(index) = TABLE.iter().position(take) else { return FAILED };
    let thread = &TABLE[index];
    thread.status.store(0, Ordering::Relaxed);
    thread.priority.store(attributes.priority.into(), Ordering::Relaxed);
    let Some(top) = (attributes.stack_addr.addr() as u32)
        .checked_add(attributes.stack_size)
        .filter(|_| attributes.stack_size >= 1024)
    else {
        thread.state.store(FREE, Ordering::Release);
        return FAILED;
    };
    // SAFETY: no thread with this number runs.
    let Some(context) = (unsafe { context::prepare(index as u32 + 1) }) else {
        thread.state.store(FREE, Ordering::Release);
        return FAILED;
    };
    let top = (top & !127) - 128;
    let tid = thread.tid.as_ptr().addr() as u32;
    let number = index as u32 + 1;
    // SAFETY: the stack is the thread's, and its top holds what the first instructions read. The id is stored before the
    // thread can be joined by anybody who was told of it.
    let started = unsafe {
        let frame: *mut u32 = core::ptr::with_exposed_provenance_mut(top as usize);
        frame.write(body as *const () as u32);
        frame.add(1).write(argument.addr() as u32);
        frame.add(2).write(context);
        id.write(number);
        estream_sim_clone(CLONE_FLAGS, top, tid, tid, number)
    };
    if started < 0 {
        thread.state.store(FREE, Ordering::Release);
        return FAILED;
    }
    0
}

/// Ends the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn qurt_thread_exit(status: c_int) -> ! {
    if let Some(thread) = place(qurt_thread_get_id()) {
        thread.status.store(status, Ordering::Release);
    }
    loop {
        // SAFETY: ends this thread; its stack is its creator's.
        let _ = unsafe { sys::call(number::EXIT, [0; 6]) };
    }
}

/// Waits for a thread's end.
///
/// # Safety
/// `status` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qurt_thread_join(id: u32, status: *mut c_int) -> c_int {
    let Some(thread) = place(id).filter(|thread| thread.state.load(Ordering::Acquire) == TAKEN) else {
        return FAILED;
    };
    loop {
        let tid = thread.tid.load(Ordering::Acquire);
        if tid == 0 {
            break;
        }
        futex(&thread.tid, FUTEX_WAIT, tid);
    }
    if !status.is_null() {
        // SAFETY: it can be written.
        unsafe { status.write(thread.status.load(Ordering::Acquire)) };
    }
    thread.state.store(FREE, Ordering::Release);
    0
}

fn place(id: u32) -> Option<&'static Thread> {
    TABLE.get(id.checked_sub(1)? as usize)
}

/// The calling thread: 0 for the one that carries calls.
#[unsafe(no_mangle)]
pub extern "C" fn qurt_thread_get_id() -> u32 {
    let id: u32;
    // SAFETY: reads a register that `clone` set and nothing else changes.
    unsafe { core::arch::asm!("{} = ugp", out(reg) id, options(nomem, nostack)) };
    id
}

/// A thread's priority.
#[unsafe(no_mangle)]
pub extern "C" fn qurt_thread_get_priority(id: u32) -> c_int {
    place(id).map_or(c_int::from(PRIORITY), |thread| thread.priority.load(Ordering::Relaxed).cast_signed())
}

/// Sleeps for a number of microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn qurt_sleep(microseconds: u64) -> c_int {
    sys::sleep_us(microseconds);
    0
}

/// Gives the calling thread a vector context of 128-byte registers (mode 1): every thread of the simulator has one.
#[unsafe(no_mangle)]
pub extern "C" fn qurt_hvx_lock(mode: c_int) -> c_int {
    if mode == 1 { 0 } else { FAILED }
}

/// Gives the vector context back.
#[unsafe(no_mangle)]
pub extern "C" fn qurt_hvx_unlock() -> c_int {
    0
}

/// The number of vector contexts of 128-byte registers, in bits 15:8.
#[unsafe(no_mangle)]
pub extern "C" fn qurt_hvx_get_units() -> c_int {
    HVX_CONTEXTS << 8
}

/// The number of hardware threads.
///
/// # Safety
/// `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qurt_sysenv_get_max_hw_threads(count: *mut u32) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe { count.write(HARDWARE_THREADS) };
    0
}

/// Waits while the word holds the value. Not a private futex: the word may lie in the shared memory, and the host's
/// doorbell then works in both directions, which is more than a device gives.
///
/// # Safety
/// `address` is that of a live, aligned word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qurt_futex_wait(address: *mut c_void, expected: c_int) -> c_int {
    // SAFETY: the caller's promise.
    futex(unsafe { AtomicU32::from_ptr(address.cast()) }, FUTEX_WAIT, expected.cast_unsigned())
}

/// Wakes waiters.
///
/// # Safety
/// `address` is that of a live, aligned word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qurt_futex_wake(address: *mut c_void, waiters: c_int) -> c_int {
    // SAFETY: the caller's promise.
    futex(unsafe { AtomicU32::from_ptr(address.cast()) }, FUTEX_WAKE, waiters.cast_unsigned())
}

fn futex(word: &AtomicU32, operation: u32, value: u32) -> c_int {
    // SAFETY: the word is live; without a timeout the kernel reads nothing else.
    let done = unsafe { sys::call(number::FUTEX, [word.as_ptr().addr() as u32, operation, value, 0, 0, 0]) };
    done.map_or(FAILED, u32::cast_signed)
}
