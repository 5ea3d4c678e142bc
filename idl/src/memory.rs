//! The memory that both sides see, as each side holds it: one mapping with the segments end to end.
//!
//! This is the crate's only unsafe module. Words (control, io tables) are reached as atomics, which is safe whatever the
//! peer does; bytes (weights, panels) are reached by the unsafe functions, whose callers hold the protocol's permission:
//! a weight byte is read only between `Loaded` and release, a panel written only between `Taken` and `Rows`.

use crate::address::{PAGE, Segment, SegmentPages};
#[cfg(not(loom))]
use crate::control::Control;
use crate::sync::AtomicU32;
use core::ptr::NonNull;

/// A mapping of the shared memory. It is a view: whoever made the mapping keeps it alive for `'a`.
#[derive(Clone, Copy, Debug)]
pub struct SharedMemory<'a> {
    base: NonNull<u8>,
    pages: SegmentPages,
    mapping: core::marker::PhantomData<&'a [AtomicU32]>,
}

// SAFETY: the view hands out atomics, and bytes only through unsafe functions whose contract covers other threads.
unsafe impl Send for SharedMemory<'_> {}
// SAFETY: as above; the view itself is never changed.
unsafe impl Sync for SharedMemory<'_> {}

impl<'a> SharedMemory<'a> {
    /// A view of the mapping at `base`.
    ///
    /// # Safety
    /// `base` is page-aligned and starts `pages.total_bytes()` bytes that stay mapped, readable and writable for `'a`,
    /// and that this program reaches only through such views.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, pages: SegmentPages) -> Self {
        Self { base, pages, mapping: core::marker::PhantomData }
    }

    /// Pages of each segment.
    #[must_use]
    pub const fn pages(&self) -> SegmentPages {
        self.pages
    }

    /// Byte offset of a segment in the mapping.
    #[must_use]
    pub fn offset(&self, segment: Segment) -> usize {
        let before = &self.pages.0[..segment as usize];
        before.iter().map(|&pages| pages as usize * PAGE).sum()
    }

    /// Bytes of a segment.
    #[must_use]
    pub const fn bytes(&self, segment: Segment) -> usize {
        self.pages.of(segment) as usize * PAGE
    }

    fn pointer(&self, segment: Segment, at: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = at.checked_add(bytes)?;
        if end > self.bytes(segment) {
            return None;
        }
        // SAFETY: offset + at + bytes lies inside the mapping, by `new`'s contract and the check above.
        Some(unsafe { self.base.add(self.offset(segment) + at) })
    }

    /// The words of a segment as atomics.
    #[must_use]
    #[cfg(not(loom))]
    pub fn words(&self, segment: Segment) -> &'a [AtomicU32] {
        let words = self.bytes(segment) / 4;
        match self.pointer(segment, 0, words * 4) {
            // SAFETY: the words are mapped, aligned to a page, and only reached as atomics or under the contract of the
            // byte functions; an AtomicU32 may hold any bits.
            Some(pointer) => unsafe { core::slice::from_raw_parts(pointer.as_ptr().cast(), words) },
            None => &[],
        }
    }

    /// The control segment, or `None` when it is too small.
    #[must_use]
    #[cfg(not(loom))]
    pub fn control(&self) -> Option<Control<'a>> {
        Control::new(self.words(Segment::Control))
    }

    /// Bytes `at..at + bytes` of a segment to read, or `None` outside it.
    ///
    /// # Safety
    /// Nobody writes these bytes while the slice lives: the protocol has published them and not yet released them. A peer
    /// that breaks it can make values wrong, never addresses: the bytes hold no pointers and no invariants.
    #[must_use]
    pub unsafe fn slice(&self, segment: Segment, at: usize, bytes: usize) -> Option<&'a [u8]> {
        let pointer = self.pointer(segment, at, bytes)?;
        // SAFETY: mapped and in bounds (`pointer`), not written meanwhile (contract).
        Some(unsafe { core::slice::from_raw_parts(pointer.as_ptr(), bytes) })
    }

    /// Bytes `at..at + bytes` of a segment to write, or `None` outside it.
    ///
    /// # Safety
    /// Nobody else reads or writes these bytes while the slice lives.
    #[must_use]
    pub unsafe fn slice_mut(&self, segment: Segment, at: usize, bytes: usize) -> Option<&'a mut [u8]> {
        let pointer = self.pointer(segment, at, bytes)?;
        // SAFETY: mapped and in bounds (`pointer`), exclusive (contract).
        Some(unsafe { core::slice::from_raw_parts_mut(pointer.as_ptr(), bytes) })
    }
}
