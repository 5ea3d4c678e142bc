//! A witness for the streaming laws: loaded before libc by `LD_PRELOAD`, it writes down every read and every mapping of
//! one file, and passes all calls on unchanged, unless it is told to spoil some (`faults`).
//!
//! What the product says about its own reads is not evidence; what it asked of the system is. A tracer would see the
//! same and needs a permission that containers withhold; a preloaded library needs none, as long as the product's calls
//! go through libc (they do: the workspace builds rustix with `use-libc`).
//!
//! The file is named by `ESTREAM_SHIM_FILE`, the log by `ESTREAM_SHIM_LOG`; a line is
//! `call flags offset length address result`, numbers in decimal, flags those of the descriptor.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules below, which are nothing but foreign calls.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod faults;
#[allow(unsafe_code)]
pub mod interpose;
