//! Decoding and products.

use crate::stored::{Chance, Stored, formats};
use crate::{U, bits, close};
use estream_dsp::kernels::rows::decode_row;
use estream_dsp::kernels::scalar::Scalar;
use estream_dsp::kernels::{Chain, Kernels, Strip};
use estream_dsp::view::{Block, Rows};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn decoded(kernels: &dyn Kernels, stored: &Stored, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; stored.k * 32];
    let strip = Strip { format: stored.format, k: stored.k, bytes };
    kernels.decode(strip, 0..stored.k / 32, &mut out);
    out
}

pub fn decodes_every_format(kernels: &dyn Kernels) {
    let mut chance = Chance(1);
    for format in formats() {
        for k in [32, 96, 288, 512] {
            let stored = Stored::random(format, k, &mut chance);
            let bytes = stored.strip();
            assert_eq!(bytes.len(), format.strip(k).bytes, "{format:?}");
            let out = decoded(kernels, &stored, &bytes);
            for (i, &got) in out.iter().enumerate() {
                let (product, min) = stored.terms(i / 32, i % 32);
                // The product is exact in f64 and rounds once; a minimum is exact and its sum rounds once more.
                let exact = product + min;
                let bound = if min == 0.0 { U * exact.abs() } else { U * (product.abs() + exact.abs()) };
                close(got, exact, bound, format_args!("{format:?} k {} column {}", i / 32, i % 32));
                if min == 0.0 {
                    assert_eq!(got, exact as f32, "{format:?}");
                }
            }
            assert_eq!(
                bits(&out),
                bits(&decoded(&Scalar, &stored, &bytes)),
                "backends decode alike: {format:?}"
            );
            rows_agree(&stored, &out);
        }
    }
}

/// The row-major form of a column decodes to the strip's bits, cut to any length.
fn rows_agree(stored: &Stored, strip: &[f32]) {
    for (column, k) in [(0, stored.k), (31, stored.k), (13, stored.k - 5)] {
        let row = stored.row(column);
        assert_eq!(row.len(), stored.format.row(k).bytes);
        let mut out = vec![f32::NAN; k];
        decode_row(stored.format, k, &row, &mut out);
        let want: Vec<f32> = (0..k).map(|k| strip[k * 32 + column]).collect();
        assert_eq!(bits(&out), bits(&want), "{:?}", stored.format);
    }
}

pub fn decodes_tile_ranges_to_the_same_bits(kernels: &dyn Kernels) {
    let mut chance = Chance(2);
    for format in formats() {
        let stored = Stored::random(format, 13 * 32, &mut chance);
        let bytes = stored.strip();
        let whole = decoded(kernels, &stored, &bytes);
        for tiles in [0..1, 1..2, 7..9, 8..13, 5..5] {
            let mut part = vec![f32::NAN; tiles.len() * 1024];
            kernels.decode(Strip { format, k: stored.k, bytes: &bytes }, tiles.clone(), &mut part);
            assert_eq!(
                bits(&part),
                bits(&whole[tiles.start * 1024..tiles.end * 1024]),
                "{format:?} {tiles:?}"
            );
        }
    }
}

/// A product's operands; x has a wider stride than k, and out stands inside a wider matrix.
struct Product {
    rows: usize,
    k: usize,
    columns: usize,
    x: Vec<f32>,
    weights: Vec<f32>,
}

const MARGIN: usize = 3;
const UNTOUCHED: f32 = 12345.0;

impl Product {
    fn random(rows: usize, k: usize, columns: usize, seed: u64) -> Self {
        let mut chance = Chance(seed);
        let (x, weights) = (chance.reals(rows * (k + MARGIN)), chance.reals(k * 32));
        Self { rows, k, columns, x, weights }
    }

    fn x(&self) -> Rows<'_> {
        Rows { data: &self.x, stride: self.k + MARGIN, rows: self.rows }
    }

    /// Multiplies in parts of the given sizes, rows and k each used round and round; the columns between the margins.
    fn run(
        &self,
        kernels: &dyn Kernels,
        row_step: usize,
        k_steps: &[usize],
        start: Option<&[f32]>,
    ) -> Vec<f32> {
        let width = self.columns + 2 * MARGIN;
        let mut out = vec![UNTOUCHED; self.rows * width];
        if let Some(start) = start {
            for (row, start) in out.chunks_mut(width).zip(start.chunks(self.columns)) {
                row[MARGIN..MARGIN + self.columns].copy_from_slice(start);
            }
        }
        for first in (0..self.rows).step_by(row_step) {
            let rows = first..self.rows.min(first + row_step);
            let (mut k, mut steps) = (0, k_steps.iter().cycle());
            while k < self.k {
                let next = self.k.min(k + steps.next().expect("steps"));
                let mut whole = Block::new(&mut out, width);
                let block = whole.part(rows.clone(), MARGIN..MARGIN + self.columns);
                let chain = if k == 0 && start.is_none() { Chain::Start } else { Chain::Continue };
                let x = self.x().slice(rows.clone()).from_column(k);
                kernels.multiply(x, &self.weights[k * 32..next * 32], block, chain);
                k = next;
            }
        }
        let mut inner = Vec::new();
        for row in out.chunks(width) {
            inner.extend(&row[MARGIN..MARGIN + self.columns]);
            let margins = row[..MARGIN].iter().chain(&row[MARGIN + self.columns..]);
            assert!(margins.copied().all(|value| value == UNTOUCHED), "wrote beside the block");
        }
        inner
    }
}

pub fn multiplies_within_the_bound(kernels: &dyn Kernels) {
    let shapes = (1..14usize, 1..600usize, 1..33usize, any::<u64>());
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(96) });
    let checked = runner.run(&shapes, |(rows, k, columns, seed)| {
        let product = Product::random(rows, k, columns, seed);
        let start = Chance(!seed).reals(rows * columns);
        for start in [None, Some(&start[..])] {
            let out = product.run(kernels, rows, &[k], start);
            for (i, &got) in out.iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                let terms = (0..k).map(|k| {
                    f64::from(product.x().row(row)[k]) * f64::from(product.weights[k * 32 + column])
                });
                let first = start.map_or(0.0, |start| f64::from(start[i]));
                let (sum, size) =
                    terms.fold((first, first.abs()), |(sum, size), t| (sum + t, size + t.abs()));
                // A chain of k additions and k products: k + 1 roundings of at most all magnitudes together.
                close(
                    got,
                    sum,
                    (k + 1) as f64 * U * 1.01 * size,
                    format_args!("{rows}×{k}×{columns} at {row},{column}"),
                );
            }
        }
        Ok(())
    });
    checked.expect("within the bound");
}

pub fn chains_are_cut_nowhere(kernels: &dyn Kernels) {
    for (rows, k, columns) in
        [(1, 96, 32), (7, 96, 32), (96, 544, 32), (11, 1056, 20), (5, 77, 1), (4, 2048, 32)]
    {
        let product = Product::random(rows, k, columns, (rows * k) as u64);
        let whole = product.run(kernels, rows, &[k], None);
        for row_step in [1, 2, 3, 5, 64] {
            assert_eq!(bits(&product.run(kernels, row_step, &[k], None)), bits(&whole), "rows by {row_step}");
        }
        for k_steps in [&[32][..], &[64], &[1024], &[32, 96], &[256, 32, 64], &[1, 7]] {
            assert_eq!(bits(&product.run(kernels, 3, k_steps, None)), bits(&whole), "k by {k_steps:?}");
        }
        // Each column is a chain of its own: fewer columns, the same bits.
        let narrow =
            Product { columns: 1, x: product.x.clone(), weights: product.weights.clone(), ..product };
        let first: Vec<f32> = whole.chunks(columns).map(|row| row[0]).collect();
        assert_eq!(bits(&narrow.run(kernels, rows, &[k], None)), bits(&first));
    }
}

pub fn an_empty_product_is_zero_or_nothing(kernels: &dyn Kernels) {
    let mut out = vec![1.0; 64];
    let x = Rows { data: &[], stride: 0, rows: 2 };
    kernels.multiply(x, &[], Block::new(&mut out, 32), Chain::Continue);
    assert_eq!(out, [1.0; 64]);
    kernels.multiply(x, &[], Block::new(&mut out, 32), Chain::Start);
    assert_eq!(out, [0.0; 64]);
}
