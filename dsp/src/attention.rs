//! Causal attention over grouped heads, in key blocks of 64 counted from position 0 of each request.
//!
//! Keys are laid out once a layer as transposed blocks `[kv head][block][half][key_width][32]` and values as strips
//! `[strip][token][32]`, so that both products are the same strip kernel as every other one. The softmax is online: a row
//! keeps its running maximum and sum, and its accumulator is one chain over the key blocks in ascending order. A row
//! visits exactly the blocks that begin at or before its position, so neither the cut into query rows nor a neighbour in
//! the batch changes a bit.

use crate::batch::{KEY_BLOCK, RequestSpan};
use crate::kernels::{Chain, Kernels};
use crate::platform::working_for;
use crate::pool::Pool;
use crate::rope;
use crate::view::{Block, Grid, Rows};
use estream_idl::address::TILE;
use estream_idl::operator::Operator;
use estream_idl::recipe::{Attention, QkNorm};

/// Query rows of one task: keys and values come from far for long prompts, once a task.
pub const QUERY_ROWS: usize = 64;

/// Elements of scratch that one worker needs: the scores of its query rows.
pub const SCRATCH: usize = QUERY_ROWS * KEY_BLOCK;

/// Elements of the transposed keys of a pass with at most `tokens` tokens in at most `requests` requests.
#[must_use]
pub const fn key_elements(attention: &Attention, tokens: usize, requests: usize) -> usize {
    let blocks = tokens / KEY_BLOCK + requests;
    attention.kv_heads as usize * blocks * KEY_BLOCK * attention.key_width as usize
}

/// Norms and rotates the heads of one row of queries or keys in place. `whole` is scratch of the row's length.
fn position_row(
    kernels: &dyn Kernels,
    attention: &Attention,
    norm: Option<&[f32]>,
    epsilon: f32,
    (cos, sin): (&[f32], &[f32]),
    row: &mut [f32],
    whole: &mut [f32],
) {
    let width = attention.key_width as usize;
    if let Some(weight) = norm {
        whole.copy_from_slice(row);
        match attention.norm {
            QkNorm::Whole => kernels.rms_norm(whole, weight, epsilon, row),
            QkNorm::PerHead => {
                for (head, out) in whole.chunks_exact(width).zip(row.chunks_exact_mut(width)) {
                    kernels.rms_norm(head, weight, epsilon, out);
                }
            }
            QkNorm::None => {}
        }
    }
    let rotated = attention.rope.width as usize;
    for head in row.chunks_exact_mut(width) {
        kernels.rotate(attention.rope.pairs, &mut head[..rotated], cos, sin);
    }
}

/// Where a token stands in its request.
pub(crate) fn locate(spans: &[RequestSpan], token: usize) -> (&RequestSpan, usize) {
    let index = spans.partition_point(|span| span.first as usize <= token).saturating_sub(1);
    (&spans[index], token - spans[index].first as usize)
}

/// What a layer's attention needs besides its weights.
pub struct Pass<'a> {
    /// Backend.
    pub kernels: &'static dyn Kernels,
    /// Workers.
    pub pool: &'a Pool<'a>,
    /// The layer's numbers.
    pub attention: &'a Attention,
    /// ε of the norms.
    pub epsilon: f32,
    /// Rotary angles of every position.
    pub angles: &'a [f32],
    /// Requests of the pass.
    pub spans: &'a [RequestSpan],
}

impl Pass<'_> {
    /// Norms and rotates all rows of queries or keys, `[tokens][heads · key_width]`, in place.
    pub fn position(&self, rows: &mut [f32], stride: usize, norm: Option<&[f32]>, scratch: &mut [f32]) {
        working_for(Operator::Rope, || {
            self.pool.rows(Grid::new(rows, stride), 8, scratch, &|first, mut block, scratch| {
                for row in 0..block.rows() {
                    let (_, position) = locate(self.spans, first + row);
                    let angles = rope::angles(&self.attention.rope, self.angles, position);
                    let whole = &mut scratch[..stride];
                    position_row(
                        self.kernels,
                        self.attention,
                        norm,
                        self.epsilon,
                        angles,
                        block.row(row),
                        whole,
                    );
                }
            });
        });
    }

    /// Lays positioned keys `[tokens][kv_heads · key_width]` out as transposed blocks in `keys`. A request's last block is
    /// filled up with zeros, which no row ever weighs.
    pub fn transpose_keys(&self, rows: &[f32], keys: &mut [f32]) {
        let width = self.attention.key_width as usize;
        let stride = self.attention.kv_heads as usize * width;
        let block_len = KEY_BLOCK * width;
        let blocks = self.blocks();
        let used = self.attention.kv_heads as usize * blocks * block_len;
        self.pool.rows(Grid::new(&mut keys[..used], block_len), 1, &mut [], &|index, mut block, _| {
            let (head, number) = (index / blocks, index % blocks);
            let last = self.spans.partition_point(|span| span.first_block as usize <= number) - 1;
            let span = &self.spans[last];
            let from = (number - span.first_block as usize) * KEY_BLOCK;
            let out = block.row(0);
            for key in 0..KEY_BLOCK {
                let (half, column) = (key / TILE, key % TILE);
                let row = (from + key < span.tokens as usize)
                    .then(|| &rows[(span.first as usize + from + key) * stride + head * width..][..width]);
                for k in 0..width {
                    out[(half * width + k) * TILE + column] = row.map_or(0.0, |row| row[k]);
                }
            }
        });
    }

    fn blocks(&self) -> usize {
        self.spans
            .last()
            .map_or(0, |span| span.first_block as usize + (span.tokens as usize).div_ceil(KEY_BLOCK))
    }

    /// Attends: `out[t][head · value_width..]` for all tokens. `queries` are positioned rows, `keys` transposed blocks,
    /// `values` strips of `tokens` rows.
    pub fn attend(
        &self,
        queries: Rows<'_>,
        keys: &[f32],
        values: &[f32],
        tokens: usize,
        out: Grid<'_>,
        scratch: &mut [f32],
    ) {
        if let Some(machine) = self.pool.matrix() {
            return machine.attend(self, scratch, queries, keys, values, tokens, &out);
        }
        let width = self.attention.value_width as usize;
        self.pool.tiles(out, QUERY_ROWS, width, scratch, &|row_block, head, mut block, scratch| {
            let (mut row, rows) = (0, block.rows());
            while row < rows {
                let token = row_block * QUERY_ROWS + row;
                let (span, position) = locate(self.spans, token);
                let count = (rows - row).min(span.tokens as usize - position);
                let queries = queries.slice(token..token + count);
                let part = block.part(row..row + count, 0..width);
                self.attend_rows(span, position, head, queries, keys, values, tokens, part, scratch);
                row += count;
            }
        });
    }

    /// Consecutive query rows of one request and head, the first at `position`.
    fn attend_rows(
        &self,
        span: &RequestSpan,
        position: usize,
        head: usize,
        queries: Rows<'_>,
        keys: &[f32],
        values: &[f32],
        tokens: usize,
        mut out: Block<'_>,
        scratch: &mut [f32],
    ) {
        let (kernels, attention) = (self.kernels, self.attention);
        let [key_width, value_width] = [attention.key_width as usize, attention.value_width as usize];
        let kv_head = head / (attention.heads / attention.kv_heads) as usize;
        let rows = out.rows();
        let queries = queries.from_column(head * key_width);
        let scores = &mut scratch[..rows * KEY_BLOCK];
        let (mut maxima, mut sums) = ([f32::NEG_INFINITY; QUERY_ROWS], [0f32; QUERY_ROWS]);
        let block_len = KEY_BLOCK * key_width;
        for block in 0..=(position + rows - 1) / KEY_BLOCK {
            let from = block * KEY_BLOCK;
            // Rows before the block's first key have finished: the block does not exist for them.
            let first = from.saturating_sub(position).min(rows);
            let count = rows - first;
            let present = KEY_BLOCK.min(span.tokens as usize - from);
            let at = (kv_head * self.blocks() + span.first_block as usize + block) * block_len;
            let mut products = Block::new(&mut scores[..count * KEY_BLOCK], KEY_BLOCK);
            // The same of half a block, whose scores these rows would not look at.
            let reaching = |half: usize| (from + half * TILE).saturating_sub(position).min(rows);
            for half in 0..present.div_ceil(TILE) {
                let weights = &keys[at + half * key_width * TILE..][..key_width * TILE];
                let (columns, reaching) = (half * TILE..(half + 1) * TILE, reaching(half));
                let products = products.part(reaching - first..count, columns);
                kernels.multiply(queries.slice(reaching..rows), weights, products, Chain::Start);
            }
            for (row, scores) in scores.chunks_exact_mut(KEY_BLOCK).take(count).enumerate() {
                let row = first + row;
                let (seen, unseen) = scores.split_at_mut((position + row + 1 - from).min(present));
                kernels.scale(attention.scale, seen);
                let max = maxima[row].max(kernels.max(seen));
                // A maximum that stays decays nothing: exp(0) is exactly 1.
                if block > 0 && max != maxima[row] {
                    let mut decay = [maxima[row]];
                    kernels.exp_sum(&mut decay, max);
                    kernels.scale(decay[0], out.row(row));
                    sums[row] *= decay[0];
                }
                sums[row] += kernels.exp_sum(seen, max);
                maxima[row] = max;
                unseen.fill(0.0);
            }
            let weighted = Rows::new(&scores[..count * KEY_BLOCK], KEY_BLOCK);
            let chain = if block == 0 { Chain::Start } else { Chain::Continue };
            for strip in 0..value_width / TILE {
                let index = kv_head * value_width / TILE + strip;
                let token = span.first as usize + from;
                let weights = &values[(index * tokens + token) * TILE..][..present * TILE];
                let columns = strip * TILE..(strip + 1) * TILE;
                kernels.multiply(weighted, weights, out.part(first..rows, columns), chain);
            }
        }
        for (row, sum) in sums.iter().take(rows).enumerate() {
            kernels.scale(1.0 / sum, out.row(row));
        }
    }
}
