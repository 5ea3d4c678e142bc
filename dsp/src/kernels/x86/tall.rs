//! The f32 product in 512-bit registers: eight rows by 32 columns at a time.
//!
//! On the cores at hand such a register is multiplied as two halves, so the peak is that of AVX2. What is gained is room:
//! sixteen chains and the row of weights that they share stay in registers, which halves the loads of weights and, for the
//! short products of attention, the times that chains are taken up and laid down. The chains are those of
//! [`multiply`](super::super::multiply), to the bit.

use super::super::Chain;
use crate::view::{Block, Rows};
use core::arch::x86_64::*;
use estream_idl::address::TILE;

/// Columns of a register.
const HALF: usize = TILE / 2;
/// k's of a part: 32 KiB of weights, which the first-level cache just holds.
const PART: usize = 256;
/// k's between two checks of the slices' bounds.
const RUN: usize = 8;

/// `out (+)= x · weights`; see [`super::super::Kernels::multiply`].
#[target_feature(enable = "avx512f")]
pub(super) fn multiply(x: Rows<'_>, weights: &[f32], mut out: Block<'_>, chain: Chain) {
    let (weights, odd) = weights.as_chunks::<TILE>();
    assert!(odd.is_empty(), "weights are rows of 32 columns");
    assert!(out.columns() <= TILE, "a strip has 32 columns");
    assert!(x.rows == out.rows(), "as many rows in as out");
    if weights.is_empty() && chain == Chain::Start {
        for row in 0..out.rows() {
            out.row(row).fill(0.0);
        }
    }
    let mut chain = chain;
    for (part, weights) in weights.chunks(PART).enumerate() {
        let (mut row, k) = (0, part * PART);
        while row < x.rows {
            row += match x.rows - row {
                8.. => block::<8>(x, weights, &mut out, row, k, chain),
                4.. => block::<4>(x, weights, &mut out, row, k, chain),
                2.. => block::<2>(x, weights, &mut out, row, k, chain),
                _ => block::<1>(x, weights, &mut out, row, k, chain),
            };
        }
        chain = Chain::Continue;
    }
}

/// `R` rows from `row` on by 32 columns over the k's of one part, the first of them `k`; returns `R`.
#[inline]
#[target_feature(enable = "avx512f")]
fn block<const R: usize>(
    x: Rows<'_>,
    weights: &[[f32; TILE]],
    out: &mut Block<'_>,
    row: usize,
    k: usize,
    chain: Chain,
) -> usize {
    let mut sums = [[_mm512_setzero_ps(); 2]; R];
    let mut rows: [&[f32]; R] = [&[]; R];
    for (r, (sums, x_row)) in sums.iter_mut().zip(&mut rows).enumerate() {
        *x_row = &x.row(row + r)[k..k + weights.len()];
        if chain == Chain::Continue {
            let row = &*out.row(row + r);
            *sums = match row.try_into() {
                Ok(row) => load(row),
                Err(_) => load(&padded(row)),
            };
        }
    }
    let (runs, tail) = weights.as_chunks::<RUN>();
    for (i, run) in runs.iter().enumerate() {
        let mut xs = [&[0.0; RUN]; R];
        for (x, row) in xs.iter_mut().zip(&rows) {
            *x = &row.as_chunks().0[i];
        }
        for (j, weights) in run.iter().enumerate() {
            step(&mut sums, weights, &xs, j);
        }
    }
    for (i, weights) in tail.iter().enumerate() {
        let mut xs = [&[0.0]; R];
        for (x, row) in xs.iter_mut().zip(&rows) {
            *x = &row.as_chunks().0[runs.len() * RUN + i];
        }
        step(&mut sums, weights, &xs, 0);
    }
    for (r, sums) in sums.iter().enumerate() {
        let row = out.row(row + r);
        if let Ok(row) = row.try_into() {
            store(*sums, row);
        } else {
            let mut done = [0.0; TILE];
            store(*sums, &mut done);
            row.copy_from_slice(&done[..row.len()]);
        }
    }
    R
}

/// The columns of a narrow row, then zeros.
fn padded(row: &[f32]) -> [f32; TILE] {
    let mut padded = [0.0; TILE];
    padded[..row.len()].copy_from_slice(row);
    padded
}

/// One multiply-add of every chain.
#[inline]
#[target_feature(enable = "avx512f")]
fn step<const R: usize, const N: usize>(
    sums: &mut [[__m512; 2]; R],
    weights: &[f32; TILE],
    xs: &[&[f32; N]; R],
    j: usize,
) {
    let weights = load(weights);
    for (sums, x) in sums.iter_mut().zip(xs) {
        let x = _mm512_set1_ps(x[j]);
        *sums = [_mm512_fmadd_ps(x, weights[0], sums[0]), _mm512_fmadd_ps(x, weights[1], sums[1])];
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(row: &[f32; TILE]) -> [__m512; 2] {
    // SAFETY: sixteen elements each, inside the row.
    unsafe { [_mm512_loadu_ps(row.as_ptr()), _mm512_loadu_ps(row[HALF..].as_ptr())] }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(sums: [__m512; 2], row: &mut [f32; TILE]) {
    // SAFETY: sixteen elements each, inside the row.
    unsafe {
        _mm512_storeu_ps(row.as_mut_ptr(), sums[0]);
        _mm512_storeu_ps(row[HALF..].as_mut_ptr(), sums[1]);
    }
}
