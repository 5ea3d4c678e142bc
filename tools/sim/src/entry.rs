//! Where the program's first instructions lead to.

use core::ffi::c_char;

/// C's `main`.
#[unsafe(no_mangle)]
extern "C" fn main(argc: i32, argv: *const *const c_char) -> i32 {
    // SAFETY: called once, by the program's first instructions, with what the kernel left.
    let arguments = unsafe { estream_sim::start::arguments(argc, argv) };
    crate::run(arguments).cast_signed()
}
