//! Dense products: a matrix of the dense segment times all rows, strips side by side on the pool.
//!
//! Each task owns one strip of 32 output columns and walks the inputs in parts: decode a part into its own scratch, then
//! multiply all rows by it. The chain of an output element runs over ascending k whatever the parts are, so neither the
//! scratch size nor the number of threads changes a bit.

use crate::kernels::{Chain, Kernels, Strip};
use crate::pool::Pool;
use crate::view::{Block, Grid, Rows};
use estream_idl::address::TILE;
use estream_idl::format::Format;

/// Tiles of a part: 32 · 32 · 32 weights are 128 KiB as f32, which a second-level cache keeps while the rows stream by.
pub const PART_TILES: usize = 32;
/// Scratch of one worker in elements: one decoded part, or what attention needs.
pub const WORKER_SCRATCH: usize = PART_TILES * TILE * TILE;

/// A matrix with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Storage.
    pub format: Format,
    /// Inputs.
    pub k: usize,
    /// The strips, end to end.
    pub bytes: &'a [u8],
}

impl<'a> Weights<'a> {
    /// Strip `index`.
    ///
    /// # Panics
    /// Past the last strip.
    #[must_use]
    pub fn strip(&self, index: usize) -> Strip<'a> {
        crate::shared::strip(self.format, self.k, self.bytes, index)
    }
}

/// Multiplies `x` by one strip into `out`, part by part; `chain` says how the first part begins.
pub fn strip_product(
    kernels: &dyn Kernels,
    x: Rows<'_>,
    strip: Strip<'_>,
    mut out: Block<'_>,
    chain: Chain,
    scratch: &mut [f32],
) {
    let tiles = strip.k.div_ceil(TILE);
    let part = (scratch.len() / (TILE * TILE)).clamp(1, PART_TILES);
    let mut first = 0;
    let mut chain = chain;
    while first < tiles {
        let range = first..tiles.min(first + part);
        let weights = &mut scratch[..range.len() * TILE * TILE];
        kernels.decode(strip, range.clone(), weights);
        let (rows, columns) = (out.rows(), out.columns());
        let k = (strip.k - first * TILE).min(range.len() * TILE);
        let weights = &weights[..k * TILE];
        kernels.multiply(x.from_column(first * TILE), weights, out.part(0..rows, 0..columns), chain);
        chain = Chain::Continue;
        first = range.end;
    }
}

/// `out = x · weights` (or `out += …` with [`Chain::Continue`]) for all columns of `out`, beginning with the matrix's
/// strip `first_strip`.
pub fn product(
    kernels: &dyn Kernels,
    pool: &Pool<'_>,
    scratch: &mut [f32],
    x: Rows<'_>,
    weights: Weights<'_>,
    first_strip: usize,
    out: Grid<'_>,
    chain: Chain,
) {
    pool.columns(out, TILE, scratch, &|strip, block, scratch| {
        strip_product(kernels, x, weights.strip(first_strip + strip), block, chain, scratch);
    });
}
