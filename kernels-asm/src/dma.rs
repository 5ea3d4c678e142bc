//! The user-DMA instructions, which the assembler knows. Each hardware thread has an engine of its own: a descriptor is
//! polled by the thread that started it.

use core::arch::asm;

/// `dmstart(Rs)`: starts the chain of descriptors at `descriptor`.
///
/// # Safety
/// The calling thread's engine is idle; the chain and its transfers stay valid until it is; descriptors were written before
/// ([`barrier`](crate::barrier::memory) is not needed on one thread).
#[inline(always)]
pub unsafe fn start(descriptor: u32) {
    // SAFETY: the caller vouches for the chain. The asm may read and write memory, so it stays after the stores that made it.
    unsafe { asm!("dmstart({s})", s = in(reg) descriptor, options(nostack)) }
}

/// `dmlink(Rs,Rt)`: appends `new` behind `tail`, the last descriptor of the running chain; starts it if the engine is idle.
///
/// # Safety
/// As [`start`], and `tail` is the last descriptor that this thread handed over.
#[inline(always)]
pub unsafe fn link(tail: u32, new: u32) {
    // SAFETY: the caller vouches for both descriptors.
    unsafe { asm!("dmlink({s}, {t})", s = in(reg) tail, t = in(reg) new, options(nostack)) }
}

/// `Rd=dmpoll`: bits 1:0 are 0 idle, 1 running, 2 failed; the rest is the current descriptor's address.
///
/// # Safety
/// The calling thread may be given the engine's pending exception.
#[inline(always)]
#[must_use]
pub unsafe fn poll() -> u32 {
    let status;
    // SAFETY: only the calling thread's engine is looked at; transfers that completed are visible to loads after the asm.
    unsafe { asm!("{d} = dmpoll", d = out(reg) status, options(nostack)) }
    status
}

/// `Rd=dmwait`: blocks until the engine is idle, and returns as [`poll`].
///
/// # Safety
/// As [`poll`].
#[inline(always)]
pub unsafe fn wait() -> u32 {
    let status;
    // SAFETY: as in `poll`.
    unsafe { asm!("{d} = dmwait", d = out(reg) status, options(nostack)) }
    status
}

/// `Rd=dmpause`: stops the engine, and returns as [`poll`].
///
/// # Safety
/// As [`poll`].
#[inline(always)]
#[must_use]
pub unsafe fn pause() -> u32 {
    let status;
    // SAFETY: as in `poll`.
    unsafe { asm!("{d} = dmpause", d = out(reg) status, options(nostack)) }
    status
}

/// `dmresume(Rs)`: goes on where [`pause`] stopped.
///
/// # Safety
/// `paused` is what [`pause`] returned on this thread, and its chain is still valid.
#[inline(always)]
pub unsafe fn resume(paused: u32) {
    // SAFETY: the caller vouches for the paused chain.
    unsafe { asm!("dmresume({s})", s = in(reg) paused, options(nostack)) }
}
