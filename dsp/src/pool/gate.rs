//! The gate between the thread that has a job and the threads that may help with it.
//!
//! One word says everything: how many helpers are inside, and whether a job is *claimed*, *open* or the gate *stopped*.
//! Helping is voluntary: the opener works through the whole job itself if nobody comes, and waits only for helpers that
//! went in. A helper that sleeps through a job costs nothing, so the word needs no generation number: whoever gets in
//! gets into the job that is open now, whatever it waited for. (The road not taken is a barrier that all threads cross:
//! on a busy machine each job would wait for the slowest wake-up.)
//!
//! The job's data lies outside. It belongs to the opener from [`Gate::claim`] to [`Gate::open`], is read-only while
//! anyone is inside, and is the opener's again when [`Gate::close`] returns.

use crate::bell;
use crate::platform::{Patience, wait, wake};
use estream_idl::sync::{AtomicU32, Ordering};

/// Bits that count the helpers inside.
const INSIDE: u32 = 0xff;
/// A job is being prepared, worked on or wound up.
const CLAIMED: u32 = 1 << 8;
/// Helpers may come in.
const OPEN: u32 = 1 << 9;
/// Helpers shall go home.
const STOPPED: u32 = 1 << 10;

/// Most helpers that a gate can count.
pub const MAX_HELPERS: usize = INSIDE as usize;

/// The gate. Helpers sleep on `state`, the opener on `empty`.
#[derive(Debug)]
pub struct Gate {
    state: AtomicU32,
    /// A bell, rung when the last helper leaves a gate that is shut.
    empty: AtomicU32,
}

impl Gate {
    /// A gate that is shut.
    #[must_use]
    pub fn new() -> Self {
        Self { state: AtomicU32::new(0), empty: AtomicU32::new(0) }
    }

    /// Claims the gate for a job; `false` while another job has it.
    #[must_use]
    pub fn claim(&self) -> bool {
        // Ordering: acquires what the opener before left when it gave the claim up.
        self.state.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lets helpers in, once the job's data stands.
    pub fn open(&self) {
        // Ordering: helpers that come in see the job's data.
        self.state.fetch_or(OPEN, Ordering::Release);
        wake(&self.state);
    }

    /// Lets no more helpers in: nothing of the job is left to hand out.
    pub fn shut(&self) {
        // Ordering: nothing is published here; who is inside stays inside.
        self.state.fetch_and(!OPEN, Ordering::Relaxed);
    }

    /// Shuts the gate, waits until everyone is out, and gives the claim up.
    pub fn close(&self) {
        self.shut();
        let mut patience = Patience::new();
        loop {
            let rung = bell::read(&self.empty);
            // Ordering: acquires what the helpers did before they left.
            if self.state.load(Ordering::Acquire) & INSIDE == 0 {
                break;
            }
            if !patience.spin() {
                wait(&self.empty, rung, None);
            }
        }
        // Ordering: releases the job's data to the next opener.
        self.state.fetch_and(!CLAIMED, Ordering::Release);
    }

    /// Waits until a job is open and goes in (`true`; then [`Gate::leave`] is due), or until the gate is stopped.
    #[must_use]
    pub fn enter(&self) -> bool {
        let mut patience = Patience::new();
        loop {
            let seen = self.state.load(Ordering::Relaxed);
            if seen & STOPPED != 0 {
                return false;
            }
            if seen & OPEN != 0 {
                // Ordering: acquires the job's data from `open`; other helpers' changes in between keep that release.
                let entered =
                    self.state.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed);
                if entered.is_ok() {
                    return true;
                }
            } else if !patience.spin() {
                wait(&self.state, seen, None);
            }
        }
    }

    /// Goes out; nothing of the job may be touched after it.
    pub fn leave(&self) {
        // Ordering: releases what this helper did to the opener; acquires nothing.
        let before = self.state.fetch_sub(1, Ordering::Release);
        if before & (OPEN | INSIDE) == 1 {
            bell::ring(&self.empty);
        }
    }

    /// Sends the helpers home, for good. No job is claimed.
    pub fn stop(&self) {
        self.state.fetch_or(STOPPED, Ordering::Relaxed);
        wake(&self.state);
    }
}
