//! Fuzz bodies: what must hold for any bytes. `fuzz/` throws new bytes at them, `tests/corpus.rs` the kept ones.
//!
//! `ESTREAM_SEEDS=1 cargo test --test corpus` writes the seeds, `cargo +nightly fuzz run NAME` goes on from them; what it
//! finds is mended and kept in `fuzz/corpus/NAME`.
//!
//! A body returns for every input, in time and memory that the input's size bounds, and panics where a promise is broken.

mod call;
mod gguf;
mod pack;
mod ring;
pub mod seeds;
mod split;

pub use call::call;
pub use gguf::gguf;
pub use pack::pack;
pub use ring::ring;
pub use split::split;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body by the name of its target and of its folder in the corpus.
pub const BODIES: [(&str, Body); 5] =
    [("gguf", gguf), ("split", split), ("pack", pack), ("call", call), ("ring", ring)];
