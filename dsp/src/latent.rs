//! Multi-head latent attention: keys and values from one latent vector a token, in whichever way the key matrix is stored.
//!
//! **Expanded** (`latent → plain` a head): keys `[K_h c | k_rope]` and values `V_h c` are made for every head, and attention
//! is the ordinary one. **Absorbed** (`plain → latent` a head): a query goes to the latent space, `[K_hᵀ q | q_rope]`, all
//! heads share the one key `[c | k_rope]` and the value c, and `V_h` is applied to what was attended. The two are the same
//! function; turning a quantised matrix round to choose freely would quantise it anew, so the stored way decides.

use crate::attention::Pass;
use crate::kernels::{Backend, Chain};
use crate::linear::{Activations, Weights, product, strips};
use crate::rope;
use crate::view::{Grid, Rows};
use estream_idl::address::TILE;
use estream_idl::recipe::{Attention, Latent, QkNorm};

/// The grouped-query attention that a latent one comes down to.
#[must_use]
pub fn attention(mixer: &Latent) -> Attention {
    let (kv_heads, key_width, value_width) = if mixer.absorbed {
        (1, mixer.latent + mixer.rope.width, mixer.latent)
    } else {
        (mixer.heads, mixer.plain + mixer.rope.width, mixer.value_width)
    };
    Attention {
        heads: mixer.heads,
        kv_heads,
        key_width,
        value_width,
        scale: mixer.scale,
        norm: QkNorm::None,
        rope: mixer.rope,
    }
}

/// One layer's latent attention, bound to its weights.
pub struct Operator<'a> {
    /// Kernels of the products.
    pub backend: &'a Backend,
    /// The attention of [`attention`].
    pub pass: Pass<'a>,
    /// The layer's numbers.
    pub mixer: &'a Latent,
    /// Tokens of the pass.
    pub tokens: usize,
    /// Norm weights of the latent vector.
    pub norm: &'a [f32],
    /// Width → heads · (plain + rope width).
    pub query: Weights<'a>,
    /// Width → latent + rope width.
    pub latent: Weights<'a>,
    /// A head after the other: plain → latent, or latent → plain.
    pub key: Weights<'a>,
    /// Latent → heads · value_width.
    pub value: Weights<'a>,
}

impl Operator<'_> {
    /// Elements of a row of `[c | k_rope]`.
    const fn latent_row(&self) -> usize {
        (self.mixer.latent + self.mixer.rope.width) as usize
    }

    /// Elements of a head of raw queries.
    const fn query_head(&self) -> usize {
        (self.mixer.plain + self.mixer.rope.width) as usize
    }

    /// Fills the transposed keys and the value strips from normed activations `x`; `latent`, `rows` and `packed` are work
    /// space.
    pub fn keys_and_values(
        &self,
        x: Rows<'_>,
        latent: &mut [f32],
        rows: &mut [f32],
        keys: &mut [f32],
        values: &mut [f32],
        packed: &mut [f32],
        scratch: &mut [f32],
    ) {
        let Pass { kernels, pool, attention, .. } = self.pass;
        let backend = self.backend;
        let [width, plain, heads] =
            [self.mixer.latent, self.mixer.plain, self.mixer.heads].map(|n| n as usize);
        let stride = self.latent_row();
        let latent = &mut latent[..self.tokens * stride];
        let x = Activations::pack(backend, pool, x, self.latent.k, &[self.latent.format], packed);
        product(backend, pool, scratch, x, self.latent, 0, Grid::new(latent, stride), Chain::Start);
        pool.rows(Grid::new(latent, stride), 8, scratch, &|first, mut block, scratch| {
            for row in 0..block.rows() {
                let (vector, rotated) = block.row(row).split_at_mut(width);
                let copy = &mut scratch[..width];
                copy.copy_from_slice(vector);
                kernels.rms_norm(copy, self.norm, self.pass.epsilon, vector);
                self.rotate(first + row, rotated);
            }
        });
        let latent = Rows::new(latent, stride);
        if self.mixer.absorbed {
            self.pass.transpose_keys(latent.data, keys);
            let values = Grid::new(&mut values[..self.tokens * width], TILE);
            pool.rows(values, self.tokens, &mut [], &|first, mut block, _| {
                let column = first / self.tokens * TILE;
                for row in 0..block.rows() {
                    block.row(row).copy_from_slice(&latent.row(row)[column..column + TILE]);
                }
            });
            return;
        }
        let (head, stride) = (self.query_head(), heads * self.query_head());
        let rows = &mut rows[..self.tokens * stride];
        let formats = [self.key.format, self.value.format];
        let vectors = Activations::pack(backend, pool, latent, width, &formats, packed);
        for number in 0..heads {
            let columns = number * head..number * head + plain;
            let out = Grid::new(rows, stride).narrow(columns);
            product(backend, pool, scratch, vectors, self.key, number * plain / TILE, out, Chain::Start);
        }
        for (row, keys) in rows.chunks_exact_mut(stride).enumerate() {
            for key in keys.chunks_exact_mut(head) {
                key[plain..].copy_from_slice(&latent.row(row)[width..]);
            }
        }
        self.pass.transpose_keys(rows, keys);
        let used = heads * attention.value_width as usize * self.tokens;
        strips(backend, pool, scratch, vectors, self.value, &mut values[..used]);
    }

    /// Makes the queries in `rows`, or (absorbed) from `rows` in `wide`.
    pub fn queries(
        &self,
        x: Rows<'_>,
        rows: &mut [f32],
        wide: &mut [f32],
        packed: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (backend, pool) = (self.backend, self.pass.pool);
        let [latent, plain, heads] =
            [self.mixer.latent, self.mixer.plain, self.mixer.heads].map(|n| n as usize);
        let (head, stride) = (self.query_head(), heads * self.query_head());
        let rows = &mut rows[..self.tokens * stride];
        let x = Activations::pack(backend, pool, x, self.query.k, &[self.query.format], packed);
        product(backend, pool, scratch, x, self.query, 0, Grid::new(rows, stride), Chain::Start);
        pool.rows(Grid::new(rows, stride), 8, &mut [], &|first, mut block, _| {
            for row in 0..block.rows() {
                for query in block.row(row).chunks_exact_mut(head) {
                    self.rotate(first + row, &mut query[plain..]);
                }
            }
        });
        if !self.mixer.absorbed {
            return;
        }
        let rows = Rows::new(rows, stride);
        let (wide_head, wide_stride) = (self.latent_row(), heads * self.latent_row());
        let wide = &mut wide[..self.tokens * wide_stride];
        for number in 0..heads {
            let columns = number * wide_head..number * wide_head + latent;
            let out = Grid::new(wide, wide_stride).narrow(columns);
            let x = rows.from_column(number * head);
            let x = Activations::pack(backend, pool, x, plain, &[self.key.format], packed);
            product(backend, pool, scratch, x, self.key, number * latent / TILE, out, Chain::Start);
        }
        for (row, queries) in wide.chunks_exact_mut(wide_stride).enumerate() {
            for (query, raw) in queries.chunks_exact_mut(wide_head).zip(rows.row(row).chunks_exact(head)) {
                query[latent..].copy_from_slice(&raw[plain..]);
            }
        }
    }

    /// Attends into `out`, rows of heads · value_width; `rows` holds the queries and then, absorbed, what was attended.
    pub fn attend(
        &self,
        rows: &mut [f32],
        wide: &[f32],
        keys: &[f32],
        values: &[f32],
        out: &mut [f32],
        packed: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (backend, pool) = (self.backend, self.pass.pool);
        let [latent, value, heads] =
            [self.mixer.latent, self.mixer.value_width, self.mixer.heads].map(|n| n as usize);
        let out = &mut out[..self.tokens * heads * value];
        let out_stride = heads * value;
        if !self.mixer.absorbed {
            let stride = heads * self.query_head();
            let queries = Rows::new(&rows[..self.tokens * stride], stride);
            let grid = Grid::new(out, out_stride);
            return self.pass.attend(queries, keys, values, self.tokens, grid, scratch);
        }
        let stride = heads * self.latent_row();
        let queries = Rows::new(&wide[..self.tokens * stride], stride);
        let attended = &mut rows[..self.tokens * heads * latent];
        let grid = Grid::new(attended, heads * latent);
        self.pass.attend(queries, keys, values, self.tokens, grid, scratch);
        let attended = Rows::new(attended, heads * latent);
        for number in 0..heads {
            let x = attended.from_column(number * latent);
            let x = Activations::pack(backend, pool, x, latent, &[self.value.format], packed);
            let head = Grid::new(out, out_stride).narrow(number * value..(number + 1) * value);
            product(backend, pool, scratch, x, self.value, number * value / TILE, head, Chain::Start);
        }
    }

    fn rotate(&self, token: usize, part: &mut [f32]) {
        let (_, position) = crate::attention::locate(self.pass.spans, token);
        let (cos, sin) = rope::angles(&self.mixer.rope, self.pass.angles, position);
        self.pass.kernels.rotate(self.mixer.rope.pairs, part, cos, sin);
    }
}
