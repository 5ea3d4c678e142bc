//! What the firmware asks of the system beneath it: a clock, a wait, threads, and one block of memory.
//!
//! One module stands behind these names in a build, `posix` natively and `qurt` on the DSP; both define the same set,
//! so there is no trait and no table of functions:
//!
//! | name | meaning |
//! |---|---|
//! | `now_ns()` | monotonic nanoseconds from an arbitrary origin |
//! | `wait(word, seen, timeout_ns)` | sleeps while `word` is `seen`; **may return early**, so callers look again |
//! | `wake(word)` | wakes everyone who waits on `word` |
//! | `spawn(name, body, argument)`, `Thread::join` | a firmware thread with a stack of [`STACK_BYTES`] |
//! | `guarded(body)` | whether `body` returned; `false` when it panicked where panics unwind |
//! | `processors()`, `scratch_bytes()` | what computes, and the scratchpad (VTCM) beside it |
//! | `working_for(operator, body)` and `thread_working_for` | runs `body`; a simulator counts it for the operator |
//! | `has_matrix_unit()` | whether the matrix unit, or natively its model, can be had |
//! | `Memory` | one zeroed, page-aligned, private block |
//!
//! The DSP's module adds what only it has: `map`, `unmap` and `log_fatal` for the skel, and `Vtcm`, the scratchpad with
//! the matrix unit's lock and the power votes.
//!
//! Threads and memory are asked for between `start` and the first pass only; nothing here is called with the
//! expectation of failing later. The words that `wait` takes may lie in memory shared with another process, hence never
//! a process-private futex.

#[cfg(not(target_arch = "hexagon"))]
mod posix;
#[cfg(target_arch = "hexagon")]
mod qurt;

#[cfg(not(target_arch = "hexagon"))]
pub use posix::{
    Memory, Thread, guarded, has_matrix_unit, is_firmware_thread, now_ns, processors, scratch_bytes, spawn,
    thread_working_for, wait, wake, working_for,
};
#[cfg(target_arch = "hexagon")]
pub use qurt::{
    Memory, Thread, Vtcm, guarded, has_matrix_unit, log_fatal, map, now_ns, processors, scratch_bytes, spawn,
    thread_working_for, unmap, wait, wake, working_for,
};

/// Stack of every firmware thread in bytes. The same natively as on the DSP, so that a kernel which needs more is found
/// where there is a guard page and a debugger.
pub const STACK_BYTES: usize = 512 * 1024;

/// How long a thread looks at a word before it sleeps on it: about what a sleep and a wake cost together, so that
/// spinning never more than doubles a wait.
const PATIENCE_NS: u64 = 20_000;
/// Spin hints between two looks at the clock.
const HINTS: u32 = 32;
/// Looks at the clock at most: the bound where the clock stands still (a simulator's may).
const LOOKS: u32 = 256;

/// The bounded spinning that goes before a sleep.
#[derive(Debug)]
pub struct Patience {
    since: u64,
    looks: u32,
}

impl Patience {
    /// Fresh patience; the clock runs from here.
    #[must_use]
    pub fn new() -> Self {
        Self { since: now_ns(), looks: 0 }
    }

    /// Spins a little; `false` when it is time to sleep.
    pub fn spin(&mut self) -> bool {
        if self.looks == LOOKS || now_ns().saturating_sub(self.since) >= PATIENCE_NS {
            return false;
        }
        self.looks += 1;
        for _ in 0..HINTS {
            core::hint::spin_loop();
        }
        true
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};

    static WORD: AtomicU32 = AtomicU32::new(0);
    static SEEN_BY_THREAD: AtomicU32 = AtomicU32::new(0);

    fn body(argument: usize) {
        while WORD.load(Ordering::Acquire) == 0 {
            wait(&WORD, 0, None);
        }
        SEEN_BY_THREAD.store(argument as u32 * u32::from(is_firmware_thread()), Ordering::Release);
    }

    #[test]
    fn a_thread_sleeps_until_it_is_woken_and_is_marked() {
        let thread = spawn("test", body, 41).unwrap();
        let before = now_ns();
        wait(&WORD, 0, Some(20_000_000));
        assert!(now_ns() - before >= 15_000_000, "nobody woke this wait, so it ends by its timeout");
        wait(&WORD, 7, None);
        WORD.store(1, Ordering::Release);
        wake(&WORD);
        thread.join();
        assert_eq!(SEEN_BY_THREAD.load(Ordering::Acquire), 41);
        assert!(!is_firmware_thread());
    }

    #[test]
    fn memory_is_zeroed_aligned_and_writable_to_its_last_byte() {
        for bytes in [1, 4096, 4097, 3 << 20] {
            let mut memory = Memory::request(bytes).unwrap();
            let slice = memory.as_mut_slice();
            assert_eq!((slice.len(), slice.as_ptr().addr() % 4096), (bytes, 0));
            assert!(slice.iter().all(|&byte| byte == 0));
            slice.fill(0xa5);
        }
        assert!(Memory::request(usize::MAX - 4096).is_none(), "more than the machine has is no memory");
    }

    #[test]
    fn patience_ends() {
        let (mut patience, before) = (Patience::new(), now_ns());
        while patience.spin() {}
        assert!(now_ns() > before);
        assert!(!patience.spin());
    }

    #[test]
    fn the_machine_has_processors_and_scratch() {
        assert!(processors() >= 1 && scratch_bytes() >= 1 << 20);
        assert!(guarded(|| ()));
    }
}
