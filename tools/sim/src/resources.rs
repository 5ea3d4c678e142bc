//! Compute resources: the VTCM and the matrix unit, held and locked as on a device.
//!
//! One VTCM, one matrix unit. An acquisition names what it wants in an attribute block whose layout is the platform's own
//! business, hence this program's; it is granted when it is free and refused otherwise, since nobody else competes here who
//! could give it back. The block must have been initialised, the VTCM is zeroed when it is released, a cached acquisition
//! is usable only between `acquire_cached` and `release_cached`, and the matrix unit belongs to the thread that locked it.
//! The models look here for what they may touch.

use crate::memory::{self, Range, Source};
use crate::{hap, qurt, sys};
use core::ffi::{c_int, c_void};
use estream_kernels_asm::model;
use spin::Mutex;

const FAILED: c_int = -1;
/// What newer functions answer that this platform does not have.
const NOT_SUPPORTED: c_int = 0x8000_0404_u32.cast_signed();
/// Marks an attribute block that was initialised.
const MAGIC: u32 = 0x4154_5452;
/// Addresses of the VTCM begin at a multiple of this, the reach of a chain where it is not one page.
const ALIGNMENT: u32 = 256 << 10;
/// How often a thread that waits for the matrix unit looks.
const LOCK_NAP_US: u64 = 50;

/// An attribute block: 64 bytes that callers do not look into.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    magic: u32,
    bytes: u32,
    minimum: u32,
    /// Smallest page that it may be made of, 0 for any.
    page: u32,
    single_page: u8,
    matrix: u8,
    cached: u8,
    serialize: u8,
    /// Filled in by a successful acquisition.
    granted: u32,
    granted_bytes: u32,
    callback: u32,
    argument: u32,
    application: u32,
    rest: [u32; 6],
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Who holds what.
#[derive(Debug)]
struct Holdings {
    /// The VTCM, mapped when it is first asked for.
    mapping: Option<Range>,
    /// The context that holds it, and how many bytes.
    vtcm: Option<Vtcm>,
    /// The context that holds the matrix unit.
    matrix: Option<u32>,
    /// The thread that has locked it.
    lock: Option<u32>,
    /// How often it was locked.
    locks: u32,
    /// The last context that was given out.
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Vtcm {
    context: u32,
    base: u32,
    bytes: u32,
    single_page: bool,
    /// A cached one is usable only while it is acquired a second time.
    cached: bool,
    usable: bool,
}

static HOLDINGS: Mutex<Holdings> =
    Mutex::new(Holdings { mapping: None, vtcm: None, matrix: None, lock: None, locks: 0, last: 0 });

/// The VTCM that is held and may be used now, if any.
#[must_use]
pub fn vtcm() -> Option<model::Vtcm> {
    let held = HOLDINGS.lock().vtcm.filter(|vtcm| vtcm.usable)?;
    Some(model::Vtcm { base: held.base, length: held.bytes, single_page: held.single_page })
}

/// The number of the calling thread's lock of the matrix unit, which no other lock has; 0 if it has none.
#[must_use]
pub fn matrix_lock() -> u32 {
    let holdings = HOLDINGS.lock();
    if holdings.lock == Some(qurt::qurt_thread_get_id()) { holdings.locks } else { 0 }
}

/// The block behind a pointer, if it was initialised.
///
/// # Safety
/// The pointer is null or that of a live block of at least 64 bytes that nobody else uses.
unsafe fn block<'a>(attributes: *mut Attributes) -> Option<&'a mut Attributes> {
    // SAFETY: the caller's promise.
    unsafe { attributes.as_mut() }.filter(|block| block.magic == MAGIC)
}

/// Makes an attribute block that asks for nothing.
///
/// # Safety
/// The pointer is null or that of at least 64 bytes that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compute_resource_attr_init(attributes: *mut Attributes) -> c_int {
    if attributes.is_null() {
        return FAILED;
    }
    let empty = Attributes {
        magic: MAGIC,
        bytes: 0,
        minimum: 0,
        page: 0,
        single_page: 0,
        matrix: 0,
        cached: 0,
        serialize: 0,
        granted: 0,
        granted_bytes: 0,
        callback: 0,
        argument: 0,
        application: 0,
        rest: [0; 6],
    };
    // SAFETY: the caller's promise.
    unsafe { attributes.write(empty) };
    0
}

macro_rules! setters {
    ($($(#[$documentation:meta])* $name:ident($($argument:ident: $type:ty),*) $block:ident => $set:expr;)*) => {
        $(
            $(#[$documentation])*
            ///
            /// # Safety
            /// The first pointer is null or that of an attribute block that nobody else uses.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(attributes: *mut Attributes, $($argument: $type),*) -> c_int {
                // SAFETY: the caller's promise.
                let Some($block) = (unsafe { block(attributes) }) else { return FAILED };
                $set;
                0
            }
        )*
    };
}

setters! {
    /// Asks for serialised use.
    compute_resource_attr_set_serialize(serialize: u8) block => block.serialize = serialize;
    /// Asks for the matrix unit.
    compute_resource_attr_set_hmx_param(matrix: u8) block => block.matrix = matrix;
    /// Asks for VTCM, in one page or not.
    compute_resource_attr_set_vtcm_param(bytes: u32, single_page: u8) block => {
        (block.bytes, block.minimum, block.single_page) = (bytes, bytes, single_page);
    };
    /// Asks for VTCM of pages of at least a size; fewer bytes will do if they are at least the minimum.
    compute_resource_attr_set_vtcm_param_v2(bytes: u32, page: u32, minimum: u32) block => {
        (block.bytes, block.page, block.minimum) = (bytes, page, if minimum == 0 { bytes } else { minimum });
    };
    /// Says what kind of application asks.
    compute_resource_attr_set_app_type(application: u32) block => block.application = application;
    /// Asks for a context whose resources come and go.
    compute_resource_attr_set_cache_mode(cached: u8) block => block.cached = cached;
    /// Names who is called when the platform wants its resources back, which it never does here.
    compute_resource_attr_set_release_callback(callback: u32, argument: u32) block => {
        (block.callback, block.argument) = (callback, argument);
    };
}

/// Where the VTCM is that an acquisition has granted; null if none.
///
/// # Safety
/// The pointer is null or that of an attribute block that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compute_resource_attr_get_vtcm_ptr(attributes: *mut Attributes) -> *mut c_void {
    // SAFETY: the caller's promise.
    let granted = unsafe { block(attributes) }.map_or(0, |block| block.granted);
    core::ptr::with_exposed_provenance_mut(granted as usize)
}

/// Where the VTCM is that an acquisition has granted, and how large.
///
/// # Safety
/// The first pointer is null or that of an attribute block that nobody else uses; the others can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compute_resource_attr_get_vtcm_ptr_v2(
    attributes: *mut Attributes,
    base: *mut *mut c_void,
    bytes: *mut u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(block) = (unsafe { block(attributes) }) else { return FAILED };
    if base.is_null() || bytes.is_null() || block.granted == 0 {
        return FAILED;
    }
    // SAFETY: both can be written.
    unsafe {
        base.write(core::ptr::with_exposed_provenance_mut(block.granted as usize));
        bytes.write(block.granted_bytes);
    }
    0
}

/// Acquires what the attributes ask for; 0 when it is not free, which no timeout changes.
///
/// # Safety
/// The pointer is null or that of an attribute block that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compute_resource_acquire(attributes: *mut Attributes, _timeout_us: u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(block) = (unsafe { block(attributes) }) else { return 0 };
    let mut holdings = HOLDINGS.lock();
    let total = hap::vtcm_bytes();
    let bytes = block.bytes.min(total);
    // All of the VTCM is one page here, as large as any that could be asked for.
    let unfit = block.bytes > 0 && (bytes < block.minimum || bytes == 0 || holdings.vtcm.is_some());
    if unfit || block.matrix != 0 && holdings.matrix.is_some() {
        return 0;
    }
    let context = holdings.last + 1;
    if block.bytes > 0 {
        if holdings.mapping.is_none() {
            holdings.mapping = memory::map(total + ALIGNMENT, Source::Zeros);
        }
        let Some(mapping) = holdings.mapping else { return 0 };
        let base = (mapping.base.addr().get() as u32).next_multiple_of(ALIGNMENT);
        let single_page = block.single_page != 0 || block.page >= bytes;
        let cached = block.cached != 0;
        holdings.vtcm = Some(Vtcm { context, base, bytes, single_page, cached, usable: !cached });
        (block.granted, block.granted_bytes) = (base, bytes);
    }
    if block.matrix != 0 {
        holdings.matrix = Some(context);
    }
    holdings.last = context;
    context
}

/// Zeroes the VTCM, so that nothing survives a release.
fn clear(vtcm: Vtcm) {
    let base: *mut u8 = core::ptr::with_exposed_provenance_mut(vtcm.base as usize);
    // SAFETY: the bytes are mapped for the life of the program, and whoever held them has given them back.
    unsafe { base.write_bytes(0, vtcm.bytes as usize) };
}

/// Gives back what a context holds.
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_release(context: u32) -> c_int {
    let mut holdings = HOLDINGS.lock();
    let vtcm = holdings.vtcm.filter(|vtcm| vtcm.context == context);
    let matrix = holdings.matrix == Some(context);
    if vtcm.is_none() && !matrix {
        return FAILED;
    }
    if let Some(vtcm) = vtcm {
        clear(vtcm);
        holdings.vtcm = None;
    }
    if matrix {
        (holdings.matrix, holdings.lock) = (None, None);
    }
    0
}

/// Makes the resources of a cached context usable.
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_acquire_cached(context: u32, _timeout_us: u32) -> c_int {
    usable(context, true)
}

/// Hands the resources of a cached context back until the next [`compute_resource_acquire_cached`].
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_release_cached(context: u32) -> c_int {
    usable(context, false)
}

fn usable(context: u32, usable: bool) -> c_int {
    let mut holdings = HOLDINGS.lock();
    match &mut holdings.vtcm {
        Some(vtcm) if vtcm.context == context && vtcm.cached && vtcm.usable != usable => {
            vtcm.usable = usable;
            if !usable {
                clear(*vtcm);
            }
            0
        }
        _ => FAILED,
    }
}

/// Locks the matrix unit for the calling thread, once no other has it.
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_hmx_lock(context: u32) -> c_int {
    let own = qurt::qurt_thread_get_id();
    loop {
        let mut holdings = HOLDINGS.lock();
        if holdings.matrix != Some(context) || holdings.lock == Some(own) {
            return FAILED;
        }
        if holdings.lock.is_none() {
            holdings.lock = Some(own);
            holdings.locks += 1;
            return 0;
        }
        drop(holdings);
        sys::sleep_us(LOCK_NAP_US);
    }
}

/// Unlocks the matrix unit, by the thread that has locked it.
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_hmx_unlock(context: u32) -> c_int {
    let mut holdings = HOLDINGS.lock();
    if holdings.matrix != Some(context) || holdings.lock != Some(qurt::qurt_thread_get_id()) {
        return FAILED;
    }
    holdings.lock = None;
    0
}

/// Locks the matrix unit, shared (1) or not (0): alone in its domain, a thread cannot tell.
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_hmx_lock2(context: u32, _kind: u32) -> c_int {
    compute_resource_hmx_lock(context)
}

/// The counterpart of [`compute_resource_hmx_lock2`].
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_hmx_unlock2(context: u32, _kind: u32) -> c_int {
    compute_resource_hmx_unlock(context)
}

/// Whether the platform wants a context's resources back: never.
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_check_release_request(_context: u32) -> c_int {
    0
}

/// Changes a context's priority, which nothing competes with.
#[unsafe(no_mangle)]
pub extern "C" fn compute_resource_update_priority(_context: u32, _priority: u16) -> c_int {
    NOT_SUPPORTED
}
