//! A global allocator that counts what the firmware's threads allocate (law 6: nothing between start and stop).
//!
//! Host and firmware share this process natively and the host may allocate, so a thread counts by what it is: the
//! firmware marks its own. The host's allocations are counted apart, as proof that the counting works at all.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counting. Declare it `#[global_allocator]` in the test.
#[derive(Debug)]
pub struct Counting {
    firmware: AtomicU64,
    host: AtomicU64,
}

/// Allocations so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// By the firmware's threads.
    pub firmware: u64,
    /// By all others.
    pub host: u64,
}

impl Counting {
    /// Nothing counted.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a global allocator is made in a static")]
    pub const fn new() -> Self {
        Self { firmware: AtomicU64::new(0), host: AtomicU64::new(0) }
    }

    /// What was allocated so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { firmware: self.firmware.load(Ordering::SeqCst), host: self.host.load(Ordering::SeqCst) }
    }

    fn count(&self) {
        let counter = if estream_dsp::platform::is_firmware_thread() { &self.firmware } else { &self.host };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: every call is passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
