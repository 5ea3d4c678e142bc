//! The heap of test programs: blocks of powers of two in lists, larger ones mapped apart.
//!
//! Tests make millions of small values; a mapping for each would be slow and coarse.

use alloc::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use estream_sim::memory::{self, GRAIN, Source};
use spin::Mutex;

/// The smallest block's size as a power of two.
const FIRST: u32 = 4;
/// Sizes of blocks: 16 bytes to 32 KiB.
const CLASSES: usize = 12;

struct Heap(Mutex<Lists>);

/// Free blocks of each size; a free block's first word is the next one's address.
struct Lists([Option<NonNull<Free>>; CLASSES]);

struct Free(Option<NonNull<Free>>);

// SAFETY: free blocks belong to the lists alone.
unsafe impl Send for Lists {}

#[global_allocator]
static HEAP: Heap = Heap(Mutex::new(Lists([None; CLASSES])));

/// The class that holds a layout, or `None` for one of its own mapping.
fn class(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(1 << FIRST);
    let power = bytes.checked_next_power_of_two()?.trailing_zeros();
    Some((power - FIRST) as usize).filter(|&class| class < CLASSES)
}

impl Lists {
    fn take(&mut self, class: usize) -> Option<NonNull<u8>> {
        if self.0[class].is_none() {
            let range = memory::map(GRAIN, Source::Zeros)?;
            let bytes = 1usize << (class as u32 + FIRST);
            for at in (0..range.bytes as usize).step_by(bytes) {
                // SAFETY: inside the range, which is new; blocks of a power of two are aligned to their size in it.
                self.give(class, unsafe { range.base.add(at) });
            }
        }
        let block = self.0[class]?;
        // SAFETY: the block is in the list, so its first word is the next one's address.
        self.0[class] = unsafe { block.read().0 };
        Some(block.cast())
    }

    fn give(&mut self, class: usize, block: NonNull<u8>) {
        let block = block.cast::<Free>();
        // SAFETY: the block is at least 16 bytes and nobody else's.
        unsafe { block.write(Free(self.0[class])) };
        self.0[class] = Some(block);
    }
}

// SAFETY: blocks are disjoint, at least as long and aligned as asked for, and stay until they are given back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => self.0.lock().take(class).map_or(ptr::null_mut(), NonNull::as_ptr),
            None => estream_sim::heap::memalign(layout.align(), layout.size()).cast(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (class(layout), NonNull::new(block)) {
            (Some(class), Some(block)) => self.0.lock().give(class, block),
            // SAFETY: it came from memalign, and the caller is done with it.
            _ => unsafe { estream_sim::heap::free(block.cast::<c_void>()) },
        }
    }
}
