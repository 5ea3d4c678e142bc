//! Feed-forward parts: what a layer's keys and tensors say about its experts, or about the one unit that it has instead.

use super::architecture::Architecture;
use super::experts::Projection;
use super::keys::Keys;
use super::{Builder, SparseLayer};
use crate::error::{Error, Result};
use crate::gguf::Value;
use estream_idl::pack::Role;
use estream_idl::recipe::{Experts, FeedForward, Gating};

/// One layer's inner width.
#[derive(Clone, Copy)]
pub(super) enum Width {
    Experts(u32),
    Dense(u32),
}

/// Inner widths of all layers: the leading ones may be dense.
pub(super) fn widths(keys: &Keys<'_>, architecture: &Architecture, layers: usize) -> Result<Vec<Width>> {
    let key = architecture.expert_width.iter().find(|key| keys.value(key).is_some());
    let experts = keys.per_layer(key.unwrap_or(&architecture.expert_width[0]), layers)?;
    let leading = keys.optional_u32("leading_dense_block_count")?.unwrap_or(0) as usize;
    let dense = if leading > 0 { keys.per_layer("feed_forward_length", layers)? } else { experts.clone() };
    let width = |layer: usize| match layer < leading {
        true => Width::Dense(dense[layer]),
        false => Width::Experts(experts[layer]),
    };
    Ok((0..layers).map(width).collect())
}

impl Builder<'_> {
    /// The feed-forward part of a layer, its matrices added.
    pub(super) fn feed(&mut self, layer: usize, width: Width) -> Result<FeedForward> {
        match width {
            Width::Dense(width) => {
                self.unit(layer, "", width)?;
                Ok(FeedForward::Dense { width })
            }
            Width::Experts(width) => Ok(FeedForward::Experts(self.experts(layer, width)?)),
        }
    }

    /// A unit that all tokens pass.
    fn unit(&mut self, layer: usize, suffix: &str, inner: u32) -> Result<()> {
        let width = self.width;
        for (role, part, k, n) in [
            (Role::Gate, "gate", width, inner),
            (Role::Up, "up", width, inner),
            (Role::Down, "down", inner, width),
        ] {
            let matrix = self.tensors.matrix(&format!("blk.{layer}.ffn_{part}{suffix}.weight"), k, n)?;
            self.add(layer, role, matrix);
        }
        Ok(())
    }

    /// The inner width of the unit that all tokens pass beside the experts, 0 where there is none: said by a key of its
    /// own, or so many experts' width. Either is checked against the tensors.
    fn shared_width(&self, layer: usize, inner: u32) -> Result<u32> {
        let count = self.keys.optional_u32("expert_shared_count")?.unwrap_or(0);
        match self.keys.optional_u32("expert_shared_feed_forward_length")? {
            Some(width) if width > 0 => Ok(width),
            _ => count.checked_mul(inner).ok_or_else(|| {
                let message = format!("size overflow: {count} shared experts of {inner} in layer {layer}");
                Error::input("size-overflow", message)
            }),
        }
    }

    fn experts(&mut self, layer: usize, inner: u32) -> Result<Experts> {
        let (width, experts) = (self.width, self.keys.u32("expert_count")?);
        let router = self.tensors.matrix(&format!("blk.{layer}.ffn_gate_inp.weight"), width, experts)?;
        self.add(layer, Role::Router, router);
        let bias = format!("blk.{layer}.exp_probs_b.bias");
        let biased = self.tensors.has(&bias);
        if biased {
            let bias = self.tensors.vector(&bias, experts)?;
            self.add(layer, Role::ChoiceBias, bias);
        }
        let shared = self.shared_width(layer, inner)?;
        if shared > 0 {
            self.unit(layer, "_shexp", shared)?;
        }
        self.sparse.push(SparseLayer {
            layer: layer as u32,
            experts,
            gate: self.tensors.experts(layer, Projection::Gate, width, inner, experts)?,
            up: self.tensors.experts(layer, Projection::Up, width, inner, experts)?,
            down: self.tensors.experts(layer, Projection::Down, inner, width, experts)?,
        });
        let gating = match self.keys.optional_u32("expert_gating_func")?.unwrap_or(0) {
            0 | 1 => Gating::Softmax,
            2 => Gating::Sigmoid,
            other => {
                let message = format!("{}.expert_gating_func is {other}", self.architecture.name);
                return Err(Error::input("unsupported-key", message));
            }
        };
        let renormalise = match self.keys.value("expert_weights_norm") {
            Some(Value::Bool(norm)) => norm,
            _ => self.architecture.renormalise,
        };
        // 0 is what converters write for "not scaled".
        let scale =
            self.keys.optional_f32("expert_weights_scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0);
        Ok(Experts {
            experts,
            chosen: self.keys.u32("expert_used_count")?,
            width: inner,
            gating,
            biased,
            renormalise,
            scale,
            shared,
        })
    }
}
