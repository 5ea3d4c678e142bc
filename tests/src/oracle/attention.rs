//! Causal attention with grouped queries, rotary positions and either norm of queries and keys.

use super::gguf::{Gguf, Values};
use super::linear::{Rows, dot, multiply, rms_norm, softmax};
use super::{Error, model::Shape};

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairs {
    /// (2i, 2i + 1): ggml's NORM.
    Adjacent,
    /// (i, i + half): ggml's NEOX.
    Halves,
}

/// One layer's attention weights.
#[derive(Debug)]
pub(super) struct Attention {
    query: Values,
    key: Values,
    value: Values,
    output: Values,
    /// Norms of queries and keys: over whole vectors where they are that long, else over heads.
    norms: Option<(Values, Values)>,
}

impl Attention {
    pub(super) fn load(file: &Gguf, layer: usize) -> Result<Self, Error> {
        let tensor = |name: &str| file.tensor(&format!("blk.{layer}.{name}.weight"));
        let norms = if file.has(&format!("blk.{layer}.attn_q_norm.weight")) {
            Some((tensor("attn_q_norm")?, tensor("attn_k_norm")?))
        } else {
            None
        };
        Ok(Self {
            query: tensor("attn_q")?,
            key: tensor("attn_k")?,
            value: tensor("attn_v")?,
            output: tensor("attn_output")?,
            norms,
        })
    }

    /// The attention's contribution for the normed rows `x` of one prompt.
    pub(super) fn forward(&self, x: &Rows, shape: &Shape) -> Rows {
        let mut q = multiply(x, &self.query, 0);
        let mut k = multiply(x, &self.key, 0);
        let v = multiply(x, &self.value, 0);
        if let Some((query_norm, key_norm)) = &self.norms {
            q.iter_mut().for_each(|row| rms_norm(row, &query_norm.data, shape.epsilon));
            k.iter_mut().for_each(|row| rms_norm(row, &key_norm.data, shape.epsilon));
        }
        for rows in [&mut q, &mut k] {
            for (position, row) in rows.iter_mut().enumerate() {
                row.chunks_exact_mut(shape.key_width).for_each(|head| rotate(head, position, shape));
            }
        }
        let value_width = v.width / shape.kv_heads;
        let sharing = shape.heads / shape.kv_heads;
        let scale = 1.0 / (shape.key_width as f64).sqrt();
        let mixed = Rows::compute(x.len(), shape.heads * value_width, |t, out| {
            let mut scores = vec![0.0; t + 1];
            for (head, out) in out.chunks_exact_mut(value_width).enumerate() {
                let query = &q.row(t)[head * shape.key_width..][..shape.key_width];
                let group = head / sharing;
                for (s, score) in scores.iter_mut().enumerate() {
                    *score = scale * dot(query, &k.row(s)[group * shape.key_width..][..shape.key_width]);
                }
                softmax(&mut scores);
                for (s, &weight) in scores.iter().enumerate() {
                    let value = &v.row(s)[group * value_width..][..value_width];
                    out.iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
                }
            }
        });
        multiply(&mixed, &self.output, 0)
    }
}

/// Turns pair i by `position · base^(−2i/width)`.
fn rotate(head: &mut [f64], position: usize, shape: &Shape) {
    let half = head.len() / 2;
    for i in 0..half {
        let angle = position as f64 * shape.rope_base.powf(-(i as f64) / half as f64);
        let (a, b) = match shape.pairs {
            Pairs::Adjacent => (2 * i, 2 * i + 1),
            Pairs::Halves => (i, i + half),
        };
        let (sin, cos) = angle.sin_cos();
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}
