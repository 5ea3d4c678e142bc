//! Whether the program was started with a standard output that takes an answer.
//!
//! Where descriptor 1 is closed (`>&-`), Rust's runtime opens /dev/null in its place before `main`, and where it is open
//! for reading alone, the standard library takes a failed write for a success: either way the answer would be lost and
//! the exit code would be 0. In `main` it is too late to tell the first from a user's own `>/dev/null`, so the
//! descriptor is looked at by an initialiser, which runs before the runtime does.
//!
//! # Fence
//! Placing a function among the initialisers of the program is what only unsafe code can say.

use rustix::fs::{OFlags, fcntl_getfl};
use std::sync::atomic::{AtomicBool, Ordering};

static WRITABLE: AtomicBool = AtomicBool::new(true);

/// Whether standard output was open for writing when the program was started.
#[must_use]
pub fn is_writable() -> bool {
    // Ordering: the initialiser ran on this thread, or before this thread was made.
    WRITABLE.load(Ordering::Relaxed)
}

// SAFETY: the section holds pointers to functions of this type, which the loader calls once each before `main`. This one
// needs nothing of Rust's runtime: it makes a system call and stores a flag, and cannot panic.
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALISER: extern "C" fn() = look;

extern "C" fn look() {
    let writable = fcntl_getfl(rustix::stdio::stdout())
        .is_ok_and(|flags| !flags.contains(OFlags::PATH) && flags & OFlags::RWMODE != OFlags::RDONLY);
    WRITABLE.store(writable, Ordering::Relaxed);
}
