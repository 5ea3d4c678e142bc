//! Doorbells: how one thread or side tells another that there is something new, without the message being lost.
//!
//! A bell is a word that is only counted up. The discipline that loses no wake-up, on both sides of the contract and
//! inside the pool:
//!
//! 1. the sender makes its news visible (pushes to the ring), **then** rings;
//! 2. the listener reads the bell, **then** looks for news, and only where there is none waits on the value it read
//!    ([`crate::platform::wait`]), and starts over.
//!
//! News after the look changes the bell first, so the wait returns at once. The other order (look, read, wait) sleeps
//! through news that falls between look and read. A loom model explores both orders of events.
//!
//! On a phone no wake crosses from the host's processor to the DSP, and a host that died rings no more: a wait on a bell
//! that the host rings has a timeout.

use crate::platform::wake;
use estream_idl::sync::{AtomicU32, Ordering};

/// The bell as it stands; read it before looking for news.
#[must_use]
pub fn read(bell: &AtomicU32) -> u32 {
    // Ordering: what was done before the ring that made this value is visible to the look that follows.
    bell.load(Ordering::Acquire)
}

/// Rings; call it after the news is visible.
pub fn ring(bell: &AtomicU32) {
    // Ordering: whoever reads this value sees everything before it.
    bell.fetch_add(1, Ordering::Release);
    wake(bell);
}
