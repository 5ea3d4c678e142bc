//! HAP: clock, log, mapped buffers, the VTCM's size.

use crate::memory::{self, Range, Source};
use crate::{stderr, sys};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use spin::Mutex;

/// What the platform answers when it refuses.
const FAILED: c_int = -1;

/// Bytes of VTCM that the domain is told of; 0 = the query is refused.
static VTCM_BYTES: AtomicU32 = AtomicU32::new(8 << 20);

/// Sets the size of the VTCM; 0 has the query refused. Before the skel runs.
pub fn set_vtcm(bytes: u32) {
    VTCM_BYTES.store(bytes, Ordering::Relaxed);
}

/// The size of the VTCM.
#[must_use]
pub fn vtcm_bytes() -> u32 {
    VTCM_BYTES.load(Ordering::Relaxed)
}

/// Microseconds. The timer register stands still in the simulator, so the count is not looked at.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn HAP_perf_qtimer_count_to_us(_count: u64) -> u64 {
    sys::now_ns() / 1000
}

/// A line of the platform's log.
///
/// # Safety
/// `message` and `file` are null or strings that end.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn HAP_debug(message: *const c_char, level: c_int, file: *const c_char, line: c_int) {
    const LEVELS: [&str; 5] = ["low", "medium", "high", "error", "fatal"];
    let text = |string: *const c_char| {
        // SAFETY: the caller's promise.
        let string = (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) });
        string.and_then(|string| string.to_str().ok()).unwrap_or("?")
    };
    let level = usize::try_from(level).ok().and_then(|level| LEVELS.get(level)).unwrap_or(&"?");
    stderr::line(format_args!("[{level}] {}:{line}: {}", text(file), text(message)));
}

/// The shared memory while somebody uses it.
struct Shared {
    fd: c_int,
    range: Range,
    uses: u32,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

/// Where the buffer of `fd` lies. On a device the host has mapped it before; here it is mapped at its first use, whole.
///
/// # Safety
/// `address` and `physical` are null or can be written.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn HAP_mmap_get(fd: c_int, address: *mut *mut c_void, physical: *mut u64) -> c_int {
    let mut shared = SHARED.lock();
    if shared.is_none() {
        let bytes =
            sys::length(fd).ok().and_then(|bytes| u32::try_from(bytes).ok()).filter(|&bytes| bytes > 0);
        let range = bytes.and_then(|bytes| memory::map(bytes, Source::File(fd)));
        *shared = range.map(|range| Shared { fd, range, uses: 0 });
    }
    let (Some(shared), false) = (shared.as_mut().filter(|shared| shared.fd == fd), address.is_null()) else {
        return FAILED;
    };
    shared.uses += 1;
    // SAFETY: the pointers can be written where they are not null.
    unsafe {
        address.write(shared.range.base.as_ptr().cast());
        if !physical.is_null() {
            physical.write(0);
        }
    }
    0
}

/// Ends a use of the buffer of `fd`; the last one unmaps it.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn HAP_mmap_put(fd: c_int) -> c_int {
    let mut shared = SHARED.lock();
    let Some(used) = shared.as_mut().filter(|shared| shared.fd == fd) else { return FAILED };
    used.uses -= 1;
    if used.uses == 0 {
        let range = used.range;
        *shared = None;
        // SAFETY: whoever used it has said that it is done.
        unsafe { memory::unmap(range) };
    }
    0
}

/// Pages of a kind of memory.
#[repr(C)]
pub struct PageList {
    block_size: u32,
    page_list_len: u32,
    pages: [[u32; 2]; 8],
}

/// The size of the VTCM, all of it in one page and free.
///
/// # Safety
/// The pointers are null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compute_resource_query_VTCM(
    _application: u32,
    total: *mut u32,
    total_pages: *mut PageList,
    available: *mut u32,
    available_pages: *mut PageList,
) -> c_int {
    let bytes = VTCM_BYTES.load(Ordering::Relaxed);
    if bytes == 0 {
        return FAILED;
    }
    for size in [total, available] {
        if !size.is_null() {
            // SAFETY: it can be written.
            unsafe { size.write(bytes) };
        }
    }
    for list in [total_pages, available_pages] {
        if !list.is_null() {
            let mut pages = [[0; 2]; 8];
            pages[0] = [bytes, 1];
            // SAFETY: it can be written.
            unsafe { list.write(PageList { block_size: bytes, page_list_len: 1, pages }) };
        }
    }
    0
}
