//! The contract between the host and the firmware, and between the packer and both.
//!
//! Everything that two sides must build alike stands here and nowhere else: the pack's bytes ([`pack`], [`format`],
//! [`tile`], [`recipe`]), the memory that both sides see ([`address`], [`control`], [`io`]), and the words that cross it
//! ([`call`] for the short synchronous calls, [`message`] over [`ring`] for the rest). The crate has no I/O, no clock and
//! no allocation; it builds for the host and for Hexagon alike.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the one module listed with `#[allow(unsafe_code)]` below.
#![no_std]
#![deny(unsafe_code)]

pub mod address;
pub mod call;
pub mod carrier;
pub mod control;
pub mod fastrpc;
pub mod firmware;
pub mod format;
pub mod io;
pub mod log;
#[allow(unsafe_code)]
pub mod memory;
pub mod message;
pub mod operator;
pub mod pack;
pub mod recipe;
pub mod ring;
pub mod status;
pub mod streaming;
pub mod sync;
pub mod tile;

#[cfg(test)]
extern crate std;

#[cfg(not(target_endian = "little"))]
compile_error!("the pack and the wire are little-endian and read in place");

/// Version of the calls, rings and segments; a host and a firmware of different versions refuse each other at `hello`.
pub const PROTOCOL: u32 = 2;
