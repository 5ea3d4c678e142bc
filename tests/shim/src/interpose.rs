//! The interposed calls. Each finds the next definition of its own name, calls it (unless a fault is wanted), and records
//! what concerns the file.

use crate::faults;
use libc::{c_char, c_int, c_void, dev_t, ino_t, iovec, off_t, size_t, ssize_t};
use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

/// The file that is watched and the log's descriptor.
struct Watch {
    device: dev_t,
    inode: ino_t,
    log: c_int,
}

static WATCH: OnceLock<Option<Watch>> = OnceLock::new();

fn watch() -> Option<&'static Watch> {
    WATCH
        .get_or_init(|| {
            let path = |name| CString::new(std::env::var_os(name)?.into_vec()).ok();
            let (file, log) = (path("ESTREAM_SHIM_FILE")?, path("ESTREAM_SHIM_LOG")?);
            let (device, inode) = identity(|status| {
                // SAFETY: the path ends with a zero and the status is valid for writes.
                unsafe { libc::stat(file.as_ptr(), status) }
            })?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
            // SAFETY: the path ends with a zero; the mode is given because of O_CREAT.
            let log = unsafe { libc::open(log.as_ptr(), flags, 0o644) };
            (log >= 0).then_some(Watch { device, inode, log })
        })
        .as_ref()
}

/// Device and inode by a call of the stat family.
fn identity(stat: impl Fn(*mut libc::stat) -> c_int) -> Option<(dev_t, ino_t)> {
    // SAFETY: all zeros are a valid `stat`.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    (stat(&raw mut status) == 0).then_some((status.st_dev, status.st_ino))
}

/// Whether `fd` is the watched file.
pub(crate) fn watched(fd: c_int) -> bool {
    let found = identity(|status| {
        // SAFETY: the status is valid for writes; any descriptor number may be asked.
        unsafe { libc::fstat(fd, status) }
    });
    watch().is_some_and(|watch| found == Some((watch.device, watch.inode)))
}

/// Writes a line if `fd` is the watched file. `errno` is left as it was, since the caller reads the real call's.
fn record(call: &str, fd: c_int, offset: off_t, length: size_t, address: *const c_void, result: ssize_t) {
    // SAFETY: the pointer to errno is valid for this thread.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(watch) = watch()
        && watched(fd)
    {
        // SAFETY: F_GETFL takes no argument.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let mut line = [0u8; 160];
        let mut rest = &mut line[..];
        let address = address as usize;
        if writeln!(rest, "{call} {flags} {offset} {length} {address} {result}").is_ok() {
            let left = rest.len();
            let length = line.len() - left;
            // SAFETY: the first `length` bytes of the line are initialised. One write to an O_APPEND file is whole.
            unsafe { libc::write(watch.log, line.as_ptr().cast(), length) };
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The next definition of `name` after this library.
fn next(name: &CStr) -> *mut c_void {
    let name: *const c_char = name.as_ptr();
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
    assert!(!found.is_null(), "libc lacks a function that it has");
    found
}

/// Defines a wrapper: its symbol, its C type, what the call goes through, and what it records of its arguments and result.
macro_rules! interpose {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty =
        |$call:ident| $through:expr, |$outcome:ident| $record:expr;)+) => {$(
        /// Calls the function of this name in libc and records the call.
        ///
        /// # Safety
        /// As for the function in libc.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: OnceLock<usize> = OnceLock::new();
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            let name = concat!(stringify!($name), "\0");
            let found = *NEXT.get_or_init(|| {
                next(CStr::from_bytes_with_nul(name.as_bytes()).expect("the name ends with a zero")) as usize
            });
            // SAFETY: libc's function of this name has this type.
            let function: Function = unsafe { std::mem::transmute(found as *mut c_void) };
            // SAFETY: the caller's contract is libc's.
            let $call = || unsafe { function($($argument),*) };
            let $outcome = $through;
            $record;
            $outcome
        }
    )+};
}

/// Bytes of a vector of pieces.
fn total(pieces: *const iovec, count: c_int) -> usize {
    // SAFETY: the caller hands over `count` readable pieces, as the system call wants them.
    (0..usize::try_from(count).unwrap_or(0)).map(|index| unsafe { pieces.add(index).read() }.iov_len).sum()
}

/// Records each piece of a vector read as a call of its own, with its share of the result: pieces are filled in order.
fn record_vector(call: &str, fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, result: ssize_t) {
    let (mut at, mut left) = (offset, result);
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the kernel has just accepted or refused these `count` pieces; a refused vector has a count below 1
        // or readable pieces of bad contents, which are not followed.
        let piece = unsafe { pieces.add(index).read() };
        let share = left.min(piece.iov_len.cast_signed());
        record(call, fd, at, piece.iov_len, piece.iov_base, share);
        at += piece.iov_len as off_t;
        left -= share.max(0);
    }
}

/// Where the next `read` of a descriptor begins, given what the last one returned.
fn begun(fd: c_int, result: ssize_t) -> off_t {
    // SAFETY: asks for the position only.
    let end = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    end - (result.max(0) as off_t)
}

interpose! {
    pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t =
        |call| faults::read(fd, offset, length, call), |result| record("pread", fd, offset, length, to, result);
    pread64(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t =
        |call| faults::read(fd, offset, length, call), |result| record("pread", fd, offset, length, to, result);
    preadv(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        |call| faults::read(fd, offset, total(pieces, count), call),
        |result| record_vector("preadv", fd, pieces, count, offset, result);
    preadv64(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        |call| faults::read(fd, offset, total(pieces, count), call),
        |result| record_vector("preadv", fd, pieces, count, offset, result);
    preadv2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        |call| faults::read(fd, offset, total(pieces, count), call),
        |result| record_vector("preadv", fd, pieces, count, offset, result);
    preadv64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        |call| faults::read(fd, offset, total(pieces, count), call),
        |result| record_vector("preadv", fd, pieces, count, offset, result);
    read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t =
        |call| call(), |result| record("read", fd, begun(fd, result), length, to, result);
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t =
        |call| call(), |result| record_vector("read", fd, pieces, count, begun(fd, result), result);
    mmap(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void =
        |call| call(), |mapped| record("mmap", fd, offset, length, mapped, 0);
    mmap64(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void =
        |call| call(), |mapped| record("mmap", fd, offset, length, mapped, 0);
    pwrite(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t =
        |call| faults::write(length, call), |result| record("pwrite", fd, offset, length, from, result);
    pwrite64(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t =
        |call| faults::write(length, call), |result| record("pwrite", fd, offset, length, from, result);
    fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int =
        |call| faults::reserve(call),
        |result| record("fallocate", fd, offset, length as size_t, std::ptr::null(), result as ssize_t);
    fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int =
        |call| faults::reserve(call),
        |result| record("fallocate", fd, offset, length as size_t, std::ptr::null(), result as ssize_t);
}
