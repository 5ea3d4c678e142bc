//! What a Hexagon protection domain provides, over the system calls of Linux: threads, futexes, memory, clock, log,
//! compute resources, and the units that the simulator lacks. The binary of this package loads the skel into it; the tests
//! that run on the target link it.
//!
//! Words that `qemu-hexagon` does not run (HVX floating point, HMX, user DMA) are served by the models of
//! `estream-kernels-asm`: [`patch`] has a stub take the place of each packet that has one, [`enter`] is what stubs call,
//! [`serve`] has the models do the work on a thread's [`context`], [`units`] tells them what the platform knows, and
//! [`fault`] ends a run that breaks a rule.
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
pub mod context;
#[allow(unsafe_code)]
pub mod counts;
#[allow(unsafe_code)]
pub mod enter;
#[allow(unsafe_code)]
pub mod exports;
#[allow(unsafe_code)]
pub mod fault;
#[allow(unsafe_code)]
pub mod hap;
#[allow(unsafe_code)]
pub mod heap;
#[allow(unsafe_code)]
pub mod memory;
#[allow(unsafe_code)]
pub mod patch;
#[allow(unsafe_code)]
pub mod power;
#[allow(unsafe_code)]
pub mod qurt;
#[allow(unsafe_code)]
pub mod resources;
pub mod sections;
#[allow(unsafe_code)]
pub mod serve;
#[allow(unsafe_code)]
pub mod start;
pub mod stderr;
#[allow(unsafe_code)]
pub mod sys;
#[allow(unsafe_code)]
pub mod units;
