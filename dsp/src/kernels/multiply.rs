//! The f32 product of rows and one decoded strip.
//!
//! Every output element is one chain: from zero (or from what the output holds) one multiply-add per k, k ascending.
//! A block of [`Lanes::ROWS`] rows by 32 columns keeps its chains in registers over a part of K whose weights fit the
//! first-level cache; between parts the chains rest in the output, which rounds nothing. Hence no cut by rows, by
//! registers or by K changes a bit, and the tails of one and two rows are the same code with fewer rows.
//!
//! Packing x into panels would save a broadcast's address arithmetic and cost a copy per strip: not taken, the kernel is
//! bound by its multiply-adds.

use super::lanes::{Eight, Lanes};
use super::{Chain, LANES};
use crate::view::{Block, Rows};
use estream_idl::address::TILE;

/// Vectors of a row of weights.
const VECTORS: usize = TILE / LANES;
/// k's of a part: 32 KiB of weights, which the first-level cache of today's cores just holds (128 and 64 were slower).
const PART: usize = 256;
/// k's that are multiplied between two checks of the slices' bounds.
const RUN: usize = 8;

/// One k of a strip.
type Row = [Eight; VECTORS];

/// `out (+)= x · weights`; see [`super::Kernels::multiply`].
#[inline(always)]
pub(super) fn multiply<L: Lanes>(l: L, x: Rows<'_>, weights: &[f32], mut out: Block<'_>, chain: Chain) {
    let (vectors, rest) = weights.as_chunks::<LANES>();
    let (weights, odd) = vectors.as_chunks::<VECTORS>();
    assert!(rest.is_empty() && odd.is_empty(), "weights are rows of 32 columns");
    assert!(out.columns() <= TILE, "a strip has 32 columns");
    assert!(x.rows == out.rows(), "as many rows in as out");
    if weights.is_empty() && chain == Chain::Start {
        for row in 0..out.rows() {
            out.row(row).fill(0.0);
        }
    }
    let mut chain = chain;
    for (part, weights) in weights.chunks(PART).enumerate() {
        let mut row = 0;
        while row < x.rows {
            let at = Place { row, k: part * PART, chain };
            // Four rows are two and two: one row alone has too few chains to hide the adder's latency.
            row += match (x.rows - row, L::ROWS) {
                (1, _) | (_, 1) => block::<L, 1>(l, x, weights, &mut out, at),
                (2 | 4, _) | (_, 2) => block::<L, 2>(l, x, weights, &mut out, at),
                _ => block::<L, 3>(l, x, weights, &mut out, at),
            };
        }
        chain = Chain::Continue;
    }
}

/// Where a block begins.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    k: usize,
    chain: Chain,
}

/// `R` rows by 32 columns over one part; returns `R`.
#[inline(always)]
fn block<L: Lanes, const R: usize>(
    l: L,
    x: Rows<'_>,
    weights: &[Row],
    out: &mut Block<'_>,
    at: Place,
) -> usize {
    let mut sums = [[l.splat(0.0); VECTORS]; R];
    let mut rows: [&[f32]; R] = [&[]; R];
    for (r, (sums, x_row)) in sums.iter_mut().zip(&mut rows).enumerate() {
        *x_row = &x.row(at.row + r)[at.k..at.k + weights.len()];
        if at.chain == Chain::Continue {
            let mut held = [0.0; TILE];
            let row = out.row(at.row + r);
            held[..row.len()].copy_from_slice(row);
            for (sum, eight) in sums.iter_mut().zip(held.as_chunks().0) {
                *sum = l.load(eight);
            }
        }
    }
    let (runs, tail) = weights.as_chunks::<RUN>();
    for (i, run) in runs.iter().enumerate() {
        let mut xs = [&[0.0; RUN]; R];
        for (x, row) in xs.iter_mut().zip(&rows) {
            *x = &row.as_chunks().0[i];
        }
        for (j, weights) in run.iter().enumerate() {
            step(l, &mut sums, weights, &xs, j);
        }
    }
    for (i, weights) in tail.iter().enumerate() {
        let mut xs = [&[0.0]; R];
        for (x, row) in xs.iter_mut().zip(&rows) {
            *x = &row.as_chunks().0[runs.len() * RUN + i];
        }
        step(l, &mut sums, weights, &xs, 0);
    }
    for (r, sums) in sums.iter().enumerate() {
        let mut done = [0.0; TILE];
        for (&sum, eight) in sums.iter().zip(done.as_chunks_mut().0) {
            l.store(sum, eight);
        }
        let row = out.row(at.row + r);
        row.copy_from_slice(&done[..row.len()]);
    }
    R
}

/// One multiply-add of every chain.
#[inline(always)]
fn step<L: Lanes, const R: usize, const N: usize>(
    l: L,
    sums: &mut [[L::F; VECTORS]; R],
    weights: &Row,
    xs: &[&[f32; N]; R],
    j: usize,
) {
    for (v, weights) in weights.iter().enumerate() {
        let weights = l.load(weights);
        for (sums, x) in sums.iter_mut().zip(xs) {
            sums[v] = l.mul_add(l.splat(x[j]), weights, sums[v]);
        }
    }
}
