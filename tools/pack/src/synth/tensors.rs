//! The tensors of a synthetic model, in the order and with the names of llama.cpp's converter.
//!
//! A matrix over K inputs has a standard deviation of 1/√K, so that activations keep their spread; what is added to the
//! residual stream is smaller by √(2L), so that depth does not drown the embedding; the head is three times larger, so
//! that logits have a spread of about 3.

use super::file::Builder;
use super::fill::{CONSTANT, Fill};
use super::random::Random;
use super::shape::{Family, Shape};

/// Spread of the router's logits (without the biases of a skew).
pub(super) const ROUTER_STD: f32 = 1.5;
/// What the constant part of an embedding is after the norm: 4 of 4.637 in Q4_0, 16·12 of 18.48·11.73 in Q6_K.
const NIBBLE_CONSTANT: f32 = 0.863;
const SIX_BIT_CONSTANT: f32 = 0.886;
const HEAD_STD: f32 = 3.0;
const NORM_STD: f32 = 0.05;

pub(super) struct Tensors<'a> {
    pub(super) shape: &'a Shape,
    pub(super) seed: u64,
    /// Biases of the experts by rank; empty = none.
    pub(super) by_rank: Vec<f32>,
}

fn inverse_root(k: u32) -> f32 {
    1.0 / (k as f32).sqrt()
}

impl Tensors<'_> {
    pub(super) fn write(&self, builder: &mut Builder) {
        let shape = self.shape;
        let (width, vocab) = (shape.width, shape.vocab);
        let skewed = !self.by_rank.is_empty();
        let embedding = match (shape.tied(), width.is_multiple_of(256)) {
            (false, _) => Fill::Nibbles { std: 1.0, constant: skewed },
            (true, true) => Fill::SixBits { std: HEAD_STD * inverse_root(width), constant: skewed },
            (true, false) => Fill::Nibbles { std: HEAD_STD * inverse_root(width), constant: skewed },
        };
        builder.tensor("token_embd.weight", &[width, vocab], embedding);
        for layer in 0..shape.layers {
            Layer { tensors: self, builder, layer }.write();
        }
        let norm = if shape.tied() { "token_embd_norm.weight" } else { "output_norm.weight" };
        builder.tensor(norm, &[width], Fill::Normal { mean: 1.0, std: NORM_STD });
        if !shape.tied() {
            let std = HEAD_STD * inverse_root(width);
            let head = match width.is_multiple_of(256) {
                true => Fill::SixBits { std, constant: false },
                false => Fill::Bytes { std },
            };
            builder.tensor("output.weight", &[width, vocab], head);
        }
    }

    /// Biases of a layer's experts on the constant part; ranks are a permutation of the layer's own.
    fn biases(&self, layer: u32) -> Vec<f32> {
        let constant = match self.shape.tied() && self.shape.width.is_multiple_of(256) {
            true => SIX_BIT_CONSTANT,
            false => NIBBLE_CONSTANT,
        };
        let mut biases = self.by_rank.clone();
        biases.iter_mut().for_each(|bias| *bias /= CONSTANT as f32 * constant);
        let mut random = Random::of(self.seed ^ 0x5a1e_c7ed, layer.into());
        for last in (1..biases.len()).rev() {
            biases.swap(last, random.below(last + 1));
        }
        biases
    }
}

struct Layer<'a> {
    tensors: &'a Tensors<'a>,
    builder: &'a mut Builder,
    layer: u32,
}

impl Layer<'_> {
    fn add(&mut self, part: &str, dims: &[u32], fill: Fill) {
        self.builder.tensor(&format!("blk.{}.{part}", self.layer), dims, fill);
    }

    fn norm(&mut self, part: &str, width: u32) {
        self.add(&format!("{part}.weight"), &[width], Fill::Normal { mean: 1.0, std: NORM_STD });
    }

    fn matrix(&mut self, part: &str, dims: &[u32]) {
        let fill = Fill::Nibbles { std: inverse_root(dims[0]), constant: false };
        self.add(&format!("{part}.weight"), dims, fill);
    }

    /// A matrix whose result is added to the residual stream.
    fn residual(&mut self, part: &str, dims: &[u32]) {
        let shape = self.tensors.shape;
        let stream = if shape.tied() { HEAD_STD * inverse_root(shape.width) } else { 1.0 };
        let std = stream * inverse_root(dims[0]) * inverse_root(2 * shape.layers);
        self.add(&format!("{part}.weight"), dims, Fill::Nibbles { std, constant: false });
    }

    fn write(mut self) {
        let shape = self.tensors.shape;
        self.norm("attn_norm", shape.width);
        match &shape.family {
            Family::Lfm2Moe { attention, .. } if !attention.contains(&self.layer) => self.short_convolution(),
            Family::DeepSeek2 { .. } => self.latent_attention(),
            _ => self.attention(),
        }
        self.norm("ffn_norm", shape.width);
        if self.layer < shape.dense_layers() {
            self.swiglu("", shape.dense_width);
        } else {
            self.experts();
        }
    }

    fn attention(&mut self) {
        let Shape { width, heads, kv_heads, head_width, .. } = *self.tensors.shape;
        self.matrix("attn_q", &[width, heads * head_width]);
        self.matrix("attn_k", &[width, kv_heads * head_width]);
        self.matrix("attn_v", &[width, kv_heads * head_width]);
        self.residual("attn_output", &[heads * head_width, width]);
        let norms = match self.tensors.shape.family {
            Family::Olmoe => Some((heads * head_width, kv_heads * head_width)),
            Family::Mixtral => None,
            _ => Some((head_width, head_width)),
        };
        if let Some((query, key)) = norms {
            self.norm("attn_q_norm", query);
            self.norm("attn_k_norm", key);
        }
    }

    fn short_convolution(&mut self) {
        let width = self.tensors.shape.width;
        self.matrix("shortconv.in_proj", &[width, 3 * width]);
        self.add("shortconv.conv.weight", &[3, width], Fill::Normal { mean: 0.0, std: inverse_root(3) });
        self.residual("shortconv.out_proj", &[width, width]);
    }

    fn latent_attention(&mut self) {
        let Shape { width, heads, .. } = *self.tensors.shape;
        let Family::DeepSeek2 { kv_rank, nope, rope, value, .. } = self.tensors.shape.family else { return };
        self.matrix("attn_q", &[width, heads * (nope + rope)]);
        self.matrix("attn_kv_a_mqa", &[width, kv_rank + rope]);
        self.norm("attn_kv_a_norm", kv_rank);
        self.matrix("attn_k_b", &[nope, kv_rank, heads]);
        self.matrix("attn_v_b", &[kv_rank, value, heads]);
        self.residual("attn_output", &[heads * value, width]);
    }

    fn swiglu(&mut self, suffix: &str, inner: u32) {
        let width = self.tensors.shape.width;
        self.matrix(&format!("ffn_gate{suffix}"), &[width, inner]);
        self.matrix(&format!("ffn_up{suffix}"), &[width, inner]);
        self.residual(&format!("ffn_down{suffix}"), &[inner, width]);
    }

    fn experts(&mut self) {
        let shape = self.tensors.shape;
        let Shape { width, expert_width, experts, .. } = *shape;
        let bias = self.tensors.biases(self.layer);
        let router = Fill::Router { std: ROUTER_STD * inverse_root(width), bias };
        self.add("ffn_gate_inp.weight", &[width, experts], router);
        if matches!(shape.family, Family::Lfm2Moe { .. }) {
            self.add("exp_probs_b.bias", &[experts], Fill::Normal { mean: 0.0, std: 0.01 });
        }
        self.matrix("ffn_gate_exps", &[width, expert_width, experts]);
        self.matrix("ffn_up_exps", &[width, expert_width, experts]);
        self.residual("ffn_down_exps", &[expert_width, width, experts]);
        if let Family::DeepSeek2 { shared, .. } = shape.family {
            self.swiglu("_shexp", shared * expert_width);
        }
    }
}
