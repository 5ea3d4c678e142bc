//! The skel's two symbols that cannot live in a library: the entry that FastRPC looks up, and the panic handler.
//!
//! `cargo xtask skel` builds this crate as a static library and links it into `libestream_skel.so`: the compiler's own
//! `cdylib` crashes for Hexagon, and the linker's flags are the loader's rules (`tools/xtask/src/hexagon/skel.rs`). On
//! every other target the crate is empty, so that the workspace builds everywhere.
#![cfg(target_arch = "hexagon")]
#![no_std]
#![feature(core_intrinsics)]
#![expect(internal_features, reason = "abort is the one way to end the domain that needs no import")]

use core::fmt::Write;
use core::panic::PanicInfo;
use estream_dsp::platform;
use estream_dsp::skel::{Buffers, RemoteArg, Skel};

static SKEL: Skel =
    Skel::new(estream_dsp::FIRMWARE, Buffers { map: platform::map, unmap: platform::unmap });

/// What the system calls for every invocation from the host.
///
/// # Safety
/// As [`Skel::invoke`]: `arguments` are as `scalars` says. FastRPC sees to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn estream_skel_handle_invoke(
    handle: u64,
    scalars: u32,
    arguments: *mut RemoteArg,
) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { SKEL.invoke(handle, scalars, arguments) }
}

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
