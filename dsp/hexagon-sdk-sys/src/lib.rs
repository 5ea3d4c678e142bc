//! Declarations of what a Hexagon protection domain provides: QuRT, HAP, compute resources. No logic.
//!
//! Only what the firmware calls is declared. The loader fails a whole skel for one undefined symbol that is not weak, and
//! the images differ, so whatever some image lacks is a weak static that reads `None` there; the caller has the fallback.
//! The rest are imports that every shipping skel has. Empty on every other target.
#![cfg(target_arch = "hexagon")]
#![no_std]
#![feature(asm_experimental_arch, linkage)]

use core::ffi::{c_char, c_int, c_void};

/// A thread's attributes, as `qurt_thread_attr_init` (a header inline) fills them; see [`ThreadAttributes::new`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThreadAttributes {
    /// Name, zero-padded.
    pub name: [c_char; 16],
    /// Partition of the thread control block: 0 = RAM.
    pub tcb_partition: u8,
    /// Software thread id: 0 = any.
    pub stid: u8,
    /// Priority, 1 the highest, 254 the lowest.
    pub priority: u16,
    /// Bit 0 autostack, bits 1..7 group.
    pub flags: u8,
    /// Bus priority: 255 = default.
    pub bus_priority: u8,
    /// Test id of timed tests: 0xFFFE = none.
    pub timetest_id: u16,
    /// Bytes of stack.
    pub stack_size: u32,
    /// Lowest address of the stack.
    pub stack_addr: *mut c_void,
    /// 0 = joinable.
    pub detach_state: u16,
    /// Room for fields of newer images; zero.
    pub reserved: [u32; 7],
}

const _: () = assert!(
    core::mem::offset_of!(ThreadAttributes, priority) == 18
        && core::mem::offset_of!(ThreadAttributes, timetest_id) == 22
        && core::mem::offset_of!(ThreadAttributes, stack_addr) == 28
        && core::mem::offset_of!(ThreadAttributes, detach_state) == 32
        && core::mem::offset_of!(ThreadAttributes, reserved) == 36
);

impl ThreadAttributes {
    /// The values of `qurt_thread_attr_init`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            name: [0; 16],
            tcb_partition: 0,
            stid: 0,
            priority: 254,
            flags: 0,
            bus_priority: 255,
            timetest_id: 0xfffe,
            stack_size: 0,
            stack_addr: core::ptr::null_mut(),
            detach_state: 0,
            reserved: [0; 7],
        }
    }
}

impl Default for ThreadAttributes {
    fn default() -> Self {
        Self::new()
    }
}

/// Pages of a kind of memory, as `compute_resource_query_VTCM` reports them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PageList {
    /// Bytes of the block.
    pub block_size: u32,
    /// Entries of `pages` in use.
    pub page_list_len: u32,
    /// (Page size, number of pages).
    pub pages: [[u32; 2]; 8],
}

unsafe extern "C" {
    /// Starts a thread.
    pub fn qurt_thread_create(
        id: *mut u32,
        attributes: *const ThreadAttributes,
        body: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> c_int;
    /// Ends the calling thread.
    pub fn qurt_thread_exit(status: c_int) -> !;
    /// Waits for a thread's end.
    pub fn qurt_thread_join(id: u32, status: *mut c_int) -> c_int;
    /// The calling thread.
    pub fn qurt_thread_get_id() -> u32;
    /// A thread's priority.
    pub fn qurt_thread_get_priority(id: u32) -> c_int;
    /// Sleeps for a number of microseconds.
    pub fn qurt_sleep(microseconds: u64) -> c_int;
    /// The number of hardware threads; the header's struct is this one word.
    pub fn qurt_sysenv_get_max_hw_threads(count: *mut u32) -> c_int;
    /// Microseconds of a number of ticks of [`HAP_perf_get_qtimer_count`].
    pub fn HAP_perf_qtimer_count_to_us(count: u64) -> u64;
    /// Where a buffer that the host mapped (`FASTRPC_MAP_FD`) lies here, by the host's descriptor; counts the use. The
    /// physical address is written where `physical` is not null. The buffer's length is not told.
    pub fn HAP_mmap_get(fd: c_int, address: *mut *mut c_void, physical: *mut u64) -> c_int;
    /// Ends a use that `HAP_mmap_get` counted.
    pub fn HAP_mmap_put(fd: c_int) -> c_int;
}

/// `HAP_debug(message, level, file, line)`: a line of the platform's log, not formatted.
pub type Debug = unsafe extern "C" fn(*const c_char, c_int, *const c_char, c_int);
/// `qurt_futex_wait(address, expected)`.
pub type FutexWait = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
/// `qurt_futex_wake(address, waiters)`.
pub type FutexWake = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
/// `memalign(alignment, bytes)`.
pub type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// `free(pointer)`.
pub type Free = unsafe extern "C" fn(*mut c_void);
/// `compute_resource_query_VTCM(application, total, total_pages, available, available_pages)`.
pub type QueryVtcm = unsafe extern "C" fn(u32, *mut u32, *mut PageList, *mut u32, *mut PageList) -> c_int;

/// Level of `HAP_debug` for what ends the domain.
pub const HAP_LEVEL_FATAL: c_int = 4;

unsafe extern "C" {
    /// The platform's log; a log must not be why a skel does not load.
    #[linkage = "extern_weak"]
    pub static HAP_debug: Option<Debug>;
    /// Waits while the word holds the value; some images have it as an inline trap only.
    #[linkage = "extern_weak"]
    pub static qurt_futex_wait: Option<FutexWait>;
    /// Wakes waiters; some images have it as an inline trap only.
    #[linkage = "extern_weak"]
    pub static qurt_futex_wake: Option<FutexWake>;
    /// Aligned memory, under the name that skels of the vendor's linker import.
    #[linkage = "extern_weak"]
    pub static __wrap_memalign: Option<Memalign>;
    /// Gives memory back, under the name that skels of the vendor's linker import.
    #[linkage = "extern_weak"]
    pub static __wrap_free: Option<Free>;
    /// Aligned memory, under the C library's name.
    #[linkage = "extern_weak"]
    pub static memalign: Option<Memalign>;
    /// Gives memory back, under the C library's name.
    #[linkage = "extern_weak"]
    pub static free: Option<Free>;
    /// The size of the VTCM.
    #[linkage = "extern_weak"]
    pub static compute_resource_query_VTCM: Option<QueryVtcm>;
}

/// `HAP_power_set(context, request)`: a vote on clocks, buses or units.
pub type PowerSet = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
/// `qurt_hvx_lock(mode)`: mode 1 is a context of 128-byte vectors.
pub type HvxLock = unsafe extern "C" fn(c_int) -> c_int;
/// `qurt_hvx_unlock()` and `qurt_hvx_get_units()`.
pub type HvxUnlock = unsafe extern "C" fn() -> c_int;
/// `estream_sim_mark(operator)`: what the words that follow work for, told to a simulator; what they worked for before.
pub type Mark = unsafe extern "C" fn(u32) -> u32;

/// An attribute block of compute resources: opaque, larger than any image's.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct ResourceAttributes(pub [u64; 20]);

/// `compute_resource_attr_init(attributes)`.
pub type AttrInit = unsafe extern "C" fn(*mut ResourceAttributes) -> c_int;
/// A setter with one small argument.
pub type AttrSet = unsafe extern "C" fn(*mut ResourceAttributes, u8) -> c_int;
/// `compute_resource_attr_set_vtcm_param(attributes, bytes, single_page)`.
pub type AttrSetVtcm = unsafe extern "C" fn(*mut ResourceAttributes, u32, u8) -> c_int;
/// `compute_resource_attr_set_release_callback(attributes, callback, argument)`.
pub type AttrSetCallback = unsafe extern "C" fn(
    *mut ResourceAttributes,
    extern "C" fn(u32, *mut c_void) -> c_int,
    *mut c_void,
) -> c_int;
/// `compute_resource_attr_get_vtcm_ptr(attributes)`.
pub type AttrGetVtcm = unsafe extern "C" fn(*mut ResourceAttributes) -> *mut c_void;
/// `compute_resource_acquire(attributes, timeout_us)`: a context, 0 for failure.
pub type Acquire = unsafe extern "C" fn(*mut ResourceAttributes, u32) -> u32;
/// `compute_resource_acquire_cached(context, timeout_us)`.
pub type AcquireCached = unsafe extern "C" fn(u32, u32) -> c_int;
/// A function of a context.
pub type OfContext = unsafe extern "C" fn(u32) -> c_int;

unsafe extern "C" {
    /// Votes; without the matrix unit's, its first word hangs the DSP.
    #[linkage = "extern_weak"]
    pub static HAP_power_set: Option<PowerSet>;
    /// The vector contexts: those of 128 bytes in bits 15:8.
    #[linkage = "extern_weak"]
    pub static qurt_hvx_get_units: Option<HvxUnlock>;
    /// A vector context for the calling thread; some images give one with the thread.
    #[linkage = "extern_weak"]
    pub static qurt_hvx_lock: Option<HvxLock>;
    /// Gives it back.
    #[linkage = "extern_weak"]
    pub static qurt_hvx_unlock: Option<HvxUnlock>;
    /// A simulator's, for all threads: nobody provides it on a device.
    #[linkage = "extern_weak"]
    pub static estream_sim_mark: Option<Mark>;
    /// A simulator's, for the calling thread.
    #[linkage = "extern_weak"]
    pub static estream_sim_mark_thread: Option<Mark>;
    /// Makes an attribute block that asks for nothing.
    #[linkage = "extern_weak"]
    pub static compute_resource_attr_init: Option<AttrInit>;
    /// Asks for scratchpad.
    #[linkage = "extern_weak"]
    pub static compute_resource_attr_set_vtcm_param: Option<AttrSetVtcm>;
    /// Asks for the matrix unit.
    #[linkage = "extern_weak"]
    pub static compute_resource_attr_set_hmx_param: Option<AttrSet>;
    /// Asks for a context whose resources come and go.
    #[linkage = "extern_weak"]
    pub static compute_resource_attr_set_cache_mode: Option<AttrSet>;
    /// Names who is called when the system wants its resources back.
    #[linkage = "extern_weak"]
    pub static compute_resource_attr_set_release_callback: Option<AttrSetCallback>;
    /// Where the scratchpad is.
    #[linkage = "extern_weak"]
    pub static compute_resource_attr_get_vtcm_ptr: Option<AttrGetVtcm>;
    /// Acquires what an attribute block asks for.
    #[linkage = "extern_weak"]
    pub static compute_resource_acquire: Option<Acquire>;
    /// Gives a context back.
    #[linkage = "extern_weak"]
    pub static compute_resource_release: Option<OfContext>;
    /// Makes a cached context's resources usable.
    #[linkage = "extern_weak"]
    pub static compute_resource_acquire_cached: Option<AcquireCached>;
    /// Lends them back to the system.
    #[linkage = "extern_weak"]
    pub static compute_resource_release_cached: Option<OfContext>;
    /// Locks the matrix unit for the calling thread.
    #[linkage = "extern_weak"]
    pub static compute_resource_hmx_lock: Option<OfContext>;
    /// Unlocks it.
    #[linkage = "extern_weak"]
    pub static compute_resource_hmx_unlock: Option<OfContext>;
}

/// The 19.2 MHz timer, as the header's inline of this name reads it.
#[must_use]
#[allow(non_snake_case)]
pub fn HAP_perf_get_qtimer_count() -> u64 {
    let count: u64;
    // `r1:0 = utimer`, as its word: the assembler has the register from v65 on only, the instruction is older.
    // SAFETY: reading a counter register has no effect on memory or other registers.
    unsafe { core::arch::asm!(".word 0x681ec000", out("r1:0") count, options(nomem, nostack)) };
    count
}
