//! Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), written out: every head's keys and values are
//! expanded from the latent vector.
//!
//! Files hold the expanding matrices in two layouts: until 2025 as one, each head's key rows before its value rows; since
//! then apart, the key matrices turned round so that an engine may take queries to the latent space instead. Both are
//! brought to the same two matrices here, and no key is ever absorbed: whoever absorbs is checked by one who does not.

use super::Error;
use super::attention::Heads;
use super::gguf::Values;
use super::keys::Keys;
use super::linear::{Rows, multiply, rms_norm};
use super::rope::{Pairs, Rotation};

/// One layer's latent attention.
#[derive(Clone, Debug)]
pub struct Latent {
    /// Heads.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f64,
    /// Rotary positions of the elements behind the plain ones.
    pub rotation: Rotation,
    /// ε of the latent's norm.
    pub epsilon: f64,
    /// Width → heads of queries, each plain elements and then rotated ones.
    pub query: Values,
    /// Width → the latent vector and the rotated part of the key, which all heads share.
    pub down: Values,
    /// Norm of the latent vector.
    pub norm: Values,
    /// Latent → plain elements of a key, a matrix for each head.
    pub key: Values,
    /// Latent → a value, a matrix for each head.
    pub value: Values,
    /// Heads of values → width.
    pub output: Values,
}

impl Latent {
    pub(super) fn load(keys: &Keys<'_>, layer: usize, pairs: Pairs, epsilon: f64) -> Result<Self, Error> {
        if keys.count("attention.q_lora_rank")?.unwrap_or(0) != 0 {
            return Err(Error::Model("the oracle does not know compressed queries".into()));
        }
        let heads = keys.needed("attention.head_count")?;
        let rotated = keys.needed("rope.dimension_count")?;
        let apart = keys.has("attention.key_length_mla");
        let key_width =
            keys.needed(if apart { "attention.key_length_mla" } else { "attention.key_length" })?;
        let part = |name: &str| keys.part(layer, &format!("{name}.weight"));
        let (key, value) = if apart {
            (turned(&part("attn_k_b")?), part("attn_v_b")?)
        } else {
            halves(&part("attn_kv_b")?, heads, key_width - rotated)
        };
        let (rotation, stretch) = Rotation::of(keys, pairs, rotated)?;
        Ok(Self {
            heads,
            scale: stretch * stretch / (key_width as f64).sqrt(),
            rotation,
            epsilon,
            query: part("attn_q")?,
            down: part("attn_kv_a_mqa")?,
            norm: part("attn_kv_a_norm")?,
            key,
            value,
            output: part("attn_output")?,
        })
    }

    /// The attention's contribution for the normed rows `x` of one prompt.
    pub(super) fn forward(&self, x: &Rows) -> Rows {
        let [latent, plain] = [self.key.shape[0], self.key.shape[1]];
        let value_width = self.value.shape[1];
        let rotated = self.down.shape[1] - latent;
        let key_width = plain + rotated;
        let mut q = multiply(x, &self.query, 0);
        for (position, row) in q.iter_mut().enumerate() {
            row.chunks_exact_mut(key_width).for_each(|head| self.rotation.turn(&mut head[plain..], position));
        }
        let mut down = multiply(x, &self.down, 0);
        let mut c = Rows::zeros(x.len(), latent);
        for (position, (row, c)) in down.iter_mut().zip(c.iter_mut()).enumerate() {
            c.copy_from_slice(&row[..latent]);
            rms_norm(c, &self.norm.data, self.epsilon);
            self.rotation.turn(&mut row[latent..], position);
        }
        let mut k = Rows::zeros(x.len(), self.heads * key_width);
        let mut v = Rows::zeros(x.len(), self.heads * value_width);
        for head in 0..self.heads {
            let (keys, values) = (multiply(&c, &self.key, head), multiply(&c, &self.value, head));
            for (t, (k, v)) in k.iter_mut().zip(v.iter_mut()).enumerate() {
                let k = &mut k[head * key_width..][..key_width];
                k[..plain].copy_from_slice(keys.row(t));
                k[plain..].copy_from_slice(&down.row(t)[latent..]);
                v[head * value_width..][..value_width].copy_from_slice(values.row(t));
            }
        }
        let heads = Heads { count: self.heads, sharing: 1, scale: self.scale, key_width, value_width };
        multiply(&heads.attend(&q, &k, &v), &self.output, 0)
    }
}

/// `[plain, latent, heads]` as `[latent, plain, heads]`.
fn turned(values: &Values) -> Values {
    let [plain, latent, heads] = [values.shape[0], values.shape[1], values.shape[2]];
    let mut data = Vec::with_capacity(values.data.len());
    for matrix in values.data.chunks_exact(plain * latent) {
        for row in 0..plain {
            data.extend((0..latent).map(|column| matrix[column * plain + row]));
        }
    }
    Values { shape: vec![latent, plain, heads], data }
}

/// Keys and values of each head, whose rows stand together in one matrix.
fn halves(values: &Values, heads: usize, plain: usize) -> (Values, Values) {
    let latent = values.shape[0];
    let both = values.shape[1] / heads;
    let rows = |first: usize, count: usize| {
        let matrices = values.data.chunks_exact(both * latent);
        let data = matrices.flat_map(|head| &head[first * latent..][..count * latent]).copied().collect();
        Values { shape: vec![latent, count, heads], data }
    };
    (rows(0, plain), rows(plain, both - plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two heads of one plain element and two of value, from a latent of three.
    #[test]
    fn both_layouts_become_the_same_matrices() {
        let key: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let value: Vec<f32> = (10..22).map(|i| i as f32).collect();
        let old = [&key[..3], &value[..6], &key[3..], &value[6..]].concat();
        let old = halves(&Values { shape: vec![3, 6], data: old }, 2, 1);
        assert_eq!((old.0.data, old.1.data), (key.clone(), value));
        let new = turned(&Values { shape: vec![2, 3, 1], data: vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0] });
        assert_eq!((new.data, new.shape), (key, vec![3, 2, 1]));
    }
}
