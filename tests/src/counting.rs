//! A global allocator that counts what the firmware's threads allocate (law 6: nothing between start and stop).
//!
//! Host and firmware share this process natively and the host may allocate, so a thread counts by what it is: the
//! firmware marks its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counting. Declare it `#[global_allocator]` in the test.
#[derive(Debug)]
pub struct Counting(AtomicU64);

impl Counting {
    /// Nothing counted.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a global allocator is made in a static")]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Allocations of the firmware's threads so far.
    #[must_use]
    pub fn firmware(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn count(&self) {
        if estream_dsp::platform::is_firmware_thread() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
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
