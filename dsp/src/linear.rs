//! Dense products: a matrix of the dense segment times all rows, strips side by side on the pool.
//!
//! Each task owns one strip of 32 output columns and walks the inputs in parts: decode a part into its own scratch, then
//! multiply all rows by it. The chain of an output element runs over ascending k whatever the parts are, so neither the
//! scratch size nor the number of threads changes a bit.

use crate::kernels::{Backend, Chain, Decoded, Products, Strip, WORD};
use crate::matrix::operator::Rowed;
use crate::pool::Pool;
use crate::view::{Block, Grid, Rows};
use estream_idl::address::TILE;
use estream_idl::format::Format;

/// Scratch of one worker in words: one decoded part, or what attention needs. 128 KiB stay in a second-level cache while
/// the rows stream by; they are 32 tiles in f32 and whole strips of most models in codes.
pub const WORKER_SCRATCH: usize = 32 * TILE * TILE;
/// Rows that are packed by one task.
const PACKED_ROWS: usize = 8;

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

/// Rows of activations, as they are and as a backend's products want them: several matrices share one packing.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    rows: Rows<'a>,
    packed: Rows<'a>,
}

impl<'a> Activations<'a> {
    /// Packs the first `k` inputs of all rows into `buffer`, which holds [`Backend::row_words`] a row, unless no matrix in
    /// `formats` asks for it.
    pub fn pack(
        backend: &Backend,
        pool: &Pool<'_>,
        rows: Rows<'a>,
        k: usize,
        formats: &[Format],
        buffer: &'a mut [f32],
    ) -> Self {
        let served = formats.iter().map(|format| backend.serving(core::slice::from_ref(format)));
        if let Some(products) = served.into_iter().find(|products| !products.in_place()) {
            let stride = backend.row_words(k);
            let grid = Grid::new(&mut buffer[..rows.rows * stride], stride);
            pool.rows(grid, PACKED_ROWS, &mut [], &|first, mut block, _| {
                for row in 0..block.rows() {
                    products.pack(&rows.row(first + row)[..k], block.row(row));
                }
            });
        }
        Self::packed(backend, rows, k, buffer)
    }

    /// Rows that [`Self::pack`] packed before.
    #[must_use]
    pub fn packed(backend: &Backend, rows: Rows<'a>, k: usize, buffer: &'a [f32]) -> Self {
        let stride = backend.row_words(k);
        Self { rows, packed: Rows { data: &buffer[..rows.rows * stride], stride, rows: rows.rows } }
    }

    /// The rows as `products` read them.
    #[must_use]
    pub fn of(&self, products: &dyn Products) -> Rows<'a> {
        if products.in_place() { self.rows } else { self.packed }
    }
}

/// Multiplies rows by one strip into `out`, part by part; `chain` says how the first part begins. `x` are the rows as
/// `products` read them.
pub fn strip_product(
    products: &dyn Products,
    x: Rows<'_>,
    strip: Strip<'_>,
    mut out: Block<'_>,
    chain: Chain,
    scratch: &mut [f32],
) {
    let packing = products.packing(&[strip.format]);
    let [block, tile] = [packing.block, packing.tile].map(|bytes| bytes / WORD);
    let tiles = strip.k.div_ceil(TILE);
    let part = (scratch.len() / tile).max(1);
    let mut first = 0;
    let mut chain = chain;
    while first < tiles {
        let range = first..tiles.min(first + part);
        let words = &mut scratch[..range.len() * tile];
        products.decode(strip, range.clone(), words);
        let (rows, columns) = (out.rows(), out.columns());
        let k = (strip.k - first * TILE).min(range.len() * TILE);
        let weights = Decoded { format: strip.format, k, words, ahead: &[] };
        products.multiply(x.from_column(first * block).into(), weights, out.part(0..rows, 0..columns), chain);
        chain = Chain::Continue;
        first = range.end;
    }
}

/// `out = x · weights` (or `out += …` with [`Chain::Continue`]) for all columns of `out`, beginning with the matrix's
/// strip `first_strip`.
pub fn product(
    backend: &Backend,
    pool: &Pool<'_>,
    scratch: &mut [f32],
    x: Activations<'_>,
    weights: Weights<'_>,
    first_strip: usize,
    out: Grid<'_>,
    chain: Chain,
) {
    if let (true, Some(machine)) = (backend.matrix, pool.matrix()) {
        return machine.product(pool, scratch, x.rows, weights, first_strip, Rowed::Whole(out), chain);
    }
    let products = backend.serving(&[weights.format]);
    let x = x.of(products);
    pool.columns(out, TILE, scratch, &|strip, block, scratch| {
        strip_product(products, x, weights.strip(first_strip + strip), block, chain, scratch);
    });
}

/// As [`product`], each strip for itself in `out`: rows of 32 elements, all rows of one strip, then those of the next.
pub fn strips(
    backend: &Backend,
    pool: &Pool<'_>,
    scratch: &mut [f32],
    x: Activations<'_>,
    weights: Weights<'_>,
    out: &mut [f32],
) {
    let (height, out) = (x.rows.rows, Grid::new(out, TILE));
    if let (true, Some(machine)) = (backend.matrix, pool.matrix()) {
        return machine.product(pool, scratch, x.rows, weights, 0, Rowed::Strips(out), Chain::Start);
    }
    let products = backend.serving(&[weights.format]);
    let x = x.of(products);
    pool.rows(out, height, scratch, &|first, block, scratch| {
        strip_product(products, x, weights.strip(first / height), block, Chain::Start, scratch);
    });
}
