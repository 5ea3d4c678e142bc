//! Causal attention on the matrix unit: scores and mixtures over key blocks of 64, the softmax between them on vectors.
//!
//! Query rows are taken in tiles of 32 positions of one request and one head, counted from position 0, so that all rows of
//! a tile see the same key blocks. For each block, QKᵀ and PV are two products; keys and values become fp16 tiles with a
//! power of two that depends on their own request's block alone, queries one that depends on their own row alone, and P is
//! fp16 up to 2^8. Running maximum, sum and accumulator of a row are f32 and belong to the vector unit: what the matrix unit
//! gives is a block's own contribution. Neither the cut into chunks nor a neighbour in the batch changes a bit (law 1 c).
//!
//! The heads that share keys go through a block together. Phases alternate between the unit's owner and all threads
//! (scores; softmax; mixtures; sums): a prefill's attention is a small part of its work below some thousand tokens, and
//! the table of the gated units would not fit its recurrence.

use super::Machine;
use super::layout::{CHAIN_BYTES, Operand, Placer, TILE_BYTES, chain_align, chains};
use super::operator::{Context, gather};
use crate::batch::{KEY_BLOCK, RequestSpan};
use crate::kernels::hexagon::decode::PAIRS;
use crate::kernels::hexagon::gather as rows;
use crate::kernels::hexagon::hvx::{self, V, float, lift, mul, splat_f, zero};
use crate::kernels::hexagon::softmax::{self, Running};
use crate::kernels::hexagon::tiles::{self, Exponent};
use crate::platform::working_for;
use crate::view::{Grid, Rows};
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::operator::Operator;
use estream_idl::recipe::Attention;

const VECTOR: usize = size_of::<V>();
/// k-tiles of a block's values, and strips of its keys.
const HALVES: usize = KEY_BLOCK / TILE;

/// Rows that are written side by side; a tile has a multiple of them.
const BESIDE: usize = 8;

/// Where a chunk of query tiles stands in the scratchpad.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Query tiles of a chunk.
    tiles: usize,
    /// An i32 a row of queries.
    exponents: usize,
    /// Two i32 a key block: keys', values'.
    blocks: usize,
    queries: Operand,
    /// Two strips of the key width.
    keys: [usize; HALVES],
    /// Strips of two k-tiles.
    values: usize,
    /// Two tiles a query tile.
    scores: usize,
    weights: Operand,
    /// A tile a query tile and value strip.
    mixed: usize,
    /// 32 rows of f32 a query tile and value strip.
    sums: usize,
    /// What [`Running`] holds, a query tile.
    state: usize,
    bytes: usize,
}

impl Layout {
    fn place(attention: &Attention, blocks: usize, tiles: usize) -> Self {
        let [key, value] =
            [attention.key_width, attention.value_width].map(|width| (width as usize).div_ceil(TILE));
        let mut placer = Placer::after_bias();
        let exponents = placer.take(tiles * TILE * 4, VECTOR);
        let blocks = placer.take(blocks * 8, VECTOR);
        let state = placer.take(tiles * size_of::<Running>(), VECTOR);
        let sums = placer.take(tiles * TILE * value * VECTOR, VECTOR);
        let scores = placer.take(tiles * HALVES * TILE_BYTES, TILE_BYTES);
        let mixed = placer.take(tiles * value * TILE_BYTES, TILE_BYTES);
        let values = placer.take(value * HALVES * TILE_BYTES, HALVES * TILE_BYTES);
        let strip = key * TILE_BYTES;
        let keys = [(); HALVES].map(|()| placer.take(strip, chain_align(strip).min(CHAIN_BYTES)));
        let weights = placer.operand(HALVES, tiles);
        let queries = placer.operand(key, tiles);
        let bytes = placer.end();
        Self { tiles, exponents, blocks, queries, keys, values, scores, weights, mixed, sums, state, bytes }
    }

    /// As many of `wanted` tiles as fit; the smallest layout where not even one does.
    fn new(attention: &Attention, blocks: usize, wanted: usize, budget: usize) -> Self {
        let fits = |tiles: &usize| Self::place(attention, blocks, *tiles).bytes <= budget;
        let tiles = (1..=wanted.max(1)).rev().find(fits).unwrap_or(1);
        Self::place(attention, blocks, tiles)
    }
}

/// The least scratchpad that attention over requests of up to `tokens` tokens needs.
#[must_use]
pub fn least_bytes(attention: &Attention, tokens: usize) -> usize {
    Layout::place(attention, tokens.div_ceil(KEY_BLOCK), 1).bytes
}

/// One request's attention through one key head, bound to its operands.
struct Head<'a> {
    context: Context<'a>,
    layout: Layout,
    attention: &'a Attention,
    span: &'a RequestSpan,
    kv_head: usize,
    queries: Rows<'a>,
    /// The head's transposed blocks, from the request's first on.
    keys: &'a [f32],
    /// The head's value strips, `[strip][token][32]`.
    values: &'a [f32],
    /// Tokens of a value strip.
    tokens: usize,
    out: &'a Grid<'a>,
}

/// Attends: `out[t][head · value_width..]` for all tokens; arguments as [`crate::attention::Pass::attend`] has them.
pub fn attend(
    context: Context<'_>,
    attention: &Attention,
    spans: &[RequestSpan],
    queries: Rows<'_>,
    keys: &[f32],
    values: &[f32],
    tokens: usize,
    out: &Grid<'_>,
) {
    let all_blocks = spans.last().map_or(0, |span| span.first_block as usize + blocks(span));
    let block = KEY_BLOCK * attention.key_width as usize;
    let heads = (attention.heads / attention.kv_heads) as usize;
    for span in spans {
        let wanted = heads * (span.tokens as usize).div_ceil(TILE);
        let layout = Layout::new(attention, blocks(span), wanted, context.pad.bytes());
        for kv_head in 0..attention.kv_heads as usize {
            let value = attention.value_width as usize * tokens;
            let head = Head {
                context,
                layout,
                attention,
                span,
                kv_head,
                queries,
                keys: &keys[(kv_head * all_blocks + span.first_block as usize) * block..],
                values: &values[kv_head * value..(kv_head + 1) * value],
                tokens,
                out,
            };
            head.measure();
            for first in (0..wanted).step_by(layout.tiles) {
                head.chunk(first..wanted.min(first + layout.tiles));
            }
        }
    }
}

fn blocks(span: &RequestSpan) -> usize {
    (span.tokens as usize).div_ceil(KEY_BLOCK)
}

impl Head<'_> {
    fn group(&self) -> usize {
        (self.attention.heads / self.attention.kv_heads) as usize
    }

    fn value_strips(&self) -> usize {
        self.attention.value_width as usize / TILE
    }

    /// The first position of a query tile, and its head.
    fn tile(&self, tile: usize) -> (usize, usize) {
        (tile / self.group() * TILE, self.kv_head * self.group() + tile % self.group())
    }

    /// Halves of a block that a query tile sees anything of.
    fn halves_seen(&self, tile: usize, block: usize) -> usize {
        HALVES.min((self.tile(tile).0 - block * KEY_BLOCK) / TILE + 1)
    }

    /// Keys of a block that exist.
    fn present(&self, block: usize) -> usize {
        KEY_BLOCK.min(self.span.tokens as usize - block * KEY_BLOCK)
    }

    /// The f32 rows of a half of a key block: an input each, 32 keys.
    fn key_rows(&self, block: usize, half: usize) -> &[f32] {
        let width = self.attention.key_width as usize;
        &self.keys[(block * HALVES + half) * width * TILE..][..width * TILE]
    }

    /// The f32 rows of a value strip in a block: a key each, 32 values.
    fn value_rows(&self, block: usize, strip: usize) -> &[f32] {
        let token = self.span.first as usize + block * KEY_BLOCK;
        &self.values[(strip * self.tokens + token) * TILE..][..self.present(block) * TILE]
    }

    /// The exponents of all blocks' keys and values.
    fn measure(&self) {
        let Context { machine, pad, pool } = self.context;
        pool.run(blocks(self.span), &|_, block| {
            // SAFETY: the block's exponents are this task's, before anybody reads them.
            let held = unsafe { pad.slice_mut::<i32>(self.layout.blocks + 8 * block, 2) };
            let keys = (0..HALVES).map(|half| largest(self.key_rows(block, half))).max();
            let values = (0..self.value_strips()).map(|strip| largest(self.value_rows(block, strip))).max();
            for (held, bits) in held.iter_mut().zip([keys, values]) {
                let exponent = Exponent::of_magnitude(bits.unwrap_or(0));
                Machine::add(&machine.rows, u32::from(exponent.is_none()));
                *held = exponent.unwrap_or_default().0;
            }
        });
    }

    fn block_exponents(&self, block: usize) -> [Exponent; 2] {
        // SAFETY: written by `measure`, which has ended.
        let held = unsafe { self.context.pad.slice::<i32>(self.layout.blocks + 8 * block, 2) };
        [Exponent(held[0]), Exponent(held[1])]
    }

    /// Query tiles `chunk` against all blocks that they see.
    fn chunk(&self, chunk: Range<usize>) {
        let Context { pool, .. } = self.context;
        let (layout, count) = (&self.layout, chunk.len());
        let width = self.attention.key_width as usize;
        let row = |row: usize| {
            let (position, head) = self.tile(chunk.start + row / TILE);
            let position = position + row % TILE;
            let inside = position < self.span.tokens as usize;
            inside.then(|| &self.queries.row(self.span.first as usize + position)[head * width..][..width])
        };
        gather(self.context, layout.exponents, layout.queries, count * TILE, &row);
        pool.run(count, &|_, tile| {
            // SAFETY: a tile's state and sums are its task's, phase after phase.
            unsafe {
                *self.running(tile) = Running::new();
                (0..self.value_strips()).for_each(|strip| self.sums(tile, strip).fill(zero()));
            }
        });
        let (last, _) = self.tile(chunk.end - 1);
        for block in 0..=last / KEY_BLOCK {
            // Tiles before the block's first key have finished: the block does not exist for them.
            let active =
                (chunk.clone().find(|&tile| self.tile(tile).0 / KEY_BLOCK >= block)).unwrap_or(chunk.end);
            let tiles = active - chunk.start..count;
            self.load(block);
            self.score(chunk.start, tiles.clone(), block);
            let weigh = |_, tile: usize| self.weigh(chunk.start, tiles.start + tile, block);
            working_for(Operator::Softmax, || pool.run(tiles.len(), &weigh));
            self.mix(chunk.start, tiles.clone(), block);
            pool.run(tiles.len(), &|_, tile| self.accumulate(tiles.start + tile, block));
        }
        pool.run(count, &|_, tile| self.finish(chunk.start, tile));
    }

    /// Makes a block's keys and values tiles.
    fn load(&self, block: usize) {
        let Context { pad, pool, .. } = self.context;
        let (key_tiles, layout) = (self.layout.queries.tiles, &self.layout);
        let powers = self.block_exponents(block).map(|exponent| splat_f(exponent.power(1, 0)));
        let keys = HALVES * key_tiles;
        pool.run(keys + HALVES * self.value_strips(), &|_, task| {
            let (rows, tile, to, power) = if task < keys {
                let (half, tile) = (task / key_tiles, task % key_tiles);
                (self.key_rows(block, half), tile, layout.keys[half] + tile * TILE_BYTES, powers[0])
            } else {
                let (strip, tile) = ((task - keys) / HALVES, (task - keys) % HALVES);
                let to = layout.values + (task - keys) * TILE_BYTES;
                (self.value_rows(block, strip), tile, to, powers[1])
            };
            // SAFETY: the tile is this task's, and the unit has ended with the block before.
            let to = unsafe { pad.slice_mut::<V>(to, PAIRS) };
            let inputs = tile * TILE..(tile + 1) * TILE;
            if let Some(rows) = hvx::row(rows).and_then(|rows| rows.get(inputs.clone())) {
                for (to, &rows) in to.iter_mut().zip(rows.as_chunks::<2>().0) {
                    *to = tiles::pack(rows, [power; 2]);
                }
                return;
            }
            let (rows, _) = rows.as_chunks::<TILE>();
            let row = |k: usize| rows.get(k).map_or(zero(), hvx::load);
            for (to, k) in to.iter_mut().zip(inputs.step_by(2)) {
                *to = tiles::pack([row(k), row(k + 1)], [power; 2]);
            }
        });
    }

    /// QKᵀ of a block for query tiles of the chunk.
    fn score(&self, chunk: usize, tiles: Range<usize>, block: usize) {
        let Context { machine, pad, .. } = self.context;
        let (mut units, layout) = (machine.units.lock(), &self.layout);
        for tile in tiles {
            for (half, &keys) in layout.keys.iter().take(self.halves_seen(chunk + tile, block)).enumerate() {
                units.clear();
                for (chain, (count, range)) in chains(keys, layout.queries.tiles).enumerate() {
                    let queries = pad.address(layout.queries.chain(tile, chain));
                    units.multiply(queries, pad.address(range.start), count);
                }
                units.store(pad.address(layout.scores + (tile * HALVES + half) * TILE_BYTES));
            }
        }
    }

    /// PV of a block for query tiles of the chunk.
    fn mix(&self, chunk: usize, tiles: Range<usize>, block: usize) {
        let Context { machine, pad, .. } = self.context;
        let (mut units, layout, strips) = (machine.units.lock(), &self.layout, self.value_strips());
        for tile in tiles {
            let halves = self.halves_seen(chunk + tile, block);
            for strip in 0..strips {
                units.clear();
                let weights = pad.address(layout.weights.chain(tile, 0));
                units.multiply(weights, pad.address(layout.values + strip * HALVES * TILE_BYTES), halves);
                units.store(pad.address(layout.mixed + (tile * strips + strip) * TILE_BYTES));
            }
        }
    }

    /// The online softmax of a tile over a block; its weights become a part of P.
    fn weigh(&self, chunk: usize, tile: usize, block: usize) {
        let (pad, layout) = (self.context.pad, &self.layout);
        let halves = self.halves_seen(chunk + tile, block);
        let [keys, _] = self.block_exponents(block);
        // The rows stand beside keys of their own positions in the last half that they see, or in a later block.
        let (position, _) = self.tile(chunk + tile);
        let triangle = position < (block * HALVES + halves) * TILE;
        // SAFETY: the scores were stored before the pool began, and are not begun anew before it has ended; exponents are
        // written by `gather`, which has ended; weights and state of a tile are this task's.
        unsafe {
            let scores = pad.slice::<softmax::Tile>(layout.scores + tile * HALVES * TILE_BYTES, halves);
            let weights = pad.slice_mut::<softmax::Tile>(layout.weights.chain(tile, 0), halves);
            let exponents = pad.read(layout.exponents + tile * VECTOR);
            let factors = softmax::factors(exponents, keys.power(-1, 0), self.attention.scale);
            let mut seen = zero();
            softmax::weigh(scores, triangle, factors, self.running(tile), weights, &mut seen);
            self.watch(seen, scores);
        }
    }

    /// Adds a block's mixture to the sums of a tile.
    fn accumulate(&self, tile: usize, block: usize) {
        let (layout, strips) = (&self.layout, self.value_strips());
        let [_, values] = self.block_exponents(block);
        let fall = lift(splat_f(values.power(-1, 0)));
        for strip in 0..strips {
            // SAFETY: the mixture was stored before the pool began, and is not begun anew before it has ended; state and
            // sums of a tile are this task's.
            unsafe {
                let at = layout.mixed + (tile * strips + strip) * TILE_BYTES;
                let mixed = self.context.pad.slice::<softmax::Tile>(at, 1);
                let mut seen = zero();
                softmax::accumulate(&mixed[0], fall, self.running(tile), self.sums(tile, strip), &mut seen);
                self.watch(seen, mixed);
            }
        }
    }

    /// Counts what the unit has saturated in tiles whose magnitudes are `seen`; what is in no tile counts once.
    fn watch(&self, seen: V, tiles: &[softmax::Tile]) {
        if tiles::saturated(seen) {
            let over: u32 = tiles.iter().map(|tile| tiles::count_saturated(&tile[..])).sum();
            Machine::add(&self.context.machine.saturated, over.max(1));
        }
    }

    /// Writes a tile's results.
    fn finish(&self, chunk: usize, tile: usize) {
        let (position, head) = self.tile(chunk + tile);
        let (first, width) = (self.span.first as usize + position, self.attention.value_width as usize);
        let count = TILE.min(self.span.tokens as usize - position);
        // SAFETY: state and sums of a tile, and the columns of its tokens and head, are this task's.
        unsafe {
            let inverses = self.running(tile).inverse();
            let mut out = self.out.block(first..first + count, head * width..(head + 1) * width);
            for strip in 0..self.value_strips() {
                let sums = self.sums(tile, strip);
                // Several rows side by side, as a row's words wait for each other.
                for first in (0..count).step_by(BESIDE) {
                    let scaled: [V; BESIDE] = core::array::from_fn(|row| {
                        let inverse = splat_f(f32::from_bits(inverses[first + row]));
                        float(mul(sums[first + row], inverse))
                    });
                    for (row, scaled) in (first..count).zip(scaled) {
                        hvx::store(scaled, &mut out.row(row).as_chunks_mut::<TILE>().0[strip]);
                    }
                }
            }
        }
    }

    /// A tile's sums of a value strip.
    ///
    /// # Safety
    /// Nobody else reads or writes them meanwhile.
    #[allow(clippy::mut_from_ref)]
    unsafe fn sums(&self, tile: usize, strip: usize) -> &mut [V; TILE] {
        let at = self.layout.sums + (tile * self.value_strips() + strip) * TILE * VECTOR;
        // SAFETY: the caller's contract.
        unsafe { &mut self.context.pad.slice_mut(at, 1)[0] }
    }

    /// A tile's running numbers.
    ///
    /// # Safety
    /// As [`Self::sums`].
    #[allow(clippy::mut_from_ref)]
    unsafe fn running(&self, tile: usize) -> &mut Running {
        // SAFETY: the caller's contract.
        unsafe { &mut self.context.pad.slice_mut(self.layout.state + tile * size_of::<Running>(), 1)[0] }
    }
}

/// The bits of the largest magnitude of rows of whole vectors.
fn largest(rows: &[f32]) -> u32 {
    if let Some(rows) = hvx::row(rows) {
        return hvx::largest_w(rows::largest(rows));
    }
    rows.iter().fold(0, |top, x| top.max(x.to_bits() & 0x7fff_ffff))
}
