//! Products by stored weights: the seam between the operators and whatever a backend makes of rows and strips.
//!
//! A backend keeps activations and weights in scratch in a packing of its own, counted in f32-sized words: f32 numbers,
//! digits with a scale ([`super::int8`]), or what a matrix unit reads. The packing is the backend's alone. Operators know
//! its sizes, move whole 32-blocks of a row about, and hand decoded tiles back in ascending order.

use super::{Chain, Kernels, Strip};
use crate::routes::Route;
use crate::view::{Block, Rows};
use crate::vtcm::Packing;
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::format::Format;

/// Bytes of a word of scratch.
pub const WORD: usize = size_of::<f32>();

/// Decoded tiles of one strip.
#[derive(Clone, Copy, Debug)]
pub struct Decoded<'a> {
    /// Storage that they were decoded from.
    pub format: Format,
    /// Inputs that they are for: all of their tiles' but, on a strip's last tile, the padding.
    pub k: usize,
    /// The tiles, end to end.
    pub words: &'a [f32],
    /// Bytes that are likely decoded next: they may be brought near meanwhile.
    pub ahead: &'a [u8],
}

/// The rows of a product: all of a matrix, or those that routes name, where they lie.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    rows: Rows<'a>,
    routes: Option<&'a [Route]>,
}

impl<'a> From<Rows<'a>> for Input<'a> {
    fn from(rows: Rows<'a>) -> Self {
        Self { rows, routes: None }
    }
}

impl<'a> Input<'a> {
    /// The row of each route's token.
    #[must_use]
    pub const fn routed(rows: Rows<'a>, routes: &'a [Route]) -> Self {
        Self { rows, routes: Some(routes) }
    }

    /// Rows.
    #[must_use]
    pub const fn count(&self) -> usize {
        match self.routes {
            None => self.rows.rows,
            Some(routes) => routes.len(),
        }
    }

    /// Row `row` from its first word to the end of its stride (or of the data).
    #[must_use]
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [f32] {
        self.rows.row(self.routes.map_or(row, |routes| routes[row].token as usize))
    }

    /// The columns from `first` on, all rows.
    #[must_use]
    pub fn from_column(&self, first: usize) -> Self {
        Self { rows: self.rows.from_column(first), ..*self }
    }
}

/// Products of activations by stored weights. Slices have the lengths their docs say; implementations check them once per
/// call and panic on a breach, which only a bug in this crate can cause.
pub trait Products: Sync {
    /// Bytes of the packing for weights in these formats: a tile is as large as the largest format's.
    fn packing(&self, formats: &[Format]) -> Packing;

    /// Whether packed rows are the f32 rows themselves, which then need not be packed where they lie together.
    fn in_place(&self) -> bool;

    /// Packs inputs of one row, from a multiple of 32 on, into their 32-blocks; a last block that `x` does not fill is
    /// filled up with zeros. What a block becomes depends on its own inputs alone (law 1 e).
    fn pack(&self, x: &[f32], out: &mut [f32]);

    /// Decodes k-tiles `tiles` of a strip, one after another.
    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]);

    /// `out[r][c] (+)= Σ_k x[r][k] · weights[k][c]` for 32 columns, k ascending; `x` begins with the first block of
    /// `weights`.
    fn multiply(&self, x: Input<'_>, weights: Decoded<'_>, out: Block<'_>, chain: Chain);
}

/// Products in f32 by the kernels of `K`: every format, rows as they lie.
#[derive(Clone, Copy, Debug)]
pub struct Plain<K>(pub K);

impl<K: Kernels> Products for Plain<K> {
    fn packing(&self, _: &[Format]) -> Packing {
        Packing { block: TILE * WORD, tile: TILE * TILE * WORD, output: WORD }
    }

    fn in_place(&self) -> bool {
        true
    }

    fn pack(&self, x: &[f32], out: &mut [f32]) {
        let (row, padding) = out.split_at_mut(x.len());
        row.copy_from_slice(x);
        padding.fill(0.0);
    }

    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
        self.0.decode(strip, tiles, out);
    }

    fn multiply(&self, x: Input<'_>, weights: Decoded<'_>, mut out: Block<'_>, chain: Chain) {
        let (words, columns) = (&weights.words[..weights.k * TILE], out.columns());
        let Some(routes) = x.routes else { return self.0.multiply(x.rows, words, out, chain) };
        // Row by row, weights are loaded for each: who has many gathers them.
        for (row, route) in routes.iter().enumerate() {
            let token = route.token as usize;
            self.0.multiply(x.rows.slice(token..token + 1), words, out.part(row..row + 1, 0..columns), chain);
        }
    }
}
