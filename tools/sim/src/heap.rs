//! The domain's heap: each block is a mapping of its own.
//!
//! The firmware asks for a handful of large blocks per session, so there is nothing to gain from keeping pieces; a block
//! that is freed twice or overrun to its end faults, as one would wish of a simulator.

use crate::memory::{self, Range, Source};
use core::ffi::c_void;
use core::ptr::NonNull;

/// What stands right before a block.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    range: Range,
}

/// `memalign(alignment, bytes)`: null when there is no room or the alignment is no power of two.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    let alignment = alignment.max(align_of::<Header>());
    let head = size_of::<Header>().checked_next_multiple_of(alignment);
    let total = head.and_then(|head| head.checked_add(bytes)).and_then(|total| u32::try_from(total).ok());
    let (Some(head), Some(total), true) = (head, total, alignment.is_power_of_two()) else {
        return core::ptr::null_mut();
    };
    // A mapping starts at a multiple of its grain, hence of every alignment up to that.
    if alignment > memory::GRAIN as usize {
        return core::ptr::null_mut();
    }
    let Some(range) = memory::map(total, Source::Zeros) else { return core::ptr::null_mut() };
    // SAFETY: `head` + `bytes` bytes were mapped; the header ends where the block begins, both aligned.
    unsafe {
        let block = range.base.add(head);
        block.cast::<Header>().sub(1).write(Header { range });
        block.as_ptr().cast()
    }
}

/// `free(block)`.
///
/// # Safety
/// `block` is null or came from [`memalign`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: the header stands before every block, and the caller is done with it.
    unsafe { memory::unmap(block.cast::<Header>().sub(1).read().range) };
}
