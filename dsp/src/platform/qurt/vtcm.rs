//! The scratchpad and the matrix unit of the cDSP: compute resources, their locks, and the power votes before them.
//!
//! One acquisition asks for VTCM and the matrix unit together (newer parts refuse them apart), as one page, in cached mode:
//! what is held can be lent back. The system asks for that through a callback and expects it within milliseconds; the
//! engine sees the request between two operators ([`Vtcm::hold`]), gives everything back, and takes it again when it comes
//! to it. What VTCM and the unit held is then gone, which costs nothing: no operator leaves anything there for the next.
//!
//! A domain has one matrix unit, so one session at a time has a [`Vtcm`]; the flag that the callback raises is the domain's.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use estream_idl::status::{Refusal, Status};
use hexagon_sdk_sys as sys;

/// How long an acquisition may wait for another user in microseconds.
const PATIENCE_US: u32 = 1_000_000;
/// Bytes of a power request.
const REQUEST_BYTES: usize = 120;
/// Kinds of power requests.
const HVX: u8 = 2;
const APPLICATION: u8 = 3;
const CLOCKS: u8 = 12;
const MATRIX: u8 = 13;
const MATRIX_V2: u8 = 14;
/// The application type of those that compute.
const COMPUTE: u8 = 4;
/// The highest corner of clocks and buses.
const MOST: u8 = 255;

/// Whether the system wants its resources back.
static WANTED: AtomicU32 = AtomicU32::new(0);

extern "C" fn wanted(_context: u32, _argument: *mut c_void) -> c_int {
    // Ordering: a flag that is looked at again and again.
    WANTED.store(1, Ordering::Relaxed);
    0
}

/// The functions that make up compute resources.
#[derive(Clone, Copy)]
struct Calls {
    init: sys::AttrInit,
    set_vtcm: sys::AttrSetVtcm,
    set_matrix: sys::AttrSet,
    set_cached: sys::AttrSet,
    set_callback: sys::AttrSetCallback,
    address: sys::AttrGetVtcm,
    acquire: sys::Acquire,
    release: sys::OfContext,
    acquire_cached: sys::AcquireCached,
    release_cached: sys::OfContext,
    lock: sys::OfContext,
    unlock: sys::OfContext,
}

impl Calls {
    /// All of them, or `None` on an image that lacks one.
    fn find() -> Option<Self> {
        // SAFETY: the weak statics are read once loaded and never change.
        unsafe {
            Some(Self {
                init: sys::compute_resource_attr_init?,
                set_vtcm: sys::compute_resource_attr_set_vtcm_param?,
                set_matrix: sys::compute_resource_attr_set_hmx_param?,
                set_cached: sys::compute_resource_attr_set_cache_mode?,
                set_callback: sys::compute_resource_attr_set_release_callback?,
                address: sys::compute_resource_attr_get_vtcm_ptr?,
                acquire: sys::compute_resource_acquire?,
                release: sys::compute_resource_release?,
                acquire_cached: sys::compute_resource_acquire_cached?,
                release_cached: sys::compute_resource_release_cached?,
                lock: sys::compute_resource_hmx_lock?,
                unlock: sys::compute_resource_hmx_unlock?,
            })
        }
    }
}

/// Whether the matrix unit can be had: compute resources and power votes are there.
#[must_use]
pub fn has_matrix_unit() -> bool {
    // SAFETY: the weak static is read once loaded and never changes.
    Calls::find().is_some() && unsafe { sys::HAP_power_set }.is_some()
}

/// Scratchpad and matrix unit, held by the thread that acquired them.
pub struct Vtcm {
    calls: Calls,
    context: u32,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the block is reached through `&mut self` only; the lock of the unit is the acquiring thread's business, and the
// engine never leaves its thread.
unsafe impl Send for Vtcm {}

impl Vtcm {
    /// Votes for power, then acquires `bytes` bytes in one page and the matrix unit, and locks it for the calling thread.
    ///
    /// # Errors
    /// `NoKernels` where the platform has no such resources or refuses the votes, `ScratchTooSmall` where the bytes or the
    /// unit are not to be had.
    pub fn acquire(bytes: usize) -> Result<Self, Refusal> {
        let calls = Calls::find().ok_or(Refusal::from(Status::NoKernels))?;
        power()?;
        let short = Refusal { needed: bytes as u64, ..Status::ScratchTooSmall.into() };
        let mut attributes = sys::ResourceAttributes([0; 20]);
        let block = &raw mut attributes;
        // SAFETY: the block is larger than any image's and lives through the calls; the callback is a static function
        // that ignores its argument.
        let (context, base) = unsafe {
            let failed = (calls.init)(block)
                | (calls.set_vtcm)(block, bytes as u32, 1)
                | (calls.set_matrix)(block, 1)
                | (calls.set_cached)(block, 1)
                | (calls.set_callback)(block, wanted, core::ptr::null_mut());
            if failed != 0 {
                return Err(Status::NoKernels.into());
            }
            let context = (calls.acquire)(block, PATIENCE_US);
            (context, if context == 0 { None } else { NonNull::new((calls.address)(block).cast()) })
        };
        if context == 0 {
            return Err(short);
        }
        let Some(base) = base else {
            // SAFETY: the context was just acquired.
            unsafe { (calls.release)(context) };
            return Err(short);
        };
        let mut vtcm = Self { calls, context, base, bytes };
        if vtcm.take() { Ok(vtcm) } else { Err(short) }
    }

    /// Makes the resources usable and locks the unit.
    fn take(&mut self) -> bool {
        WANTED.store(0, Ordering::Relaxed);
        // SAFETY: the context is this value's, and its resources are not in use.
        unsafe {
            (self.calls.acquire_cached)(self.context, PATIENCE_US) == 0
                && (self.calls.lock)(self.context) == 0
        }
    }

    fn give(&mut self) {
        // SAFETY: the context is this value's; nothing uses the block or the unit between two operators.
        unsafe {
            (self.calls.unlock)(self.context);
            (self.calls.release_cached)(self.context);
        }
    }

    /// Sees to it that the resources are held, after lending them to the system where it has asked; whether what they held
    /// is still there. Between two operators.
    pub fn hold(&mut self) -> bool {
        if WANTED.load(Ordering::Relaxed) == 0 {
            return true;
        }
        self.give();
        // Whoever asked has higher priority and goes first; there is nothing else to do meanwhile.
        while !self.take() {
            super::wait(&WANTED, 0, Some(1_000_000));
        }
        false
    }

    /// Where the units see the block.
    #[must_use]
    pub fn address(&self) -> u32 {
        self.base.addr().get() as u32
    }

    /// The block.
    #[must_use]
    pub fn block(&mut self) -> &mut [u8] {
        // SAFETY: the system gave these bytes to this value alone, and they are plain.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Vtcm {
    fn drop(&mut self) {
        self.give();
        // SAFETY: the context is this value's, and ends with it.
        unsafe { (self.calls.release)(self.context) };
        vote(MATRIX, &[(8, 0)]);
        vote(MATRIX_V2, &[(8, 1), (9, 0)]);
    }
}

/// Sends a power request of a kind with some bytes of it set, by their offsets; whether it was accepted.
fn vote(kind: u8, bytes: &[(usize, u8)]) -> bool {
    // SAFETY: the weak static is read once loaded and never changes.
    let Some(set) = (unsafe { sys::HAP_power_set }) else { return false };
    let mut request = [0u64; REQUEST_BYTES / 8].map(u64::to_le_bytes);
    let flat = request.as_flattened_mut();
    flat[0] = kind;
    for &(at, byte) in bytes {
        flat[at] = byte;
    }
    // SAFETY: the request is as long as the newest, and only read; the context is an address that is this module's own.
    unsafe { set((&raw const WANTED).cast_mut().cast(), request.as_ptr().cast()) == 0 }
}

/// Votes for the clocks and units that computing needs. Only the matrix unit's is required: without it the first word for
/// it hangs the DSP. The payloads begin at byte 8; those of clocks are written as a shipping skel does, both blocks of
/// corners (buses and cores) alike.
fn power() -> Result<(), Refusal> {
    vote(APPLICATION, &[(8, COMPUTE)]);
    vote(
        CLOCKS,
        &[
            // Clocks do not follow the load; both blocks: target, least and most corner; no sleep.
            (8, 1),
            (9, 0),
            (16, 1),
            (20, MOST),
            (21, MOST),
            (22, MOST),
            (36, 1),
            (40, MOST),
            (41, MOST),
            (42, MOST),
            (84, 1),
            (85, 1),
        ],
    );
    vote(HVX, &[(8, 1)]);
    // From v75 on: power up, default clocks. Older parts refuse that and know the first form.
    if vote(MATRIX_V2, &[(8, 1), (9, 1), (10, 1), (11, 1)]) || vote(MATRIX, &[(8, 1)]) {
        Ok(())
    } else {
        Err(Status::NoKernels.into())
    }
}
