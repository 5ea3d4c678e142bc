//! Causal attention on the matrix unit: scores and mixtures over key blocks of 64, the softmax between them on vectors.
//!
//! Query rows are taken in tiles of 32 positions of one request and one head, counted from position 0, so that all rows of
//! a tile see the same key blocks. For each block, QKᵀ and PV are two products; keys and values become fp16 tiles with a
//! power of two that depends on their own request's block alone, queries one that depends on their own row alone, and P is
//! fp16 below 1. Running maximum, sum and accumulator of a row are f32 and belong to the vector unit: what the matrix unit
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
use crate::kernels::hexagon::float::exp;
use crate::kernels::hexagon::hvx::{
    self, Q, V, add, add_q, add_qv, from_words, lift, max_sf, mul, mul_q, narrow, rotate, splat, splat_f,
    sub, where_gt_w, widen, zero,
};
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
/// What stands for a key that a row does not see: its exponential is 0 beside any score.
const UNSEEN: f32 = -1e30;

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
    /// f32 rows of the value width.
    sums: usize,
    /// Three vectors a row: maximum, sum, decay.
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
        let state = placer.take(tiles * TILE * 3 * VECTOR, VECTOR);
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
        let Context { pad, pool, .. } = self.context;
        let (layout, count) = (&self.layout, chunk.len());
        let width = self.attention.key_width as usize;
        let row = |row: usize| {
            let (position, head) = self.tile(chunk.start + row / TILE);
            let position = position + row % TILE;
            let inside = position < self.span.tokens as usize;
            inside.then(|| &self.queries.row(self.span.first as usize + position)[head * width..][..width])
        };
        gather(self.context, layout.exponents, layout.queries, count * TILE, &row);
        pool.run(count * TILE, &|_, row| {
            self.set_state(row, [splat_f(UNSEEN), zero(), zero()]);
            for strip in 0..self.value_strips() {
                // SAFETY: the row's sums are this task's.
                unsafe { pad.write(self.sum(row, strip), zero()) };
            }
        });
        let (last, _) = self.tile(chunk.end - 1);
        for block in 0..=last / KEY_BLOCK {
            // Tiles before the block's first key have finished: the block does not exist for them.
            let active =
                (chunk.clone().find(|&tile| self.tile(tile).0 / KEY_BLOCK >= block)).unwrap_or(chunk.end);
            let tiles = active - chunk.start..count;
            self.load(block);
            self.score(tiles.clone());
            let pairs = tiles.len() * PAIRS;
            let weigh = |_, pair: usize| self.weigh(chunk.start, tiles.start * PAIRS + pair, block);
            working_for(Operator::Softmax, || pool.run(pairs, &weigh));
            self.mix(tiles.clone());
            pool.run(pairs, &|_, pair| self.accumulate(tiles.start * PAIRS + pair, block));
        }
        pool.run(count * TILE, &|_, row| self.finish(chunk.start, row));
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
            let (rows, _) = rows.as_chunks::<TILE>();
            let row = |k: usize| rows.get(k).map_or(zero(), hvx::load);
            for pair in 0..PAIRS {
                let k = tile * TILE + 2 * pair;
                let v = tiles::pack([row(k), row(k + 1)], [power; 2]);
                // SAFETY: the tile is this task's, and the unit has ended with the block before.
                unsafe { pad.write(to + pair * VECTOR, v) };
            }
        });
    }

    /// QKᵀ of a block for query tiles of the chunk.
    fn score(&self, tiles: Range<usize>) {
        let Context { machine, pad, .. } = self.context;
        let (mut units, layout) = (machine.units.lock(), &self.layout);
        for tile in tiles {
            for (half, &keys) in layout.keys.iter().enumerate() {
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
    fn mix(&self, tiles: Range<usize>) {
        let Context { machine, pad, .. } = self.context;
        let (mut units, layout, strips) = (machine.units.lock(), &self.layout, self.value_strips());
        for tile in tiles {
            for strip in 0..strips {
                units.clear();
                let weights = pad.address(layout.weights.chain(tile, 0));
                units.multiply(weights, pad.address(layout.values + strip * HALVES * TILE_BYTES), HALVES);
                units.store(pad.address(layout.mixed + (tile * strips + strip) * TILE_BYTES));
            }
        }
    }

    /// The online softmax of a row pair over a block; its weights become a part of P.
    fn weigh(&self, chunk: usize, pair: usize, block: usize) {
        let Context { machine, pad, .. } = self.context;
        let (layout, tile) = (&self.layout, pair / PAIRS);
        let at = |half: usize| layout.scores + (tile * HALVES + half) * TILE_BYTES + pair % PAIRS * VECTOR;
        // SAFETY: the scores were stored before the pool began, and are not begun anew before it has ended.
        let scores = [0, 1].map(|half| unsafe { pad.read(at(half)) });
        if tiles::saturated(tiles::watch(tiles::watch(zero(), scores[0]), scores[1])) {
            Machine::add(&machine.saturated, tiles::count_saturated(&scores));
        }
        // SAFETY: written by `gather`, which has ended.
        let exponents = unsafe { pad.slice::<i32>(layout.exponents + 8 * pair, 2) };
        let [keys, _] = self.block_exponents(block);
        let [(a0, b0), (a1, b1)] = scores.map(widen);
        let (position, _) = self.tile(chunk + tile);
        let mut weights = [[zero(); HALVES]; 2];
        for (side, scores) in [[a0, a1], [b0, b1]].into_iter().enumerate() {
            let row = 2 * pair + side;
            let seen = (position + row % TILE + 1 - block * KEY_BLOCK) as u32;
            let fall = Exponent(exponents[side]).power(-1, 0) * keys.power(-1, 0) * self.attention.scale;
            weights[side] = self.soften(row, scores, lift(splat_f(fall)), seen);
        }
        let [first, second] = weights;
        for (half, (a, b)) in first.into_iter().zip(second).enumerate() {
            let v = narrow(lift(a), lift(b));
            // SAFETY: a row pair's vectors of P are this task's.
            unsafe { pad.write(layout.weights.tile(tile, half) + pair % PAIRS * VECTOR, v) };
        }
    }

    /// One row's exponentials over a block, of which it sees the first `seen` keys.
    fn soften(&self, row: usize, scores: [Q; HALVES], fall: Q, seen: u32) -> [V; HALVES] {
        let [maximum, sum, _] = self.state(row);
        let lanes = from_words(core::array::from_fn(|lane| lane as u32));
        let scores: [V; HALVES] = core::array::from_fn(|half| {
            let number = hvx::add_w(lanes, splat((half * TILE) as u32));
            where_gt_w(splat(seen), number, hvx::float(mul_q(scores[half], fall)), splat_f(UNSEEN))
        });
        let mut top = max_sf(scores[0], scores[1]);
        for bytes in [64, 32, 16, 8, 4] {
            top = max_sf(top, rotate(top, bytes));
        }
        let top = max_sf(top, maximum);
        let decay = exp(hvx::float(sub(maximum, top)));
        let weights = scores.map(|score| exp(hvx::float(sub(score, top))));
        let mut total = hvx::float(add(weights[0], weights[1]));
        for bytes in [64, 32, 16, 8, 4] {
            total = hvx::float(add(total, rotate(total, bytes)));
        }
        let sum = hvx::float(add_qv(mul(sum, decay), total));
        self.set_state(row, [top, sum, decay]);
        weights
    }

    /// Adds a block's mixture to the sums of a row pair.
    fn accumulate(&self, pair: usize, block: usize) {
        let Context { machine, pad, .. } = self.context;
        let (layout, strips, tile) = (&self.layout, self.value_strips(), pair / PAIRS);
        let [_, values] = self.block_exponents(block);
        let fall = lift(splat_f(values.power(-1, 0)));
        let rows = [2 * pair, 2 * pair + 1];
        let decays = rows.map(|row| self.state(row)[2]);
        let mut over = 0;
        for strip in 0..strips {
            let at = layout.mixed + (tile * strips + strip) * TILE_BYTES + pair % PAIRS * VECTOR;
            // SAFETY: the mixture was stored before the pool began, and is not begun anew before it has ended.
            let halves = unsafe { pad.read(at) };
            if tiles::saturated(tiles::watch(zero(), halves)) {
                over += tiles::count_saturated(&[halves]);
            }
            let (a, b) = widen(halves);
            for ((row, decay), mixed) in rows.into_iter().zip(decays).zip([a, b]) {
                // SAFETY: the row's sums are this task's.
                unsafe {
                    let sum = pad.read(self.sum(row, strip));
                    pad.write(self.sum(row, strip), hvx::float(add_q(mul(sum, decay), mul_q(mixed, fall))));
                }
            }
        }
        Machine::add(&machine.saturated, over);
    }

    /// Writes one row's result.
    fn finish(&self, chunk: usize, row: usize) {
        let (position, head) = self.tile(chunk + row / TILE);
        let position = position + row % TILE;
        if position >= self.span.tokens as usize {
            return;
        }
        let [_, sum, _] = self.state(row);
        let inverse = splat_f(1.0 / f32::from_bits(hvx::to_words(sum)[0]));
        let (token, width) = (self.span.first as usize + position, self.attention.value_width as usize);
        // SAFETY: the columns of a token and a head are this task's.
        let mut block = unsafe { self.out.block(token..token + 1, head * width..(head + 1) * width) };
        for (strip, out) in block.row(0).as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
            // SAFETY: the row's sums are this task's.
            let sum = unsafe { self.context.pad.read(self.sum(row, strip)) };
            hvx::store(hvx::float(mul(sum, inverse)), out);
        }
    }

    /// Where a row's sums of a value strip stand.
    fn sum(&self, row: usize, strip: usize) -> usize {
        self.layout.sums + (row * self.value_strips() + strip) * VECTOR
    }

    /// A row's maximum, sum and last decay, the same in all lanes.
    fn state(&self, row: usize) -> [V; 3] {
        let at = self.layout.state + 3 * row * VECTOR;
        // SAFETY: a row's state is its task's, phase after phase.
        [0, 1, 2].map(|n| unsafe { self.context.pad.read(at + n * VECTOR) })
    }

    fn set_state(&self, row: usize, state: [V; 3]) {
        let at = self.layout.state + 3 * row * VECTOR;
        for (n, v) in state.into_iter().enumerate() {
            // SAFETY: as in `state`.
            unsafe { self.context.pad.write(at + n * VECTOR, v) };
        }
    }
}

/// The bits of the largest magnitude of rows of whole vectors.
fn largest(rows: &[f32]) -> u32 {
    let (rows, _) = rows.as_chunks::<TILE>();
    let top =
        rows.iter().fold(zero(), |top, row| hvx::max_w(top, hvx::and(hvx::load(row), splat(0x7fff_ffff))));
    hvx::largest_w(top)
}
