//! The product of packed rows and one strip's decoded tiles.
//!
//! A register block is [`Dot::ROWS`] rows by [`Dot::VECTORS`] times 16 columns: its integer sums stay in registers over a
//! 32-block, its chains over all tiles. Neither the cut into blocks nor into calls changes a chain.

use super::super::{Chain, Decoded, Input};
use super::{CODES, Dot, HALF, TAIL, tile_words};
use crate::view::Block;
use estream_idl::address::TILE;
use estream_idl::format::Min;
use zerocopy::IntoBytes;

/// Vectors of a strip.
const VECTORS: usize = TILE / HALF;

/// Lines of memory that are wanted next, asked for a few at a time: all at once would stall on the misses under way.
struct Ahead<'a> {
    lines: core::slice::Iter<'a, [u8; 64]>,
    /// Lines a tile.
    step: usize,
}

impl Ahead<'_> {
    #[inline(always)]
    fn ask<D: Dot<QUAD>, const QUAD: usize>(&mut self, d: D) {
        for line in self.lines.by_ref().take(self.step) {
            d.prefetch(line);
        }
    }
}

/// What is multiplied.
#[derive(Clone, Copy)]
struct Operands<'a> {
    /// Packed rows, beginning with the tiles' first block.
    x: Input<'a>,
    /// The tiles, `stride` words each.
    tiles: &'a [f32],
    stride: usize,
    chain: Chain,
}

/// See [`super::super::Products::multiply`].
#[inline(always)]
pub(in super::super) fn multiply<D: Dot<QUAD>, const QUAD: usize>(
    d: D,
    x: Input<'_>,
    weights: Decoded<'_>,
    mut out: Block<'_>,
    chain: Chain,
) {
    let stride = tile_words(&weights.format);
    assert!(weights.words.len() == weights.k.div_ceil(TILE) * stride, "words of all tiles");
    assert!(out.columns() <= TILE, "a strip has 32 columns");
    assert!(x.count() == out.rows(), "as many rows in as out");
    let operands = Operands { x, tiles: weights.words, stride, chain };
    let lines = weights.ahead.as_chunks().0;
    let turns = out.rows().div_ceil(D::ROWS) * (VECTORS / D::VECTORS) * weights.k.div_ceil(TILE);
    let ahead = &mut Ahead { lines: lines.iter(), step: lines.len().div_ceil(turns.max(1)) };
    match (weights.format.sub_block, weights.format.min) {
        (TILE, Min::None) => rows::<D, QUAD, 1, false>(d, &operands, &mut out, ahead),
        (TILE, _) => rows::<D, QUAD, 1, true>(d, &operands, &mut out, ahead),
        (_, Min::None) => rows::<D, QUAD, 2, false>(d, &operands, &mut out, ahead),
        _ => rows::<D, QUAD, 2, true>(d, &operands, &mut out, ahead),
    }
}

/// All rows by all columns, with `SUBS` sub-blocks a tile and, if `MIN`, a minimum each.
#[inline(always)]
fn rows<D: Dot<QUAD>, const QUAD: usize, const SUBS: usize, const MIN: bool>(
    d: D,
    operands: &Operands<'_>,
    out: &mut Block<'_>,
    ahead: &mut Ahead<'_>,
) {
    let rows = out.rows();
    if D::VECTORS == VECTORS {
        let mut row = 0;
        while row < rows {
            // The last rows are cut so that none is alone: one row has too few sums to hide the dot product's latency.
            row += match (D::ROWS, rows - row) {
                (6, 6 | 8..) => block::<D, QUAD, 6, 2, SUBS, MIN>(d, operands, out, ahead, row, 0),
                (3.., 3 | 5..) => block::<D, QUAD, 3, 2, SUBS, MIN>(d, operands, out, ahead, row, 0),
                (_, 2..) => block::<D, QUAD, 2, 2, SUBS, MIN>(d, operands, out, ahead, row, 0),
                _ => block::<D, QUAD, 1, 2, SUBS, MIN>(d, operands, out, ahead, row, 0),
            };
        }
        return;
    }
    for first in 0..VECTORS {
        let mut row = 0;
        while row < rows {
            row += match (D::ROWS, rows - row) {
                (4, 4..) => block::<D, QUAD, 4, 1, SUBS, MIN>(d, operands, out, ahead, row, first),
                (3.., 3..) => block::<D, QUAD, 3, 1, SUBS, MIN>(d, operands, out, ahead, row, first),
                _ => block::<D, QUAD, 1, 1, SUBS, MIN>(d, operands, out, ahead, row, first),
            };
        }
    }
}

/// `R` rows from `row` on by `V` vectors of columns from vector `first` on; returns `R`.
#[inline(always)]
fn block<D, const QUAD: usize, const R: usize, const V: usize, const SUBS: usize, const MIN: bool>(
    d: D,
    operands: &Operands<'_>,
    out: &mut Block<'_>,
    ahead: &mut Ahead<'_>,
    row: usize,
    first: usize,
) -> usize
where
    D: Dot<QUAD>,
{
    let words = 2 * QUAD + TAIL;
    let count = operands.tiles.len() / operands.stride;
    let mut chains = [[d.splat(0.0); V]; R];
    let mut xs: [&[f32]; R] = [&[]; R];
    for (r, (chains, x)) in chains.iter_mut().zip(&mut xs).enumerate() {
        *x = &operands.x.row(row + r)[..count * words];
        if operands.chain == Chain::Continue {
            let row = out.row(row + r);
            for (v, chain) in chains.iter_mut().enumerate() {
                *chain = d.load(&columns(row, first + v));
            }
        }
    }
    for (t, tile) in operands.tiles.chunks_exact(operands.stride).enumerate() {
        ahead.ask(d);
        let (codes, factors) = tile.split_at(CODES);
        let codes: &[[[u8; 64]; VECTORS]; 8] = &codes.as_bytes().as_chunks().0.as_chunks().0.as_chunks().0[0];
        let factors: &[[f32; HALF]] = factors.as_chunks().0;
        let mut digits = [&[[0; QUAD]; 8]; R];
        let mut tails = [&[0.0; TAIL]; R];
        for ((x, digits), tail) in xs.iter().zip(&mut digits).zip(&mut tails) {
            let (block, rest) = x[t * words..][..words].split_at(2 * QUAD);
            *digits = &block.as_bytes().as_chunks().0.as_chunks().0[0];
            *tail = &rest.as_chunks().0[0];
        }
        let mut values = [[d.splat(0.0); V]; R];
        for sub in 0..SUBS {
            let mut sums = [[d.begin(0); V]; R];
            for (sums, tail) in sums.iter_mut().zip(&tails) {
                *sums = [d.begin(offset::<SUBS>(tail, sub)); V];
            }
            for quad in sub * 8 / SUBS..(sub + 1) * 8 / SUBS {
                // All columns of a row one after another: its digits are in registers no longer than that.
                let mut vectors = [d.word(0); V];
                for (v, vector) in vectors.iter_mut().enumerate() {
                    *vector = d.words(&codes[quad][first + v]);
                }
                for (sums, digits) in sums.iter_mut().zip(&digits) {
                    for (sums, &codes) in sums.iter_mut().zip(&vectors) {
                        *sums = d.dot(*sums, codes, &digits[quad]);
                    }
                }
            }
            for v in 0..V {
                let scale = d.load(&factors[VECTORS * sub + first + v]);
                for (values, sums) in values.iter_mut().zip(&sums) {
                    let value = d.mul(scale, d.values(d.total(sums[v])));
                    values[v] = if sub == 0 { value } else { d.add(values[v], value) };
                }
            }
        }
        for v in 0..V {
            if MIN {
                let mut mins = [d.splat(0.0); R];
                for sub in 0..SUBS {
                    let min = d.load(&factors[VECTORS * (SUBS + sub) + first + v]);
                    for (mins, tail) in mins.iter_mut().zip(&tails) {
                        let value = d.mul(min, d.splat(sum::<SUBS>(tail, sub)));
                        *mins = if sub == 0 { value } else { d.add(*mins, value) };
                    }
                }
                for (values, &min) in values.iter_mut().zip(&mins) {
                    values[v] = d.add(values[v], min);
                }
            }
            for ((chains, values), tail) in chains.iter_mut().zip(&values).zip(&tails) {
                chains[v] = d.add(chains[v], d.mul(d.splat(tail[0]), values[v]));
            }
        }
    }
    for (r, chains) in chains.iter().enumerate() {
        let row = out.row(row + r);
        for (v, &chain) in chains.iter().enumerate() {
            let at = (first + v) * HALF;
            if let Some(whole) = row.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                d.store(chain, whole);
            } else if let Some(rest) = row.get_mut(at..) {
                let mut some = [0.0; HALF];
                d.store(chain, &mut some);
                rest.copy_from_slice(&some[..rest.len()]);
            }
        }
    }
    R
}

/// Sixteen columns of a row of outputs; a strip at the right edge has fewer.
#[inline(always)]
fn columns(row: &[f32], vector: usize) -> [f32; HALF] {
    let mut columns = [0.0; HALF];
    match row.get(vector * HALF..) {
        Some(rest) if rest.len() >= HALF => columns.copy_from_slice(&rest[..HALF]),
        Some(rest) => columns[..rest.len()].copy_from_slice(rest),
        None => {}
    }
    columns
}

/// `−128·S` of a sub-block, or of the whole block.
#[inline(always)]
fn offset<const SUBS: usize>(tail: &[f32; TAIL], sub: usize) -> i32 {
    tail[1 + if SUBS == 1 { 2 } else { sub }].to_bits().cast_signed()
}

/// S of a sub-block, or of the whole block.
#[inline(always)]
fn sum<const SUBS: usize>(tail: &[f32; TAIL], sub: usize) -> f32 {
    tail[4 + if SUBS == 1 { 2 } else { sub }]
}
