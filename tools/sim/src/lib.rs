//! What a Hexagon protection domain provides, over the system calls of Linux: threads, futexes, memory, clock, log,
//! compute resources. The binary of this package loads the skel into it; the tests that run on the target link it.
//!
//! It links nothing of the firmware: all that it knows of a skel is the names that the skel imports. Each function here
//! does what the platform's does as far as the firmware can tell, refuses what a platform would refuse, and has no
//! opinion beyond that.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below: this is the layer
//! that turns numbers into memory and threads.
#![no_std]
#![deny(unsafe_code)]
#![feature(asm_experimental_arch)]

#[allow(unsafe_code)]
pub mod exports;
#[allow(unsafe_code)]
pub mod hap;
#[allow(unsafe_code)]
pub mod heap;
#[allow(unsafe_code)]
pub mod memory;
#[allow(unsafe_code)]
pub mod qurt;
#[allow(unsafe_code)]
pub mod start;
pub mod stderr;
#[allow(unsafe_code)]
pub mod sys;
