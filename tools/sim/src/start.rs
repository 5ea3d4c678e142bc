//! The first instructions of the program, and its arguments.

use crate::{context, fault, memory};
use core::ffi::{CStr, c_char};

// The kernel leaves argc, then the pointers, where r29 points. The first thread is made a thread like any other, with a
// context, before anything else. Whoever links this defines `main` as C does.
core::arch::global_asm!(
    ".text",
    ".global _start",
    "_start:",
    "r16 = memw(r29+#0)",
    "r17 = add(r29,#4)",
    "r29 = and(r29,#-128)",
    "call estream_sim_begin",
    "r1:0 = combine(r17,r16)",
    "call main",
    "r6 = #94",
    "trap0(#1)",
);

#[unsafe(no_mangle)]
extern "C" fn estream_sim_begin() {
    context::adopt();
    memory::remember_stack();
    fault::catch_unpatched();
}

/// The program's arguments without its name.
///
/// # Safety
/// `argc` and `argv` are what the kernel left.
pub unsafe fn arguments(argc: i32, argv: *const *const c_char) -> impl Iterator<Item = &'static CStr> {
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the kernel's pointers and strings stay where they are for the life of the program.
    (1..count).map(move |index| unsafe { CStr::from_ptr(*argv.add(index)) })
}
