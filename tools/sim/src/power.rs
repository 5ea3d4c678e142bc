//! Power votes: remembered, since a matrix word without one hangs a device.
//!
//! `HAP_power_set(context, request)`: the request's kind stands at byte 0, its payload at byte 8. Votes on clocks, buses and
//! HVX are accepted and change nothing here. The matrix unit's vote is of kind 13 below v75 and of kind 14 from v75 on;
//! a domain refuses the one that is not its own.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

const FAILED: c_int = -1;
/// Kinds of requests that a device knows: HVX, application type, DCVS v2, DCVS v3.
const KNOWN: [u32; 4] = [2, 3, 7, 12];
/// `HAP_power_set_HMX`: byte 0 of the payload turns the unit on.
const MATRIX: u32 = 13;
/// `HAP_power_set_HMX_v2`: byte 0 says that byte 1 counts, byte 1 turns the unit on.
const MATRIX_V2: u32 = 14;

static MATRIX_ON: AtomicBool = AtomicBool::new(false);
static SECOND_VERSION: AtomicBool = AtomicBool::new(false);

/// Sets the architecture that the domain speaks for, the low byte of `e_flags`. Before the skel runs.
pub fn set_architecture(architecture: u32) {
    SECOND_VERSION.store(architecture >= 0x75, Ordering::Relaxed);
}

/// Whether the matrix unit has been voted on.
#[must_use]
pub fn matrix_is_on() -> bool {
    MATRIX_ON.load(Ordering::Relaxed)
}

/// Takes a vote.
///
/// # Safety
/// The request is null or that of a live request of its kind.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn HAP_power_set(_context: *mut c_void, request: *const u8) -> c_int {
    if request.is_null() {
        return FAILED;
    }
    // SAFETY: a request has its kind and at least the first bytes of its payload.
    let (kind, first, second) =
        unsafe { (request.cast::<u32>().read_unaligned(), request.add(8).read(), request.add(9).read()) };
    match (kind, SECOND_VERSION.load(Ordering::Relaxed)) {
        (MATRIX, false) => MATRIX_ON.store(first != 0, Ordering::Relaxed),
        (MATRIX_V2, true) if first == 0 => {}
        (MATRIX_V2, true) => MATRIX_ON.store(second != 0, Ordering::Relaxed),
        (kind, _) if KNOWN.contains(&kind) => {}
        _ => return FAILED,
    }
    0
}
