//! Orderings that no atomic operation stands for.
//!
//! No public source says what orders vector stores before matrix loads, or matrix stores before vector loads, on one
//! thread; [`memory`] is the cheap and safe choice between them. Between threads the hand-over's own atomics order.

use core::arch::asm;

/// `barrier`: earlier memory accesses of this thread are performed before later ones.
#[inline(always)]
pub fn memory() {
    // SAFETY: a barrier has no operands; not marked `nomem`, it keeps the compiler's accesses apart too.
    unsafe { asm!("barrier", options(nostack)) }
}

/// `syncht`: as [`memory`], and waits until all of them are complete.
#[inline(always)]
pub fn complete() {
    // SAFETY: as in `memory`.
    unsafe { asm!("syncht", options(nostack)) }
}

/// `vmem(Rs+#0):scatter_release`: scatters before it are visible to a load of this address after it.
///
/// # Safety
/// `address` is 128-byte aligned in VTCM, and the thread has a vector context.
#[inline(always)]
pub unsafe fn scatter_release(address: u32) {
    // SAFETY: the caller vouches for the address; the store of this form writes no data.
    unsafe { asm!("vmem({s}+#0):scatter_release", s = in(reg) address, options(nostack)) }
}
