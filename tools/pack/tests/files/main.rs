//! The crate from outside, by the files it reads and writes.

mod bad_gguf;
mod fixtures;
mod packs;
