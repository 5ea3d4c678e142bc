//! The firmware: MoE prefill over experts that are paged through a bounded arena.
//!
//! `no_std` and without an allocator: every table and activation is carved from one private block at `start`. The same
//! crate is the Hexagon skel's core and the native device.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below (and in
//! [`kernels`] for the ISA-specific ones).
#![no_std]
#![deny(unsafe_code)]

pub mod kernels;
#[allow(unsafe_code)]
pub mod view;

#[cfg(not(target_arch = "hexagon"))]
extern crate std;
