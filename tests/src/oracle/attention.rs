//! Causal attention with grouped queries, rotary positions and either norm of queries and keys.

use super::Error;
use super::gguf::Values;
use super::keys::Keys;
use super::linear::{Rows, dot, multiply, rms_norm, softmax};
use super::rope::{Pairs, Rotation};

/// Causal attention between heads that are ready: queries, keys and values of one prompt.
pub(super) struct Heads {
    /// Query heads.
    pub(super) count: usize,
    /// Query heads to a head of keys and values.
    pub(super) sharing: usize,
    /// Factor of the scores.
    pub(super) scale: f64,
    /// Elements of a head of queries and keys.
    pub(super) key_width: usize,
    /// Elements of a head of values.
    pub(super) value_width: usize,
}

impl Heads {
    /// What each token takes from itself and those before it, its heads end to end.
    pub(super) fn attend(&self, q: &Rows, k: &Rows, v: &Rows) -> Rows {
        let Self { key_width, value_width, .. } = *self;
        Rows::compute(q.len(), self.count * value_width, |t, out| {
            let mut scores = vec![0.0; t + 1];
            for (head, out) in out.chunks_exact_mut(value_width).enumerate() {
                let query = &q.row(t)[head * key_width..][..key_width];
                let group = head / self.sharing;
                for (s, score) in scores.iter_mut().enumerate() {
                    *score = self.scale * dot(query, &k.row(s)[group * key_width..][..key_width]);
                }
                softmax(&mut scores);
                for (s, &weight) in scores.iter().enumerate() {
                    let value = &v.row(s)[group * value_width..][..value_width];
                    out.iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
                }
            }
        })
    }
}

/// One layer's attention.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Factor of the scores.
    pub scale: f64,
    /// Rotary positions.
    pub rotation: Rotation,
    /// ε of the norms.
    pub epsilon: f64,
    /// Width → heads of queries.
    pub query: Values,
    /// Width → heads of keys.
    pub key: Values,
    /// Width → heads of values.
    pub value: Values,
    /// Heads of values → width.
    pub output: Values,
    /// Norms of queries and keys: over whole vectors where they are that long, else over heads.
    pub norms: Option<[Values; 2]>,
}

impl Attention {
    pub(super) fn load(keys: &Keys<'_>, layer: usize, pairs: Pairs, epsilon: f64) -> Result<Self, Error> {
        let heads = keys.needed("attention.head_count")?;
        let width = keys.needed("embedding_length")?;
        let key_width = keys.count("attention.key_length")?.unwrap_or(width / heads);
        let rotated = keys.count("rope.dimension_count")?.unwrap_or(key_width);
        let base = keys.float("rope.freq_base")?.unwrap_or(10_000.0);
        let part = |name: &str| keys.part(layer, &format!("{name}.weight"));
        let norms = if keys.has_part(layer, "attn_q_norm.weight") {
            Some([part("attn_q_norm")?, part("attn_k_norm")?])
        } else {
            None
        };
        Ok(Self {
            heads,
            kv_heads: keys.of_layer("attention.head_count_kv", layer)?.unwrap_or(heads),
            scale: 1.0 / (key_width as f64).sqrt(),
            rotation: Rotation::plain(pairs, rotated, base),
            epsilon,
            query: part("attn_q")?,
            key: part("attn_k")?,
            value: part("attn_v")?,
            output: part("attn_output")?,
            norms,
        })
    }

    /// The attention's contribution for the normed rows `x` of one prompt.
    pub(super) fn forward(&self, x: &Rows) -> Rows {
        let mut q = multiply(x, &self.query, 0);
        let mut k = multiply(x, &self.key, 0);
        let v = multiply(x, &self.value, 0);
        if let Some([query_norm, key_norm]) = &self.norms {
            q.iter_mut().for_each(|row| rms_norm(row, &query_norm.data, self.epsilon));
            k.iter_mut().for_each(|row| rms_norm(row, &key_norm.data, self.epsilon));
        }
        let key_width = q.width / self.heads;
        for rows in [&mut q, &mut k] {
            for (position, row) in rows.iter_mut().enumerate() {
                row.chunks_exact_mut(key_width).for_each(|head| self.rotation.turn(head, position));
            }
        }
        let heads = Heads {
            count: self.heads,
            sharing: self.heads / self.kv_heads,
            scale: self.scale,
            key_width,
            value_width: v.width / self.kv_heads,
        };
        multiply(&heads.attend(&q, &k, &v), &self.output, 0)
    }
}
