//! Models of a given shape with random weights: for benchmarks, demonstrations and tests.
//!
//! The model is a [`Source`]: a GGUF that is computed while it is read. Writing it out gives a GGUF; packing it gives the
//! pack that the GGUF would give, byte for byte, without the detour over a disk. No array of the model's size exists.

mod file;
mod fill;
mod keys;
mod random;
mod shape;
mod share;
mod skew;
mod tensors;
mod vocabulary;

use crate::convert::{Options, Progress, pack};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::write::Metadata;
use crate::output::Output;
use crate::source::Source;
use file::{Builder, SyntheticFile};
use serde::Serialize;
pub use shape::{Family, Shape};
pub use share::Share;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that one thread makes at a time.
const CHUNK_BYTES: u64 = 4 << 20;
const THREADS: u64 = 2;
/// Largest Zipf exponent: beyond, one expert has everything.
const MAX_SKEW: f64 = 8.0;

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynthFormat {
    /// A GGUF, for this project and llama.cpp alike.
    Gguf,
    /// A pack; only of architectures that can be packed.
    Pack,
}

/// A synthetic model.
pub struct SynthOptions<'a> {
    /// Its sizes.
    pub shape: Shape,
    /// Fewer layers than the shape's.
    pub layers: Option<u32>,
    /// Of the weights: the same seed gives the same bytes.
    pub seed: u64,
    /// Zipf exponent of the experts' shares; 0 = no expert is preferred on purpose.
    pub skew: f64,
    /// What to write.
    pub format: SynthFormat,
    /// Where.
    pub output: PathBuf,
    /// Told how far it is.
    pub progress: Progress<'a>,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct SynthReport {
    /// The value of `general.architecture`.
    pub architecture: &'static str,
    /// Layers.
    pub layers: u32,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The share of the most wanted expert.
    pub share: Option<Share>,
}

/// Writes a synthetic model.
///
/// # Errors
/// Input errors for sizes that make no model, run-time errors for a disk that cannot be written.
pub fn synth(options: &SynthOptions<'_>) -> Result<SynthReport> {
    let mut shape = options.shape.clone();
    let most = shape.layers;
    shape.layers = options.layers.unwrap_or(most);
    if shape.layers > most {
        let message = format!("{} layers; the shape has {most}", shape.layers);
        return Err(Error::input("bad-shape", message));
    }
    if let Some(defect) = shape.defect() {
        return Err(Error::input("bad-shape", defect));
    }
    if !(0.0..=MAX_SKEW).contains(&options.skew) {
        return Err(Error::input(
            "bad-skew",
            format!("a skew of {}; 0 to {MAX_SKEW} are possible", options.skew),
        ));
    }
    let file = build(&shape, options.seed, options.skew as f32);
    let share = share::measure(&Gguf::read(&file)?, shape.dense_layers(), shape.chosen as usize)?;
    let file_bytes = match options.format {
        SynthFormat::Gguf => write(&file, &options.output, options.progress)?,
        SynthFormat::Pack => {
            pack(&Gguf::read(&file)?, &options.output, &Options { order: None, progress: options.progress })?
                .file_bytes
        }
    };
    Ok(SynthReport { architecture: shape.architecture(), layers: shape.layers, file_bytes, share })
}

fn build(shape: &Shape, seed: u64, skew: f32) -> SyntheticFile {
    let mut metadata = Metadata::default();
    keys::write(&mut metadata, shape);
    vocabulary::write(&mut metadata, shape);
    let mut builder = Builder::new(metadata, seed);
    let by_rank = match skew > 0.0 {
        true => skew::biases(shape.experts as usize, shape.chosen as usize, skew, tensors::ROUTER_STD),
        false => Vec::new(),
    };
    tensors::Tensors { shape, seed, by_rank }.write(&mut builder);
    builder.finish()
}

/// Writes the file out on two threads, each making and writing every other chunk.
fn write(file: &SyntheticFile, target: &Path, progress: Progress<'_>) -> Result<u64> {
    let total = file.bytes();
    let output = Output::create(target, total)?;
    let done = AtomicU64::new(0);
    let run = |thread: u64, report: &dyn Fn(u64)| {
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for at in (thread * CHUNK_BYTES..total).step_by((THREADS * CHUNK_BYTES) as usize) {
            let chunk = &mut buffer[..CHUNK_BYTES.min(total - at) as usize];
            file.read_at(at, chunk).map_err(|error| Error::read(&error, at))?;
            output.write_at(at, chunk)?;
            report(done.fetch_add(chunk.len() as u64, Ordering::Relaxed) + chunk.len() as u64);
        }
        Ok::<_, Error>(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|thread| scope.spawn(move || run(thread, &|_| {}))).collect();
        let mut result = run(0, &|done| progress(done, total));
        for other in others {
            let ended = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })?;
    output.commit()?;
    progress(total, total);
    Ok(total)
}

#[cfg(test)]
mod tests;
