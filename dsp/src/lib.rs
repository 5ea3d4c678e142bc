//! The firmware: MoE prefill over experts that are paged through a bounded arena.
//!
//! `no_std` and without an allocator: every table and activation is carved from one private block at `start`. The same
//! crate is the Hexagon skel's core and the native device.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below (and in
//! [`kernels`] for the ISA-specific ones, in [`matrix`] for what shares the scratchpad).
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(target_arch = "hexagon", feature(asm_experimental_arch, stdarch_hexagon))]

pub mod attention;
pub mod batch;
pub mod bell;
#[allow(unsafe_code)]
pub mod block;
pub mod buffers;
pub mod convolution;
pub mod embed;
mod engine;
pub mod executor;
pub mod expert;
mod feed;
pub mod head;
pub mod kernels;
pub mod latent;
pub mod linear;
pub mod mailbox;
pub mod matrix;
mod mixer;
pub mod model;
mod outputs;
pub mod pipeline;
pub mod plan;
#[allow(unsafe_code)]
pub mod platform;
#[allow(unsafe_code)]
pub mod pool;
pub mod report;
pub mod residency;
pub mod rope;
pub mod router;
pub mod routes;
pub mod selftest;
pub mod session;
#[allow(unsafe_code)]
mod shared;
#[allow(unsafe_code)]
pub mod skel;
pub mod topology;
mod traffic;
#[allow(unsafe_code)]
pub mod view;
pub mod vtcm;
pub mod window;

pub use session::FIRMWARE;

#[cfg(not(target_arch = "hexagon"))]
extern crate std;
