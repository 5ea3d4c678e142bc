//! Rows of f32 into the matrix unit's activation tiles, by all threads of the pool.
//!
//! A task is a row pair over all of its k-tiles. Rows of whole vectors at their borders, which all are but in odd shapes, go
//! through the loops of [`crate::kernels::hexagon::gather`]; any other pair, and what fills a last tile up, one by one.

use super::Machine;
use super::layout::{Operand, TILE_BYTES};
use super::operator::Context;
use super::pad::Pad;
use crate::kernels::hexagon::decode::PAIRS;
use crate::kernels::hexagon::gather::pack_rows;
use crate::kernels::hexagon::hvx::{self, FLOATS, V, splat_f, zero};
use crate::kernels::hexagon::tiles::{self, Exponent};
use crate::pipeline::CHAIN_TILES;
use crate::platform::working_for;
use estream_idl::address::TILE;
use estream_idl::operator::Operator;

/// Bytes of a vector.
const VECTOR: usize = size_of::<V>();

/// Packs rows into tiles, each raised by its own power of two, which goes to the i32 at `exponents`. Rows past the last
/// are zeros up to a whole tile.
pub(super) fn gather<'r>(
    Context { machine, pad, pool }: Context<'_>,
    exponents: usize,
    to: Operand,
    rows: usize,
    row: &(dyn Fn(usize) -> Option<&'r [f32]> + Sync),
) {
    let pairs = rows.div_ceil(TILE) * PAIRS;
    let body = |_, pair: usize| {
        // SAFETY: the two rows' exponents are this task's, before anybody reads them.
        let held = unsafe { pad.slice_mut::<Exponent>(exponents + 8 * pair, 2) };
        let rows = [row(2 * pair), row(2 * pair + 1)];
        let whole = rows.map(|row| row.and_then(whole).filter(|row| row.len() == to.tiles));
        let [Some(a), Some(b)] = whole else {
            return gather_loose(machine, pad, held, to, pair, rows);
        };
        let [Some(ea), Some(eb)] = [Exponent::of(a), Exponent::of(b)] else {
            return gather_loose(machine, pad, held, to, pair, rows);
        };
        held.copy_from_slice(&[ea, eb]);
        let powers = [ea, eb].map(|exponent| splat_f(exponent.power(1, 0)));
        for chain in 0..to.chains() {
            let (first, count) = (chain * CHAIN_TILES, to.chain_tiles(chain));
            let (at, stride) = pad.column(place(to, pair, chain), TILE_BYTES, count).raw();
            let range = first..first + count;
            // SAFETY: the vectors of a row pair are this task's alone.
            unsafe { pack_rows([&a[range.clone()], &b[range]], powers, at, stride) };
        }
    };
    working_for(Operator::Gather, || pool.run(pairs, &body));
}

/// Byte offset of row pair `pair` in the first tile of chain `chain`.
const fn place(to: Operand, pair: usize, chain: usize) -> usize {
    to.chain(pair / PAIRS, chain) + pair % PAIRS * VECTOR
}

/// The vectors of a row that is nothing but whole ones at their borders.
#[inline(always)]
fn whole(row: &[f32]) -> Option<&[V]> {
    if row.len().is_multiple_of(FLOATS) { hvx::row(row) } else { None }
}

/// Packs two rows of which one is absent, not finite, or not in whole vectors.
#[cold]
#[inline(never)]
fn gather_loose(
    machine: &Machine,
    pad: Pad<'_>,
    held: &mut [Exponent],
    to: Operand,
    pair: usize,
    rows: [Option<&[f32]>; 2],
) {
    let mut powers = [zero(); 2];
    for ((row, held), power) in rows.iter().zip(held).zip(&mut powers) {
        let exponent = row.map_or(Some(Exponent(0)), exponent);
        if exponent.is_none() {
            Machine::add(&machine.rows, 1);
        }
        *held = exponent.unwrap_or_default();
        *power = splat_f(held.power(1, 0));
    }
    for chain in 0..to.chains() {
        let (first, count) = (chain * CHAIN_TILES, to.chain_tiles(chain));
        let tile = |tile| tiles::pack(rows.map(|row| row.map_or(zero(), |row| vector(row, tile))), powers);
        // SAFETY: the vectors of a row pair are this task's alone.
        unsafe {
            pad.column(place(to, pair, chain), TILE_BYTES, count).fill((first..first + count).map(tile))
        };
    }
}

/// The exponent of a row, wherever it begins and however long it is.
fn exponent(row: &[f32]) -> Option<Exponent> {
    match whole(row) {
        Some(vectors) => Exponent::of(vectors),
        None => {
            let largest = row.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff));
            Exponent::of_magnitude(largest)
        }
    }
}

/// The 32 elements of a row that belong to a k-tile; zeros past the row's end.
#[inline(always)]
pub(super) fn vector(row: &[f32], tile: usize) -> V {
    if let Some(v) = hvx::row(row).and_then(|vectors| vectors.get(tile)) {
        return *v;
    }
    let mut full = [0.0; FLOATS];
    let tail = row.get(tile * FLOATS..).unwrap_or(&[]);
    let count = tail.len().min(FLOATS);
    full[..count].copy_from_slice(&tail[..count]);
    hvx::load(&full)
}
