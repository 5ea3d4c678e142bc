//! The one mapping: all segments end to end, made once per session, on the largest pages that can be had.
//!
//! O_DIRECT into 4 KiB pages costs the kernel a pin per page and reached half the disk's speed here; huge pages reach
//! all of it. The ladder, best first: a memfd on reserved huge pages; a memfd whose pages the kernel may merge (THP),
//! where the system allows that for shared memory; private memory with THP, where the firmware lives in this process
//! and nothing has to be shared; a plain memfd. The rung and the reasons for those above it are reported, never silent.
//!
//! The memory is unmapped when the last [`Arena`] handle goes: every thread that reaches into it holds one.

use crate::Error;
use crate::mapping::Mapping;
use estream_idl::address::{PAGE, SegmentPages};
use estream_idl::memory::SharedMemory;
use estream_idl::status::{Refusal, Status};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
        Self::mapped(pages, |bytes| climb(bytes, shared))
    }

    /// Maps `file` for `pages`, and gives it the length of the memory: the peer maps it too and can map no other.
    pub(crate) fn make_in(pages: SegmentPages, file: BorrowedFd<'_>) -> Result<Self, Error> {
        Self::mapped(pages, |bytes| stand_on(bytes, file))
    }

    fn mapped(
        pages: SegmentPages,
        map: impl FnOnce(usize) -> Result<(Mapping, PageKind, String), String>,
    ) -> Result<Self, Error> {
        let needed = pages.total_bytes();
        let refuse = || {
            Error::refused(Refusal { status: Status::NoMemory, needed, limit: usize::MAX as u64, detail: 0 })
        };
        let bytes = usize::try_from(needed).map_err(|_| refuse())?;
        if bytes == 0 {
            return Err(Error::protocol("a plan without memory"));
        }
        let (mapping, kind, reason) = map(bytes).map_err(|why| {
            let mut error = refuse();
            error.message = format!("{} bytes of shared memory were not to be had: {why}", needed);
            error
        })?;
        let arena = Self { mapping: Arc::new(mapping), pages, kind, reason: reason.into() };
        if arena.mapping.populate(0, PAGE).is_err() {
            arena.mapping.touch();
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
        unsafe { SharedMemory::new(self.mapping.base(), self.pages) }
    }

    /// Brings the pages in ahead of use, until done or told to stop. Contents are kept, so reads may land meanwhile.
    pub(crate) fn populate(&self, stop: &AtomicBool) {
        for at in (0..self.mapping.bytes()).step_by(POPULATE_STEP) {
            let bytes = POPULATE_STEP.min(self.mapping.bytes() - at);
            // A failure costs only the head start: the pages come at their first use.
            if stop.load(Ordering::Relaxed) || self.mapping.populate(at, bytes).is_err() {
                return;
            }
        }
    }
}

/// Maps `bytes` on the best rung, with its kind and the reasons against those above; or the reasons against all.
fn climb(bytes: usize, shared: bool) -> Result<(Mapping, PageKind, String), String> {
    let mut reasons = Vec::new();
    match Mapping::reserved_huge(bytes) {
        Ok(mapping) => return Ok((mapping, PageKind::Huge, "reserved huge pages".into())),
        Err(error) => reasons.push(format!("no reserved huge pages ({error})")),
    }
    let shmem = thp_policy("shmem_enabled");
    if matches!(shmem.as_str(), "always" | "within_size" | "advise" | "force") {
        match Mapping::shared_huge(bytes) {
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
        match Mapping::private_huge(bytes) {
            Ok(mapping) => {
                reasons.push("private memory with transparent huge pages".into());
                return Ok((mapping, PageKind::Thp, reasons.join("; ")));
            }
            Err(error) => reasons.push(format!("no private transparent huge pages ({error})")),
        }
    }
    match Mapping::shared(bytes) {
        Ok(mapping) => Ok((mapping, PageKind::Small, reasons.join("; "))),
        Err(error) => {
            reasons.push(format!("no shared memory ({error})"));
            Err(reasons.join("; "))
        }
    }
}

/// Maps the first `bytes` of a peer's file: of the ladder above, only the kind of its pages is left to choose.
fn stand_on(bytes: usize, file: BorrowedFd<'_>) -> Result<(Mapping, PageKind, String), String> {
    let mapping = Mapping::of_file(bytes, file)
        .map_err(|error| format!("the peer's file cannot be mapped ({error})"))?;
    let shmem = thp_policy("shmem_enabled");
    let kind = match shmem.as_str() {
        "always" | "within_size" | "advise" | "force" if mapping.advise_huge().is_ok() => PageKind::Thp,
        _ => PageKind::Small,
    };
    let reason =
        format!("the memory is the peer's file; transparent huge pages for shared memory are \"{shmem}\"");
    Ok((mapping, kind, reason))
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

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::address::Segment;

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
    fn the_setting_is_the_bracketed_word() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("gibberish"), None);
    }
}
