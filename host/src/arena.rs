//! The one mapping: all segments end to end, made once per session, on the largest pages that can be had.
//!
//! O_DIRECT into 4 KiB pages costs the kernel a pin per page and reached half the disk's speed here; huge pages reach
//! all of it. The ladder, best first: a memfd on reserved huge pages; a memfd whose pages the kernel may merge (THP),
//! where the system allows that for shared memory; private memory with THP, where the firmware lives in this process
//! and nothing has to be shared; a plain memfd. The rung and the reasons for those above it are reported, never silent.
//!
//! The mapping starts at a 2 MiB border (a larger range is reserved and trimmed), else no page of it could be huge. It
//! is unmapped when the last [`Arena`] handle goes: every thread that reaches into it holds one.

use crate::Error;
use estream_idl::address::{PAGE, SegmentPages};
use estream_idl::memory::SharedMemory;
use estream_idl::status::{Refusal, Status};
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A huge page, and the border that the mapping starts at.
const HUGE: usize = 2 << 20;
/// Bytes populated between two looks at the stop flag.
const POPULATE_STEP: usize = 64 << 20;

/// The pages that carry the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Reserved huge pages.
    Huge,
    /// Transparent huge pages, asked for.
    Thp,
    /// 4 KiB pages.
    Small,
}

impl PageKind {
    /// The kind's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Huge => "huge",
            Self::Thp => "thp",
            Self::Small => "4k",
        }
    }
}

/// A mapped range, unmapped on drop.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address range; what may be done with its bytes is SharedMemory's contract.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and every view of it was bounded by a handle that is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A handle on the shared memory.
#[derive(Clone)]
pub(crate) struct Arena {
    mapping: Arc<Mapping>,
    pages: SegmentPages,
    kind: PageKind,
    reason: Arc<str>,
}

impl Arena {
    /// Maps fresh zeroed memory for `pages`; `shared` when another process has to map it too.
    pub(crate) fn make(pages: SegmentPages, shared: bool) -> Result<Self, Error> {
        let needed = pages.total_bytes();
        let info = rustix::system::sysinfo();
        // The fields' width is the platform's word.
        #[allow(clippy::useless_conversion)]
        let limit = u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit));
        let refuse = || Error::refused(Refusal { status: Status::NoMemory, needed, limit, detail: 0 });
        let bytes = usize::try_from(needed).ok().filter(|_| needed <= limit).ok_or_else(refuse)?;
        if bytes == 0 {
            return Err(Error::protocol("a plan without memory"));
        }
        let (mapping, kind, reason) = climb(bytes, shared).map_err(|why| {
            let mut error = refuse();
            error.message = format!("{} bytes of shared memory were not to be had: {why}", needed);
            error
        })?;
        let arena = Self { mapping: Arc::new(mapping), pages, kind, reason: reason.into() };
        if arena.advise(0, PAGE, Advice::LinuxPopulateWrite).is_err() {
            arena.touch();
        }
        Ok(arena)
    }

    /// The kind of pages, and why not a better one.
    pub(crate) fn pages(&self) -> (PageKind, &str) {
        (self.kind, &self.reason)
    }

    /// The shared memory, for as long as this handle is borrowed.
    pub(crate) fn memory(&self) -> SharedMemory<'_> {
        // SAFETY: the handle keeps the mapping alive for the borrow.
        unsafe { self.memory_unbound() }
    }

    /// The shared memory without a bound.
    ///
    /// # Safety
    /// The caller keeps a handle for as long as anything can reach through the view.
    pub(crate) unsafe fn memory_unbound(&self) -> SharedMemory<'static> {
        // SAFETY: the mapping is page-aligned, readable and writable, at least total_bytes long (`climb`), kept alive by
        // the caller's handle, and this program reaches it through such views only.
        unsafe { SharedMemory::new(self.mapping.base, self.pages) }
    }

    /// Brings the pages in ahead of use, until done or told to stop. Contents are kept, so reads may land meanwhile.
    pub(crate) fn populate(&self, stop: &AtomicBool) {
        for at in (0..self.mapping.bytes).step_by(POPULATE_STEP) {
            let bytes = POPULATE_STEP.min(self.mapping.bytes - at);
            // A failure costs only the head start: the pages come at their first use.
            if stop.load(Ordering::Relaxed) || self.advise(at, bytes, Advice::LinuxPopulateWrite).is_err() {
                return;
            }
        }
    }

    fn advise(&self, at: usize, bytes: usize, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the range lies inside the mapping, and no advice used here changes what the bytes are.
        unsafe { rustix::mm::madvise(self.mapping.base.add(at).as_ptr().cast(), bytes, advice) }
    }

    /// Brings all pages in by writing to them: for kernels before 5.14. Only on fresh memory, hence before it is shared.
    fn touch(&self) {
        for at in (0..self.mapping.bytes).step_by(PAGE) {
            // SAFETY: inside the mapping, which nobody else has seen yet and which is zero anyway.
            unsafe { self.mapping.base.add(at).write_volatile(0) };
        }
    }
}

/// Maps `bytes` on the best rung, with its kind and the reasons against those above; or the reasons against all.
fn climb(bytes: usize, shared: bool) -> Result<(Mapping, PageKind, String), String> {
    let mut reasons = Vec::new();
    match reserved_huge(bytes) {
        Ok(mapping) => return Ok((mapping, PageKind::Huge, "reserved huge pages".into())),
        Err(error) => reasons.push(format!("no reserved huge pages ({error})")),
    }
    let shmem = thp_policy("shmem_enabled");
    if matches!(shmem.as_str(), "always" | "within_size" | "advise" | "force") {
        match memfd(bytes, MemfdFlags::CLOEXEC).and_then(|mapping| advised(mapping, Advice::LinuxHugepage)) {
            Ok(mapping) => {
                reasons.push(format!("transparent huge pages for shared memory are \"{shmem}\""));
                return Ok((mapping, PageKind::Thp, reasons.join("; ")));
            }
            Err(error) => reasons.push(format!("no shared transparent huge pages ({error})")),
        }
    } else {
        reasons.push(format!("transparent huge pages for shared memory are \"{shmem}\""));
    }
    let private = thp_policy("enabled");
    if shared {
        reasons.push("the memory is shared with another process".into());
    } else if private == "never" || private == "unknown" {
        reasons.push(format!("transparent huge pages are \"{private}\""));
    } else {
        match private_thp(bytes) {
            Ok(mapping) => {
                reasons.push("private memory with transparent huge pages".into());
                return Ok((mapping, PageKind::Thp, reasons.join("; ")));
            }
            Err(error) => reasons.push(format!("no private transparent huge pages ({error})")),
        }
    }
    match memfd(bytes, MemfdFlags::CLOEXEC) {
        Ok(mapping) => Ok((mapping, PageKind::Small, reasons.join("; "))),
        Err(error) => {
            reasons.push(format!("no shared memory ({error})"));
            Err(reasons.join("; "))
        }
    }
}

/// The bracketed word of a transparent-huge-page setting, "unknown" where there is none.
fn thp_policy(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    chosen(&text.unwrap_or_default()).unwrap_or("unknown").to_owned()
}

fn chosen(setting: &str) -> Option<&str> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

fn reserved_huge(bytes: usize) -> Result<Mapping, Errno> {
    let rounded = bytes.checked_next_multiple_of(HUGE).ok_or(Errno::NOMEM)?;
    memfd(rounded, MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
}

fn memfd(bytes: usize, flags: MemfdFlags) -> Result<Mapping, Errno> {
    let file = rustix::fs::memfd_create("estream", flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    map(bytes, Some(&file))
}

fn private_thp(bytes: usize) -> Result<Mapping, Errno> {
    let mapping = advised(map(bytes, None)?, Advice::LinuxHugepage)?;
    // A child that wrote (or made this process write) to a page with a read in flight would split it from its bytes.
    advised(mapping, Advice::LinuxDontFork)
}

fn advised(mapping: Mapping, advice: Advice) -> Result<Mapping, Errno> {
    // SAFETY: the range is the mapping's own; neither advice used here changes its contents for this process.
    unsafe { rustix::mm::madvise(mapping.base.as_ptr().cast(), mapping.bytes, advice) }?;
    Ok(mapping)
}

/// Maps `bytes` at a 2 MiB border: `file` shared, or private memory without one.
fn map(bytes: usize, file: Option<&OwnedFd>) -> Result<Mapping, Errno> {
    let reserved = bytes.checked_add(HUGE).ok_or(Errno::NOMEM)?;
    let none = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new range wherever the kernel has room touches no memory that exists.
    let range = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), reserved, ProtFlags::empty(), none) }?;
    let range = NonNull::new(range.cast::<u8>()).ok_or(Errno::NOMEM)?;
    let whole = Mapping { base: range, bytes: reserved };
    let head = range.align_offset(HUGE);
    // SAFETY: `head` < HUGE, so the address and `bytes` behind it lie inside the reserved range.
    let base = unsafe { range.add(head) };
    let at = base.as_ptr().cast::<c_void>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    match file {
        // SAFETY: replaces a part of the range that was reserved above and that nobody uses.
        Some(file) => unsafe {
            rustix::mm::mmap(at, bytes, access, MapFlags::SHARED | MapFlags::FIXED, file, 0)
        },
        // SAFETY: as above.
        None => unsafe { rustix::mm::mmap_anonymous(at, bytes, access, MapFlags::PRIVATE | MapFlags::FIXED) },
    }?;
    // From here on the parts are owned apart: dropping head and tail trims the reservation.
    std::mem::forget(whole);
    // SAFETY: `bytes` behind `base` end inside the reserved range.
    let behind = unsafe { base.add(bytes) };
    for (base, bytes) in [(range, head), (behind, HUGE - head)] {
        if bytes > 0 {
            drop(Mapping { base, bytes });
        }
    }
    Ok(Mapping { base, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::address::Segment;

    #[test]
    fn every_rung_gives_zeroed_aligned_memory_that_is_unmapped_again() {
        let bytes = 3 * HUGE + 5 * PAGE;
        for mapping in [map(bytes, None), private_thp(bytes), memfd(bytes, MemfdFlags::CLOEXEC)] {
            let mapping = mapping.unwrap();
            assert_eq!((mapping.base.align_offset(HUGE), mapping.bytes), (0, bytes));
            let start = mapping.base;
            // SAFETY: inside the mapping made above, which is this test's alone.
            let last = unsafe { start.add(bytes - 1).read() };
            assert_eq!(last, 0);
            drop(mapping);
            // SAFETY: asks for advice on a range that no longer exists: the kernel refuses, nothing is touched.
            let gone = unsafe { rustix::mm::madvise(start.as_ptr().cast(), PAGE, Advice::LinuxPopulateRead) };
            assert_eq!(gone, Err(Errno::NOMEM));
        }
    }

    #[test]
    fn the_reason_names_what_was_missing_and_populating_keeps_contents() {
        let pages = SegmentPages([30, 2, 3, 1, 700]);
        for shared in [false, true] {
            let arena = Arena::make(pages, shared).unwrap();
            assert!(!arena.pages().1.is_empty());
            let memory = arena.memory();
            let words = memory.words(Segment::Arena);
            words[700 * 1024 - 1].store(77, Ordering::Relaxed);
            arena.populate(&AtomicBool::new(false));
            assert_eq!(words[700 * 1024 - 1].load(Ordering::Relaxed), 77);
            assert!(memory.words(Segment::Control).iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn more_than_the_machine_has_is_refused_with_the_bytes() {
        let pages = SegmentPages([u32::MAX; 5]);
        let refusal = Arena::make(pages, false).err().unwrap().refusal.unwrap();
        assert_eq!((refusal.status, refusal.needed), (Status::NoMemory, pages.total_bytes()));
    }

    #[test]
    fn the_setting_is_the_bracketed_word() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("gibberish"), None);
    }
}
