//! What tests of the whole product stand on: the oracle, comparison, fixtures, and ways to run and to watch the product.
//!
//! The tests themselves are in `tests/`: `oracle` (the oracle against llama.cpp), `goldens` (the product against both),
//! `controls` (mistakes made on purpose are noticed), `families` (what only some models have), `trained` (real text, token
//! by token), `hmx` (Hexagon's kernels over the models of its units, and in the simulator), `laws` (streamed = resident),
//! `batches` (alone = among others), `memory` and `allocations`, `reads` (what is really asked of the disk), `faults` (bad
//! packs and tokens), `models` (bad GGUFs), `selftest` (wrong kernels), `rules` (broken rules of the units), `sim` and
//! `sim_faults` (the skel in the simulator). Golden models live in `tests/data`; more of them are taken from the folder
//! that `ESTREAM_SHARED` names (or `../shared` beside the workspace) where it exists.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod child;
pub mod codecs;
pub mod collect;
pub mod compare;
#[allow(unsafe_code)]
pub mod counting;
pub mod counts;
pub mod fixture;
pub mod fuzz;
pub mod gguf;
pub mod native;
pub mod oracle;
pub mod padded;
pub mod pairwise;
pub mod program;
pub mod random;
pub mod simulated;
pub mod simulator;
