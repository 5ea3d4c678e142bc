//! As much of std as the tests use, over what the simulated protection domain provides.
//!
//! The compiler links a crate of this name into everything that is not `no_std` and takes prelude, macros and the way to
//! `main` from it, so test sources build for the target unchanged. Names, shapes and meanings are std's; what is not here
//! is not used.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below.
#![no_std]
#![deny(unsafe_code)]
#![allow(internal_features)]
#![feature(lang_items)]

extern crate alloc;

mod float;
#[allow(unsafe_code)]
mod heap;
pub mod panic;
#[allow(unsafe_code)]
pub mod thread;

pub use alloc::{borrow, boxed, fmt, format, rc, slice, str, string, vec};
pub use core::{
    any, array, ascii, cell, char, clone, cmp, convert, default, f32, f64, hash, hint, i8, i16, i32, i64,
    iter, marker, mem, num, ops, option, pin, ptr, result, time, u8, u16, u32, u64, usize,
};
pub use core::{
    assert_eq, assert_ne, debug_assert, debug_assert_eq, debug_assert_ne, matches, todo, unimplemented,
    unreachable, write, writeln,
};

/// Collections that need no hashing with keys from the system.
pub mod collections {
    pub use alloc::collections::*;
}

/// Atomics.
pub mod sync {
    pub use alloc::sync::*;
    pub use core::sync::*;
}

/// What is in scope everywhere.
pub mod prelude {
    /// Of the edition that the tests are written in.
    pub mod rust_2024 {
        pub use crate::float::Float as _;
        pub use crate::{eprintln, println};
        pub use alloc::borrow::ToOwned;
        pub use alloc::boxed::Box;
        pub use alloc::string::{String, ToString};
        pub use alloc::vec::Vec;
        pub use alloc::{format, vec};
        pub use core::prelude::rust_2024::*;
    }
}

/// Prints a line.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => { $crate::line($crate::format_arguments!($($argument)*)) };
}

/// Prints a line.
#[macro_export]
macro_rules! eprintln {
    ($($argument:tt)*) => { $crate::line($crate::format_arguments!($($argument)*)) };
}

#[doc(hidden)]
pub use core::format_args as format_arguments;

#[doc(hidden)]
pub fn line(arguments: fmt::Arguments<'_>) {
    estream_sim::stderr::line(arguments);
}

/// How a program ends.
pub mod process {
    /// A value that says how `main` went.
    #[lang = "termination"]
    pub trait Termination {
        /// The exit status.
        fn report(self) -> i32;
    }

    impl Termination for () {
        fn report(self) -> i32 {
            0
        }
    }

    impl<T: Termination, E: core::fmt::Debug> Termination for Result<T, E> {
        fn report(self) -> i32 {
            self.map_or(1, T::report)
        }
    }

    /// Ends the program.
    pub fn exit(status: i32) -> ! {
        estream_sim::sys::exit(status.cast_unsigned())
    }
}

/// What the compiler's `main` calls. The kernels under test are part of the program, so that stubs take the place of words
/// that the simulator does not run here, as they do in a skel when it is loaded.
#[lang = "start"]
fn start<T: process::Termination + 'static>(main: fn() -> T, _: isize, _: *const *const u8, _: u8) -> isize {
    if let Err(failure) = estream_sim::patch::install_in_program() {
        line(format_args!("the program's own code cannot be run: {failure}"));
        process::exit(101);
    }
    main().report() as isize
}
