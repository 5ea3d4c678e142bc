//! Kernels: what the engine asks of a backend, as safe functions over slices.
//!
//! A backend implements codecs, never ggml types, and every function is deterministic in the sense of law 1: an output
//! element is one chain over ascending k that no cut by rows, strips or parts changes, and a reduction is one fixed tree
//! of [`LANES`] lanes. Two backends may differ in bits from each other; one backend never from itself.

mod decode;
pub mod hexagon;
pub mod int8;
mod lanes;
pub mod math;
mod multiply;
pub mod peak;
mod products;
pub mod rows;
pub mod scalar;
mod vector;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub mod x86;

pub use products::{Decoded, Input, Plain, Products, WORD};

use crate::view::{Block, Rows};
use core::ops::Range;
use estream_idl::address::TILE;
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

/// Functions of f32 vectors and matrices. Slices have the lengths their docs say; implementations check them once per
/// call and panic on a breach, which only a bug in this crate can cause.
pub trait Kernels: Sync {
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

    /// Asks for memory that will be written before long; changes nothing.
    fn near(&self, _: &mut [f32]) {}

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

/// A set of kernels: functions of f32, and products for each class of formats.
#[derive(Clone, Copy)]
pub struct Backend {
    /// Which set this is, with the choice of digits.
    pub set: KernelSet,
    /// Functions of f32.
    pub kernels: &'static dyn Kernels,
    /// Products by any format.
    plain: &'static dyn Products,
    /// Products by scaled codes.
    scaled: &'static dyn Products,
    /// Whether products are the matrix unit's; those above are then for what has to stay on vectors.
    pub matrix: bool,
}

impl Backend {
    /// A backend whose products are all in f32.
    #[must_use]
    pub const fn plain(set: KernelSet, kernels: &'static dyn Kernels, plain: &'static dyn Products) -> Self {
        Self { set, kernels, plain, scaled: plain, matrix: false }
    }

    /// The same kernels as another set, with products of their own where weights are codes under scales.
    #[must_use]
    pub const fn with_scaled(self, set: KernelSet, scaled: &'static dyn Products) -> Self {
        Self { set, scaled, ..self }
    }

    /// The same backend with its products in f32 on vectors, where a matrix unit would round them.
    #[must_use]
    pub const fn on_vectors(self) -> Self {
        Self { matrix: false, ..self }
    }

    /// The products that serve rows whose weights are in these formats.
    #[must_use]
    pub fn serving(&self, formats: &[Format]) -> &'static dyn Products {
        if formats.iter().all(int8::serves) { self.scaled } else { self.plain }
    }

    /// Words that a packed row of `k` inputs takes; none where no products want rows packed.
    #[must_use]
    pub fn row_words(&self, k: usize) -> usize {
        let block = self.scaled.packing(&[]).block;
        if self.scaled.in_place() { 0 } else { k.div_ceil(TILE) * block / WORD }
    }

    /// All products: what a self-test has to run.
    #[must_use]
    pub const fn products(&self) -> [&'static dyn Products; 2] {
        [self.plain, self.scaled]
    }
}

impl core::fmt::Debug for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Backend").field(&self.set).finish()
    }
}

/// The set that is Hexagon's kernels here.
const MATRIX: KernelSet =
    if cfg!(target_arch = "hexagon") { KernelSet::HEXAGON } else { KernelSet::HMX_MODEL };

/// Hexagon's kernels: the units', or natively their models'.
const fn matrix() -> Backend {
    let plain: &Plain<hexagon::Vector> = &Plain(hexagon::Vector);
    Backend { matrix: true, ..Backend::plain(MATRIX, &hexagon::Vector, plain) }
}

/// The backends of this processor with one digit or two, best first. The units' models come last: they are only ever
/// asked for by name.
fn backends(one_digit: bool) -> impl Iterator<Item = Backend> {
    let units = (!one_digit && crate::platform::has_matrix_unit()).then(matrix);
    let (first, last) = if cfg!(target_arch = "hexagon") { (units, None) } else { (None, units) };
    #[cfg(target_arch = "x86_64")]
    let vector = x86::backends(one_digit).into_iter().flatten();
    #[cfg(not(target_arch = "x86_64"))]
    let vector = core::iter::empty();
    first.into_iter().chain(vector).chain(scalar::backends(one_digit)).chain(last)
}

/// The kernels of this processor.
#[must_use]
pub fn available() -> KernelSet {
    backends(false).fold(KernelSet::ONE_DIGIT, |all, backend| all | backend.set)
}

/// The best backend in `wanted` (any, where no set is in it) that runs here, with the digits that `wanted` says.
#[must_use]
pub fn choose(wanted: KernelSet) -> Option<Backend> {
    let one_digit = wanted.contains(KernelSet::ONE_DIGIT);
    let sets = wanted.difference(KernelSet::ONE_DIGIT);
    backends(one_digit).find(|backend| {
        let set = backend.set.difference(KernelSet::ONE_DIGIT);
        (sets.is_empty() || sets.contains(set)) && one_digit == backend.set.contains(KernelSet::ONE_DIGIT)
    })
}
