//! Mixers: what a layer's keys and tensors say about how its tokens see each other.

use super::keys::Keys;
use super::{Builder, Matrix};
use crate::error::{Error, Result};
use estream_idl::pack::Role;
use estream_idl::recipe::{Attention, Convolution, Latent, Mixer, QkNorm, Rope, RopeScaling};

/// Heads of one layer.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    query: u32,
    /// 0 marks a layer without attention.
    key: u32,
}

/// Heads of every layer.
pub(super) fn heads(keys: &Keys<'_>, layers: usize) -> Result<Vec<Heads>> {
    let query = keys.per_layer("attention.head_count", layers)?;
    let key = match keys.value("attention.head_count_kv") {
        Some(_) => keys.per_layer("attention.head_count_kv", layers)?,
        None => query.clone(),
    };
    Ok(query.into_iter().zip(key).map(|(query, key)| Heads { query, key }).collect())
}

fn product(a: u32, b: u32, layer: usize) -> Result<u32> {
    a.checked_mul(b).ok_or_else(|| {
        Error::input("size-overflow", format!("size overflow: {a} heads of {b} in layer {layer}"))
    })
}

impl Builder<'_> {
    /// The mixer of a layer, its matrices added.
    pub(super) fn mixer(&mut self, layer: usize, heads: Heads) -> Result<Mixer> {
        let convolution = format!("blk.{layer}.shortconv.in_proj.weight");
        if self.architecture.latent {
            self.latent(layer, heads.query)
        } else if heads.key == 0 && self.tensors.has(&convolution) {
            self.convolution(layer)
        } else {
            self.grouped(layer, heads)
        }
    }

    fn grouped(&mut self, layer: usize, heads: Heads) -> Result<Mixer> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let width = self.width;
        let per_head = width.checked_div(heads.query).unwrap_or(0);
        let key_width = self.keys.optional_u32("attention.key_length")?.unwrap_or(per_head);
        let value_width = self.keys.optional_u32("attention.value_length")?.unwrap_or(per_head);
        let matrix = |builder: &mut Self, role, part: &str, k, n| {
            let matrix = builder.tensors.matrix(&name(part), k, n)?;
            builder.add(layer, role, matrix);
            Result::Ok(())
        };
        matrix(self, Role::Query, "attn_q", width, product(heads.query, key_width, layer)?)?;
        matrix(self, Role::Key, "attn_k", width, product(heads.key, key_width, layer)?)?;
        matrix(self, Role::Value, "attn_v", width, product(heads.key, value_width, layer)?)?;
        matrix(self, Role::Output, "attn_output", product(heads.query, value_width, layer)?, width)?;
        let mut norm = QkNorm::None;
        if self.architecture.qk_norm {
            let whole = self.tensors.rows_of_vector(&name("attn_q_norm"))? != u64::from(key_width);
            norm = if whole { QkNorm::Whole } else { QkNorm::PerHead };
            let long = |heads| if whole { product(heads, key_width, layer) } else { Ok(key_width) };
            let query = self.tensors.vector(&name("attn_q_norm"), long(heads.query)?)?;
            let key = self.tensors.vector(&name("attn_k_norm"), long(heads.key)?)?;
            self.add(layer, Role::QueryNorm, query);
            self.add(layer, Role::KeyNorm, key);
        }
        Ok(Mixer::Attention(Attention {
            heads: heads.query,
            kv_heads: heads.key,
            key_width,
            value_width,
            scale: 1.0 / (key_width as f32).sqrt(),
            norm,
            rope: Rope {
                pairs: self.architecture.pairs,
                width: self.keys.optional_u32("rope.dimension_count")?.unwrap_or(key_width),
                base: self.rope_base()?,
                scaling: RopeScaling::None,
            },
        }))
    }

    fn rope_base(&self) -> Result<f32> {
        Ok(self.keys.optional_f32("rope.freq_base")?.unwrap_or(10_000.0))
    }

    fn convolution(&mut self, layer: usize) -> Result<Mixer> {
        let name = |part: &str| format!("blk.{layer}.shortconv.{part}.weight");
        let (width, taps) = (self.width, self.keys.u32("shortconv.l_cache")?);
        let input = self.tensors.matrix(&name("in_proj"), width, product(3, width, layer)?)?;
        let kernel = self.tensors.rows_as_vector(&name("conv"), taps, width)?;
        let output = self.tensors.matrix(&name("out_proj"), width, width)?;
        self.add(layer, Role::ConvolutionIn, input);
        self.add(layer, Role::Taps, kernel);
        self.add(layer, Role::ConvolutionOut, output);
        Ok(Mixer::Convolution(Convolution { taps }))
    }

    fn latent(&mut self, layer: usize, heads: u32) -> Result<Mixer> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        if self.keys.optional_u32("attention.q_lora_rank")?.unwrap_or(0) != 0 {
            let message = "queries from a latent vector of their own (q_lora_rank) are not supported";
            return Err(Error::input("unsupported-key", message));
        }
        let latent = self.keys.u32("attention.kv_lora_rank")?;
        let rotated = self.keys.u32("rope.dimension_count")?;
        // Files since 2025 name the widths of the heads apart from those of the latent space, and store the key matrix
        // turned round.
        let absorbed = self.keys.value("attention.key_length_mla").is_some();
        let [key_width, value_width] = if absorbed {
            [self.keys.u32("attention.key_length_mla")?, self.keys.u32("attention.value_length_mla")?]
        } else {
            [self.keys.u32("attention.key_length")?, self.keys.u32("attention.value_length")?]
        };
        let Some(plain) = key_width.checked_sub(rotated).filter(|&plain| plain > 0) else {
            let message = format!("heads of {key_width} elements, {rotated} of them rotated");
            return Err(Error::input("unsupported-shape", message));
        };
        let query = self.tensors.matrix(&name("attn_q"), self.width, product(heads, key_width, layer)?)?;
        let down = self.tensors.matrix(&name("attn_kv_a_mqa"), self.width, latent.saturating_add(rotated))?;
        let norm = self.tensors.vector(&name("attn_kv_a_norm"), latent)?;
        let (key, value) = if absorbed {
            (
                self.tensors.stacked(&name("attn_k_b"), plain, latent, heads)?,
                self.tensors.stacked(&name("attn_v_b"), latent, value_width, heads)?,
            )
        } else {
            // A head's key rows, then its value rows.
            let both = plain.saturating_add(value_width);
            let all = self.tensors.matrix(&name("attn_kv_b"), latent, product(heads, both, layer)?)?;
            let half = |first: u32, run: u32| Matrix {
                first_row: first.into(),
                run,
                stride: both.into(),
                n: heads * run,
                ..all
            };
            (half(0, plain), half(plain, value_width))
        };
        let output =
            self.tensors.matrix(&name("attn_output"), product(heads, value_width, layer)?, self.width)?;
        for (role, matrix) in [
            (Role::Query, query),
            (Role::Latent, down),
            (Role::LatentNorm, norm),
            (Role::KeyUp, key),
            (Role::ValueUp, value),
            (Role::Output, output),
        ] {
            self.add(layer, role, matrix);
        }
        let (rope, stretch) = self.yarn(rotated)?;
        let scale = stretch * stretch / (key_width as f32).sqrt();
        Ok(Mixer::Latent(Latent { heads, latent, plain, value_width, scale, rope, absorbed }))
    }

    /// Rotary positions with YaRN where the file asks for it, and mscale, by which queries and keys are both multiplied.
    ///
    /// The published model uses β 32 and 1, which llama.cpp takes as given for this architecture; other values in the
    /// file are refused there by nobody and here by name.
    fn yarn(&self, width: u32) -> Result<(Rope, f32)> {
        let base = self.rope_base()?;
        let plain = Rope { pairs: self.architecture.pairs, width, base, scaling: RopeScaling::None };
        let kind = self.keys.gguf.string(&format!("{}.rope.scaling.type", self.architecture.name))?;
        if kind.as_deref() != Some("yarn") {
            return Ok((plain, 1.0));
        }
        for (key, beta) in [("rope.scaling.yarn_beta_fast", 32.0), ("rope.scaling.yarn_beta_slow", 1.0)] {
            if self.keys.optional_f32(key)?.is_some_and(|value| value != beta) {
                let message = format!("{}.{key} is not {beta}", self.architecture.name);
                return Err(Error::input("unsupported-key", message));
            }
        }
        let factor = self.keys.f32("rope.scaling.factor")?;
        let original = f64::from(self.keys.u32("rope.scaling.original_context_length")?);
        let log = f64::from(base).ln();
        // The pair that turns `turns` times within the original context.
        let pair =
            |turns: f64| f64::from(width) * (original / (turns * std::f64::consts::TAU)).ln() / (2.0 * log);
        let low = pair(32.0).floor().max(0.0) as f32;
        let high = pair(1.0).ceil().min(f64::from(width) - 1.0) as f32;
        // Stored as a tenth of mscale.
        let mscale = self.keys.optional_f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0) / 0.1;
        let stretch = 1.0 + 0.1 * mscale * factor.ln();
        Ok((Rope { scaling: RopeScaling::Yarn { factor, low, high }, ..plain }, stretch))
    }
}
