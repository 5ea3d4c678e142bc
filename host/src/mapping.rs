//! Mapped ranges of memory, each owned by one value and unmapped with it.
//!
//! Every range starts at a 2 MiB border, else no page of it could be huge: the kernel is asked for a larger range, which
//! is then trimmed. Reads past the page cache want huge pages whatever the memory is for, so the verifying pass takes its
//! buffers from here too.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// A huge page, and the border that ranges start at.
const HUGE: usize = 2 << 20;
/// The smallest page.
const SMALL: usize = 4096;
/// The coarsest page that a peer in another process maps files in: the last one must lie inside the file.
const PEER_PAGE: usize = 64 << 10;

/// A mapped range: zeroed, readable and writable.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address range; what may be done with its bytes is up to who reaches them.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&self` gives no access to bytes but `touch`, which is for memory that nobody else has seen.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Shared memory on reserved huge pages; at least `bytes`, in whole huge pages.
    pub(crate) fn reserved_huge(bytes: usize) -> Result<Self, Errno> {
        let rounded = bytes.checked_next_multiple_of(HUGE).ok_or(Errno::NOMEM)?;
        let file = memfd_of(rounded, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new range wherever the kernel has room, which it aligns to huge pages by itself. Not placed over a
        // reservation: where pages are lacking that fails after the reservation was given up to other threads.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), rounded, access, MapFlags::SHARED, &file, 0) }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, bytes: rounded })
    }

    /// Shared memory whose pages the kernel may merge.
    pub(crate) fn shared_huge(bytes: usize) -> Result<Self, Errno> {
        let mapping = Self::shared(bytes)?;
        mapping.advise_huge()?;
        Ok(mapping)
    }

    /// Shared memory on small pages.
    pub(crate) fn shared(bytes: usize) -> Result<Self, Errno> {
        map(bytes, Some(memfd_of(bytes, MemfdFlags::empty())?.as_fd()))
    }

    /// The first `bytes` of an empty file, which is made as long as that in whole [`PEER_PAGE`]s.
    pub(crate) fn of_file(bytes: usize, file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let rounded = bytes.checked_next_multiple_of(PEER_PAGE).ok_or(Errno::NOMEM)?;
        rustix::fs::ftruncate(file, rounded as u64)?;
        map(rounded, Some(file))
    }

    /// Lets the kernel merge the pages.
    pub(crate) fn advise_huge(&self) -> Result<(), Errno> {
        self.advise(0, self.bytes, Advice::LinuxHugepage)
    }

    /// Private memory whose pages the kernel may merge.
    pub(crate) fn private_huge(bytes: usize) -> Result<Self, Errno> {
        let mapping = map(bytes, None)?;
        mapping.advise(0, bytes, Advice::LinuxHugepage)?;
        // A fork would make pages copy-on-write, and a read in flight could land in the copy that nobody looks at.
        mapping.advise(0, bytes, Advice::LinuxDontFork)?;
        Ok(mapping)
    }

    /// The first byte.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Brings pages in ahead of use and keeps what they hold; refused by kernels before 5.14.
    pub(crate) fn populate(&self, at: usize, bytes: usize) -> Result<(), Errno> {
        self.advise(at, bytes, Advice::LinuxPopulateWrite)
    }

    /// Brings all pages in by writing zeros to them: only for fresh memory that nobody else has seen.
    pub(crate) fn touch(&self) {
        for at in (0..self.bytes).step_by(SMALL) {
            // SAFETY: inside the range, which is mapped, zero, and not yet shared with anyone.
            unsafe { self.base.add(at).write_volatile(0) };
        }
    }

    fn advise(&self, at: usize, bytes: usize, advice: Advice) -> Result<(), Errno> {
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Errno::INVAL);
        }
        // SAFETY: inside the range, and no advice used in this module changes what this process finds in it.
        unsafe { rustix::mm::madvise(self.base.add(at).as_ptr().cast(), bytes, advice) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and whoever reached into it was bounded by it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A buffer of one owner, page-aligned, on huge pages where the system has them to give.
pub(crate) struct Buffer(Mapping);

impl Buffer {
    /// `bytes` zeros.
    pub(crate) fn new(bytes: usize) -> Result<Self, Errno> {
        Mapping::private_huge(bytes).or_else(|_| map(bytes, None)).map(Self)
    }

    /// `bytes` zeros on small pages, whatever the system prefers: what large ones gain is measured against it.
    pub(crate) fn on_small_pages(bytes: usize) -> Result<Self, Errno> {
        let mapping = map(bytes, None)?;
        // A kernel without large pages knows no such advice and needs none.
        let _ = mapping.advise(0, bytes, Advice::LinuxNoHugepage);
        Ok(Self(mapping))
    }

    /// The bytes.
    pub(crate) const fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is private to this value, initialised, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.bytes) }
    }
}

fn memfd_of(bytes: usize, kind: MemfdFlags) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create("estream", MemfdFlags::CLOEXEC | kind)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Maps `bytes` at a 2 MiB border: `file` shared, or private memory without one.
fn map(bytes: usize, file: Option<BorrowedFd<'_>>) -> Result<Mapping, Errno> {
    let rounded = bytes.checked_next_multiple_of(SMALL).ok_or(Errno::NOMEM)?;
    let reserved = rounded.checked_add(HUGE).ok_or(Errno::NOMEM)?;
    let none = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new range wherever the kernel has room touches no memory that exists.
    let range = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), reserved, ProtFlags::empty(), none) }?;
    let range = NonNull::new(range.cast::<u8>()).ok_or(Errno::NOMEM)?;
    let whole = Mapping { base: range, bytes: reserved };
    let head = range.align_offset(HUGE);
    // SAFETY: `head` < HUGE, so the address and `rounded` bytes behind it lie inside the reserved range.
    let base = unsafe { range.add(head) };
    let at = base.as_ptr().cast::<c_void>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let placed = match file {
        // SAFETY: replaces a part of the range that was reserved above and that nobody uses.
        Some(file) => unsafe {
            rustix::mm::mmap(at, rounded, access, MapFlags::SHARED | MapFlags::FIXED, file, 0)
        },
        // SAFETY: as above.
        None => unsafe {
            rustix::mm::mmap_anonymous(at, rounded, access, MapFlags::PRIVATE | MapFlags::FIXED)
        },
    };
    // From here on the parts are owned apart: dropping head and tail trims the reservation. Where the placement failed
    // the middle is left alone: the kernel may have given it up already, and another thread may have it by now.
    std::mem::forget(whole);
    // SAFETY: `rounded` bytes behind `base` end inside the reserved range.
    let behind = unsafe { base.add(rounded) };
    for (base, bytes) in [(range, head), (behind, HUGE - head)] {
        if bytes > 0 {
            drop(Mapping { base, bytes });
        }
    }
    placed.map(|_| Mapping { base, bytes: rounded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_zeroed_and_aligned_and_unmapped_when_dropped() {
        let bytes = 3 * HUGE + 5 * SMALL;
        for mapping in [Mapping::private_huge(bytes), Mapping::shared(bytes), map(bytes, None)] {
            let mapping = mapping.unwrap();
            assert_eq!((mapping.base.align_offset(HUGE), mapping.bytes), (0, bytes));
            // SAFETY: inside the mapping made above, which is this test's alone.
            let last = unsafe { mapping.base.add(bytes - 1).read() };
            assert_eq!(last, 0);
        }
        // Sparse files cost nothing, addresses do: 300 TiB do not fit the 128 TiB of a process unless each goes again.
        assert!((0..300).all(|_| Mapping::shared(1 << 40).is_ok()));
    }

    #[test]
    fn advice_beyond_the_range_is_refused_and_buffers_are_whole() {
        let mapping = map(SMALL, None).unwrap();
        assert_eq!(mapping.populate(SMALL, SMALL), Err(Errno::INVAL));
        let mut buffer = Buffer::new(HUGE + SMALL).unwrap();
        buffer.bytes().fill(7);
        assert_eq!(buffer.bytes().len(), HUGE + SMALL);
    }
}
