//! The entry: unsafe because what it is given are FastRPC's pointers.

use estream_dsp::platform;
use estream_dsp::skel::{Buffers, RemoteArg, Skel};

static SKEL: Skel = Skel::new(estream_dsp::FIRMWARE, Buffers { map: platform::map, unmap: platform::unmap });

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
