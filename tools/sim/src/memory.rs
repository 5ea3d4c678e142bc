//! Mapped memory, counted against the address space that a domain has.
//!
//! Real context banks give 1.9 to 3.75 GiB; the cap here is what a device is known to give. Everything mapped on behalf
//! of the domain counts: the skel's image, heap, stacks and the shared memory. Ranges are multiples of 64 KiB, the
//! coarsest page of the simulators in use.

use crate::stderr;
use crate::sys::{self, number};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use spin::Mutex;

/// Bytes that a domain can map.
pub const ADDRESS_SPACE: u32 = 3000 << 20;
/// The granularity of mappings.
pub const GRAIN: u32 = 64 << 10;

/// Ranges at once.
const RANGES: usize = 1024;

/// Bytes mapped.
static MAPPED: AtomicU32 = AtomicU32::new(0);
/// What is mapped, for those that check addresses.
static TABLE: Mutex<Table> = Mutex::new(Table { ranges: [(0, 0); RANGES], used: 0 });

/// Ranges as (address, bytes), 0 bytes where there is none; nothing stands behind the first `used` places.
struct Table {
    ranges: [(u32, u32); RANGES],
    used: usize,
}

const READ_WRITE: u32 = 3;
const READ_WRITE_EXECUTE: u32 = 7;
const SHARED: u32 = 1;
const PRIVATE_ANONYMOUS: u32 = 0x22;

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros of this program's own.
    Zeros,
    /// The same, for code: text and data of a skel share pages of 64 KiB, so all of it may run.
    Image,
    /// A file, from its first byte, shared with whoever else maps it.
    File(i32),
}

/// A mapped range; it stays until [`unmap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub base: NonNull<u8>,
    /// Bytes, a multiple of [`GRAIN`].
    pub bytes: u32,
}

// SAFETY: a range is a pair of numbers; who may reach the memory behind it is for its owner to say.
unsafe impl Send for Range {}

/// Maps at least `bytes`; `None` (and a line in the log) when the address space or the machine does not have them.
#[must_use]
pub fn map(bytes: u32, source: Source) -> Option<Range> {
    let rounded = bytes.max(1).checked_next_multiple_of(GRAIN);
    let reserve = |mapped: u32| mapped.checked_add(rounded?).filter(|&sum| sum <= ADDRESS_SPACE);
    let before = MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
    let (Some(rounded), Ok(_)) = (rounded, before) else {
        let left = ADDRESS_SPACE - MAPPED.load(Ordering::Relaxed);
        stderr::line(format_args!(
            "estream-sim: {bytes} bytes do not fit the address space: {left} are left"
        ));
        return None;
    };
    let (protection, flags, fd) = match source {
        Source::Zeros => (READ_WRITE, PRIVATE_ANONYMOUS, -1),
        Source::Image => (READ_WRITE_EXECUTE, PRIVATE_ANONYMOUS, -1),
        Source::File(fd) => (READ_WRITE, SHARED, fd),
    };
    let asked = if matches!(source, Source::File(_)) { bytes } else { rounded };
    // SAFETY: a new range wherever there is room touches no memory that exists.
    let mapped = unsafe { sys::call(number::MMAP2, [0, asked, protection, flags, fd.cast_unsigned(), 0]) };
    let base = mapped.ok().and_then(|at| NonNull::new(core::ptr::with_exposed_provenance_mut(at as usize)));
    if base.is_none() {
        MAPPED.fetch_sub(rounded, Ordering::Relaxed);
        stderr::line(format_args!("estream-sim: {bytes} bytes of {source:?} cannot be mapped: {mapped:?}"));
    }
    let range = base.map(|base| Range { base, bytes: rounded })?;
    if !remember(range.base.addr().get() as u32, asked) {
        stderr::line(format_args!(
            "estream-sim: {RANGES} ranges are mapped, and there is no place for another"
        ));
        // SAFETY: nobody has heard of the range.
        unsafe { unmap(range) };
        return None;
    }
    Some(range)
}

/// Notes that memory is there; false when the table is full.
fn remember(base: u32, bytes: u32) -> bool {
    let mut table = TABLE.lock();
    let Some(place) = table.ranges.iter().position(|&(_, bytes)| bytes == 0) else { return false };
    table.ranges[place] = (base, bytes);
    table.used = table.used.max(place + 1);
    true
}

/// Notes the stack of the thread that calls, which the kernel has mapped: 8 MiB below the top.
pub fn remember_stack() {
    const STACK_BYTES: u32 = 8 << 20;
    let here = 0u8;
    let top = ((&raw const here).addr() as u32).next_multiple_of(GRAIN);
    remember(top - STACK_BYTES, STACK_BYTES);
}

/// Whether all of these bytes are mapped, in one range.
#[must_use]
pub fn is_mapped(address: u32, bytes: u32) -> bool {
    let inside = |&(base, length): &(u32, u32)| {
        let offset = address.wrapping_sub(base);
        offset <= length && bytes <= length - offset
    };
    let table = TABLE.lock();
    table.ranges[..table.used].iter().any(inside)
}

/// Lets code in these bytes of the program's own be changed and run; false if the machine refuses.
///
/// # Safety
/// The bytes are the program's own, and what is written there is fit to run.
#[must_use]
pub unsafe fn make_changeable(address: u32, bytes: u32) -> bool {
    let first = address & !(GRAIN - 1);
    let length = (address - first + bytes).next_multiple_of(GRAIN);
    // SAFETY: the pages are mapped and stay so, with more rights than before.
    unsafe { sys::call(number::MPROTECT, [first, length, READ_WRITE_EXECUTE, 0, 0, 0]) }.is_ok()
}

/// Gives a range back.
///
/// # Safety
/// Nobody reaches into the range any more.
pub unsafe fn unmap(range: Range) {
    // SAFETY: the caller's promise; the range came from `map`.
    let unmapped =
        unsafe { sys::call(number::MUNMAP, [range.base.addr().get() as u32, range.bytes, 0, 0, 0, 0]) };
    if unmapped.is_ok() {
        let base = range.base.addr().get() as u32;
        if let Some(place) = TABLE.lock().ranges.iter_mut().find(|place| place.0 == base) {
            *place = (0, 0);
        }
        MAPPED.fetch_sub(range.bytes, Ordering::Relaxed);
    }
}
