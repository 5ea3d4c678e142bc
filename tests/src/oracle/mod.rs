//! The oracle: a row-major f64 forward pass over a GGUF, by the plainest code that is right.
//!
//! Law 2 measures every backend against it, so it shares nothing with what it judges: its own GGUF reader, its own
//! dequantiser, no tiles, no chunks, no import of the firmware or the packer. It is itself held to llama.cpp's logits
//! (`tests/oracle.rs`) before anything is held to it. Speed matters only so far that 512 tokens of a small model take a
//! second: rows are shared among threads and weights stay f32 until a row of them is used.
//!
//! Everything that a pass computes with is a public field, so that a test can break one thing on purpose and see that it
//! is noticed (`tests/controls.rs`).

mod attention;
mod convolution;
mod dequant;
mod experts;
mod gguf;
mod keys;
mod latent;
mod linear;
mod model;
mod rope;

pub use attention::Attention;
pub use convolution::Convolution;
pub use experts::{Experts, Gating, Router, Units, Weighing};
pub use gguf::{Gguf, Value, Values};
pub use latent::Latent;
pub use model::{Feed, Forward, Layer, Mixer, Model};
pub use rope::{Pairs, Rotation};

/// Weights of a block of ggml type `kind` and its bytes, where the oracle knows the type.
#[must_use]
pub fn block_size(kind: u32) -> Option<(usize, usize)> {
    dequant::block(kind).map(|block| (block.weights, block.bytes))
}

/// The values of whole blocks of ggml type `kind`; `None` for a type that the oracle does not know.
#[must_use]
pub fn dequantise(kind: u32, stored: &[u8]) -> Option<Vec<f32>> {
    let block = dequant::block(kind)?;
    let mut values = vec![0.0; stored.len() / block.bytes * block.weights];
    for (bytes, out) in stored.chunks_exact(block.bytes).zip(values.chunks_exact_mut(block.weights)) {
        (block.decode)(bytes, out);
    }
    Some(values)
}

use std::path::PathBuf;

/// Why the oracle cannot speak about a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The bytes are not a GGUF that the oracle understands.
    #[error("byte {offset}: {message}")]
    Format {
        /// Where it was noticed.
        offset: usize,
        /// What is wrong.
        message: String,
    },
    /// A key or tensor is absent or has an unexpected type or shape.
    #[error("{0}")]
    Model(String),
}

/// What the router decided for one token in one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Chosen experts, best first; of equal scores the lowest index first.
    pub experts: Vec<usize>,
    /// Their weights, in the same order.
    pub weights: Vec<f64>,
    /// Distance of the last chosen score (probability and bias) from the best one not chosen, ∞ where all are chosen: an
    /// engine may choose otherwise only where this is below its own rounding.
    pub margin: f64,
}
