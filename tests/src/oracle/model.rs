//! A whole model: its numbers from the metadata, its layers, and the pass over one prompt.

use super::attention::{Attention, Pairs};
use super::experts::Experts;
use super::gguf::{Gguf, Values};
use super::linear::{Rows, multiply, rms_norm};
use super::{Choice, Error};
use ndarray::Array2;
use std::path::Path;

/// The numbers that layers compute with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) key_width: usize,
    pub(super) epsilon: f64,
    pub(super) rope_base: f64,
    pub(super) pairs: Pairs,
    pub(super) experts: usize,
    pub(super) chosen: usize,
    pub(super) renormalise: bool,
}

#[derive(Debug)]
struct Layer {
    mixer_norm: Values,
    attention: Attention,
    feed_norm: Values,
    experts: Experts,
}

/// A model, its weights dequantised to f32.
#[derive(Debug)]
pub struct Model {
    shape: Shape,
    embedding: Values,
    layers: Vec<Layer>,
    final_norm: Values,
    /// None where the head is the embedding.
    head: Option<Values>,
}

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Logits, `[tokens, vocabulary]`, computed in f64 and rounded once.
    pub logits: Array2<f32>,
    /// The router's choices, `[layer][token]`.
    pub routing: Vec<Vec<Choice>>,
}

impl Forward {
    /// The first position where some layer's choice is no firmer than `margin`: from there on an engine that rounds
    /// differently may rightly give different logits. `None` where every choice is firmer.
    #[must_use]
    pub fn first_doubtful(&self, margin: f64) -> Option<usize> {
        (0..self.logits.nrows()).find(|&t| self.routing.iter().any(|layer| layer[t].margin <= margin))
    }
}

impl Model {
    /// Loads a GGUF.
    ///
    /// # Errors
    /// When it cannot be read, or is of an architecture or type that the oracle does not know.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::load(&Gguf::open(path)?)
    }

    /// Loads a model from a GGUF in memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn load(file: &Gguf) -> Result<Self, Error> {
        let architecture = file.text("general.architecture")?;
        let (pairs, renormalise, epsilon) = match architecture {
            "olmoe" => (Pairs::Halves, false, 1e-5),
            "qwen3moe" => (Pairs::Halves, true, 1e-6),
            "llama" => (Pairs::Adjacent, true, 1e-5),
            other => return Err(Error::Model(format!("the oracle does not know the architecture {other}"))),
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let needed = |name: &str| {
            file.integer(&key(name))?.ok_or_else(|| Error::Model(format!("no {architecture}.{name}")))
        };
        let (width, heads) = (needed("embedding_length")?, needed("attention.head_count")?);
        let shape = Shape {
            heads,
            kv_heads: file.integer(&key("attention.head_count_kv"))?.unwrap_or(heads),
            key_width: file.integer(&key("attention.key_length"))?.unwrap_or(width / heads),
            epsilon: file.float(&key("attention.layer_norm_rms_epsilon"))?.unwrap_or(epsilon),
            rope_base: file.float(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            pairs,
            experts: needed("expert_count")?,
            chosen: needed("expert_used_count")?,
            renormalise,
        };
        let layers = (0..needed("block_count")?)
            .map(|layer| {
                Ok(Layer {
                    mixer_norm: file.tensor(&format!("blk.{layer}.attn_norm.weight"))?,
                    attention: Attention::load(file, layer)?,
                    feed_norm: file.tensor(&format!("blk.{layer}.ffn_norm.weight"))?,
                    experts: Experts::load(file, layer)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let head = if file.has("output.weight") { Some(file.tensor("output.weight")?) } else { None };
        Ok(Self {
            shape,
            embedding: file.tensor("token_embd.weight")?,
            layers,
            final_norm: file.tensor("output_norm.weight")?,
            head,
        })
    }

    /// Entries of the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.embedding.shape[1]
    }

    /// Layers.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Experts of a layer.
    #[must_use]
    pub fn experts(&self) -> usize {
        self.shape.experts
    }

    /// The pass over one prompt.
    ///
    /// # Panics
    /// When a token is outside the vocabulary.
    #[must_use]
    pub fn forward(&self, ids: &[u32]) -> Forward {
        let width = self.embedding.shape[0];
        let mut x = Rows::compute(ids.len(), width, |t, out| {
            let row = &self.embedding.data[ids[t] as usize * width..][..width];
            out.iter_mut().zip(row).for_each(|(to, &from)| *to = f64::from(from));
        });
        let mut routing = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let mixed = layer.attention.forward(&self.normed(&x, &layer.mixer_norm), &self.shape);
            x.add(&mixed);
            let (fed, choices) = layer.experts.forward(&self.normed(&x, &layer.feed_norm), &self.shape);
            x.add(&fed);
            routing.push(choices);
        }
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        let logits = multiply(&self.normed(&x, &self.final_norm), head, 0);
        let shape = (ids.len(), logits.width);
        let logits = logits.data.iter().map(|&logit| logit as f32).collect();
        Forward { logits: Array2::from_shape_vec(shape, logits).expect("rows times columns"), routing }
    }

    fn normed(&self, x: &Rows, weight: &Values) -> Rows {
        let mut out = x.clone();
        out.iter_mut().for_each(|row| rms_norm(row, &weight.data, self.shape.epsilon));
        out
    }
}
