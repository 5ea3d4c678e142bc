//! What only assembly can say on Hexagon: the words of the matrix unit (HMX), the user-DMA instructions and the barriers,
//! each with a software model that is independent of the kernels that use it.
//!
//! Three parts that meet only in their names:
//! * [`word`] reads and writes 32-bit instruction words: what a simulator must find in a text segment, and what the
//!   functions below emit. Pure, host and target.
//! * [`model`] says what such words do: HVX floating point on register values, the matrix unit as a state machine, the DMA
//!   engine over descriptor chains. Pure, host and target, strict about silicon's rules: what silicon would answer with a
//!   fault, a hang or a wrong number is an error value here.
//! * `hmx`, `dma` and `barrier`, on Hexagon alone, are the words themselves.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below, and one in
//! [`model::hmx`] that compiles a loop for wider vectors.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(target_arch = "hexagon", feature(asm_experimental_arch))]

#[cfg(target_arch = "hexagon")]
#[allow(unsafe_code)]
pub mod barrier;
#[cfg(target_arch = "hexagon")]
#[allow(unsafe_code)]
pub mod dma;
#[cfg(target_arch = "hexagon")]
#[allow(unsafe_code)]
pub mod hmx;
pub mod model;
pub mod word;

/// For what the processor can do, and for the tests' own arithmetic.
#[cfg(any(target_arch = "x86_64", test))]
extern crate std;
