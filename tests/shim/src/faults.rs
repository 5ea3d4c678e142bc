//! Storage that misbehaves on purpose, as `ESTREAM_SHIM_FAULT` says: a word and a number.
//!
//! | fault | what happens to the watched file |
//! |---|---|
//! | `eio AT` | reads that touch byte AT fail with EIO |
//! | `eintr N` | every Nth read fails with EINTR |
//! | `short N` | no read gives more than N bytes |
//! | `truncate AT` | before the first read that touches byte AT the file is cut there |
//! | `overwrite AT` | before that read, byte AT is written over with its complement |
//! | `replace AT` | before that read, the file with `.other` after its name takes its name |
//! | `nospace N` | any file: positioned writes beyond N bytes in all fail with ENOSPC; with 0 space cannot be reserved |
//!
//! Faults come in the calls themselves, so they come at the same place of every run.

use crate::interpose::watched;
use libc::{c_int, off_t, size_t, ssize_t};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Io,
    Interrupted,
    Short,
    Truncate,
    Overwrite,
    Replace,
    NoSpace,
}

/// The fault and its number.
fn fault() -> Option<(Fault, u64)> {
    static FAULT: OnceLock<Option<(Fault, u64)>> = OnceLock::new();
    *FAULT.get_or_init(|| {
        let text = std::env::var("ESTREAM_SHIM_FAULT").ok()?;
        let (word, number) = text.split_once(' ')?;
        let fault = match word {
            "eio" => Fault::Io,
            "eintr" => Fault::Interrupted,
            "short" => Fault::Short,
            "truncate" => Fault::Truncate,
            "overwrite" => Fault::Overwrite,
            "replace" => Fault::Replace,
            "nospace" => Fault::NoSpace,
            _ => return None,
        };
        Some((fault, number.parse().ok()?))
    })
}

/// Fails a call with `errno`.
fn fail(errno: c_int) -> ssize_t {
    // SAFETY: the pointer to errno is valid for this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// A read of `length` bytes from `offset`, made by `call` or spoilt.
pub(crate) fn read(fd: c_int, offset: off_t, length: usize, call: impl FnOnce() -> ssize_t) -> ssize_t {
    static READS: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicBool = AtomicBool::new(false);
    let Some((fault, number)) = fault().filter(|_| watched(fd)) else { return call() };
    let begin = offset.max(0).cast_unsigned();
    let touches = (begin..begin + length as u64).contains(&number);
    match fault {
        Fault::Io if touches => fail(libc::EIO),
        Fault::Interrupted if READS.fetch_add(1, Ordering::Relaxed).is_multiple_of(number.max(1)) => {
            fail(libc::EINTR)
        }
        Fault::Short => call().min(number as ssize_t),
        Fault::Truncate | Fault::Overwrite | Fault::Replace
            if touches && !DONE.swap(true, Ordering::Relaxed) =>
        {
            change(fault, number as off_t);
            call()
        }
        _ => call(),
    }
}

/// Changes the watched file by its name.
fn change(fault: Fault, at: off_t) {
    let path = std::env::var_os("ESTREAM_SHIM_FILE").unwrap_or_default();
    let mut other = path.clone();
    other.push(".other");
    let text = |path: std::ffi::OsString| CString::new(path.into_vec()).expect("a path without zeros");
    let (path, other) = (text(path), text(other));
    let mut byte = 0_u8;
    let buffer = (&raw mut byte).cast();
    // SAFETY: paths end with a zero, the buffer is a byte, and the descriptor is this function's own.
    let changed = unsafe {
        match fault {
            Fault::Truncate => libc::truncate(path.as_ptr(), at) == 0,
            Fault::Replace => libc::rename(other.as_ptr(), path.as_ptr()) == 0,
            _ => {
                let file = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
                let read = libc::pread(file, buffer, 1, at);
                byte = !byte;
                let written = libc::pwrite(file, (&raw const byte).cast(), 1, at);
                libc::close(file);
                (read, written) == (1, 1)
            }
        }
    };
    assert!(changed, "the watched file cannot be changed");
}

/// A positioned write of `length` bytes, made by `call` or refused.
pub(crate) fn write(length: size_t, call: impl FnOnce() -> ssize_t) -> ssize_t {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    match fault() {
        Some((Fault::NoSpace, limit))
            if WRITTEN.fetch_add(length as u64, Ordering::Relaxed) + length as u64 > limit =>
        {
            fail(libc::ENOSPC)
        }
        _ => call(),
    }
}

/// A reservation of space, made by `call` or refused: a full disk has none, other file systems cannot say.
pub(crate) fn reserve(call: impl FnOnce() -> c_int) -> c_int {
    match fault() {
        Some((Fault::NoSpace, 0)) => fail(libc::ENOSPC) as c_int,
        Some((Fault::NoSpace, _)) => fail(libc::EOPNOTSUPP) as c_int,
        _ => call(),
    }
}
