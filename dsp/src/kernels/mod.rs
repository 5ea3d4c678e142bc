//! Kernels: what the engine asks of a backend, as safe functions over slices.
//!
//! A backend implements codecs, never ggml types, and every function is deterministic in the sense of law 1: an output
//! element is one chain over ascending k that no cut by rows, strips or parts changes, and a reduction is one fixed tree
//! of [`LANES`] lanes. Two backends may differ in bits from each other; one backend never from itself.

mod decode;
mod lanes;
pub mod math;
mod multiply;
pub mod rows;
pub mod scalar;
mod vector;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub mod x86;

use crate::view::{Block, Rows};
use core::ops::Range;
use estream_idl::call::KernelSet;
use estream_idl::format::Format;
use estream_idl::recipe::RopePairs;

/// Lanes of every reduction tree, on every backend.
pub const LANES: usize = 8;

/// A strip of 32 output columns as it lies in the pack.
#[derive(Clone, Copy, Debug)]
pub struct Strip<'a> {
    /// Storage.
    pub format: Format,
    /// Inputs.
    pub k: usize,
    /// `format.strip(k).bytes` bytes.
    pub bytes: &'a [u8],
}

/// Where an accumulator chain stands when a product begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// At its beginning: the output is overwritten.
    Start,
    /// In its middle: the output holds the chain so far.
    Continue,
}

/// A backend. Slices have the lengths their docs say; implementations check them once per call and panic on a breach,
/// which only a bug in this crate can cause.
pub trait Kernels: Sync {
    /// Which set this is.
    fn set(&self) -> KernelSet;

    /// Decodes k-tiles `tiles` of a strip to dequantised f32 weights, `out[k − 32·tiles.start][column]`, 32 columns.
    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]);

    /// `out[r][c] (+)= Σ_k x[r][k] · weights[k][c]` for 32 columns, k ascending; `x` begins at the first k of `weights`.
    fn multiply(&self, x: Rows<'_>, weights: &[f32], out: Block<'_>, chain: Chain);

    /// `out[i] = x[i] · rsqrt(mean(x²) + epsilon) · weight[i]`.
    fn rms_norm(&self, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]);

    /// `out[i] = silu(gate[i]) · up[i]`.
    fn swiglu(&self, gate: &[f32], up: &[f32], out: &mut [f32]);

    /// `y[i] += factor · x[i]`.
    fn add_scaled(&self, factor: f32, x: &[f32], y: &mut [f32]);

    /// `x[i] *= factor`.
    fn scale(&self, factor: f32, x: &mut [f32]);

    /// Rotates the pairs of one head by the angles whose cosines and sines are given, one of each a pair.
    fn rotate(&self, pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]);

    /// The largest element, −∞ for none.
    fn max(&self, x: &[f32]) -> f32;

    /// Replaces each element by `exp(x − max)` and returns their sum. `max` is finite.
    fn exp_sum(&self, x: &mut [f32], max: f32) -> f32;

    /// The sum of `exp(x − max)`, without writing.
    fn sum_exp(&self, x: &[f32], max: f32) -> f32;
}

/// The kernels of this processor.
#[must_use]
pub fn available() -> KernelSet {
    #[cfg(target_arch = "x86_64")]
    if x86::Avx2::detect().is_some() {
        return KernelSet::SCALAR | KernelSet::AVX2;
    }
    KernelSet::SCALAR
}

/// The best backend in `wanted` (any, where it is empty) that runs here.
#[must_use]
pub fn choose(wanted: KernelSet) -> Option<&'static dyn Kernels> {
    let allowed = |set: KernelSet| wanted.is_empty() || wanted.contains(set);
    #[cfg(target_arch = "x86_64")]
    if allowed(KernelSet::AVX2)
        && let Some(kernels) = x86::Avx2::detect()
    {
        return Some(kernels);
    }
    allowed(KernelSet::SCALAR).then_some(&scalar::Scalar as &dyn Kernels)
}
