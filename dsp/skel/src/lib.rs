//! The skel's two symbols that cannot live in a library: the entry that FastRPC looks up, and the panic handler.
//!
//! `cargo xtask skel` builds this crate as a static library and links it into `libestream_skel.so`: the compiler's own
//! `cdylib` crashes for Hexagon, and the linker's flags are the loader's rules (`tools/xtask/src/hexagon/skel.rs`). On
//! every other target the crate is empty, so that the workspace builds everywhere.
//!
//! # Fences
//! Unsafe code is denied but for the one module listed with `#[allow(unsafe_code)]` below.
#![cfg(target_arch = "hexagon")]
#![no_std]
#![deny(unsafe_code)]
#![feature(core_intrinsics)]
#![expect(internal_features, reason = "abort is the one way to end the domain that needs no import")]

#[allow(unsafe_code)]
mod entry;

use core::fmt::Write;
use core::panic::PanicInfo;
use estream_dsp::platform;

/// A panic is a bug of the firmware: its words go to the platform's log, then the domain ends, which the host sees as a
/// dead peer. Nothing is unwound, so nothing half done is ever looked at again.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut message = heapless::String::<256>::new();
    // What does not fit is left out.
    let _ = write!(message, "{}", info.message());
    let (file, line) = info.location().map_or(("", 0), |place| (place.file(), place.line()));
    platform::log_fatal(&message, file, line);
    core::intrinsics::abort()
}
