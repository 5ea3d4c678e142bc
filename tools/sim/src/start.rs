//! The first instructions of the program, its arguments, and its end on a panic.

use crate::{stderr, sys};
use core::ffi::{CStr, c_char};

// The kernel leaves argc, then the pointers, where r29 points. Whoever links this defines `main` as C does.
core::arch::global_asm!(
    ".text",
    ".global _start",
    "_start:",
    "r0 = memw(r29+#0)",
    "r1 = add(r29,#4)",
    "r29 = and(r29,#-128)",
    "call main",
    "r6 = #94",
    "trap0(#1)",
);

/// The program's arguments without its name.
///
/// # Safety
/// `argc` and `argv` are what the kernel left.
pub unsafe fn arguments(argc: i32, argv: *const *const c_char) -> impl Iterator<Item = &'static CStr> {
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the kernel's pointers and strings stay where they are for the life of the program.
    (1..count).map(move |index| unsafe { CStr::from_ptr(*argv.add(index)) })
}

/// The exit status of a program that panicked, as std has it.
const PANICKED: u32 = 101;

#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    stderr::line(format_args!("{info}"));
    sys::exit(PANICKED)
}
