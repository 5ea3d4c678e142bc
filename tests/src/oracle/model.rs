//! A whole model: its layers from a file, and the pass over one prompt.

use super::attention::Attention;
use super::convolution::Convolution;
use super::experts::{Experts, Units};
use super::gguf::{Gguf, Values};
use super::keys::Keys;
use super::latent::Latent;
use super::linear::{Rows, multiply, rms_norm};
use super::rope::Pairs;
use super::{Choice, Error};
use ndarray::Array2;
use std::path::Path;

/// How the tokens of a prompt see each other.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Attention with grouped queries.
    Attention(Attention),
    /// Attention from a latent vector.
    Latent(Latent),
    /// Short convolution.
    Convolution(Convolution),
}

/// What each token does alone.
#[derive(Clone, Debug)]
pub enum Feed {
    /// A router and experts.
    Experts(Box<Experts>),
    /// One unit.
    Unit(Units),
}

/// One layer: `h = x + mixer(norm(x)); y = h + feed(norm(h))`.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Norm before the mixer.
    pub mixer_norm: Values,
    /// The mixer.
    pub mixer: Mixer,
    /// Norm before the feed-forward part.
    pub feed_norm: Values,
    /// The feed-forward part.
    pub feed: Feed,
}

/// A model, its weights dequantised to f32.
#[derive(Clone, Debug)]
pub struct Model {
    /// ε of the layers' norms and the last one.
    pub epsilon: f64,
    /// Rows of the vocabulary.
    pub embedding: Values,
    /// Layers.
    pub layers: Vec<Layer>,
    /// Norm before the head.
    pub final_norm: Values,
    /// None where the head is the embedding.
    pub head: Option<Values>,
}

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Logits, `[tokens, vocabulary]`, computed in f64 and rounded once.
    pub logits: Array2<f32>,
    /// The routers' choices, `[layer with experts][token]`.
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

/// What no key says: pairs of the rotation, whether weights are divided by their sum, and the last norm's name.
fn switches(architecture: &str) -> Result<(Pairs, bool, &'static str), Error> {
    Ok(match architecture {
        "olmoe" => (Pairs::Halves, false, "output_norm"),
        "qwen3moe" => (Pairs::Halves, true, "output_norm"),
        "llama" => (Pairs::Adjacent, true, "output_norm"),
        "lfm2moe" => (Pairs::Halves, true, "token_embd_norm"),
        "deepseek2" => (Pairs::Adjacent, false, "output_norm"),
        "ernie4_5-moe" => (Pairs::Adjacent, true, "output_norm"),
        "dots1" => (Pairs::Halves, false, "output_norm"),
        other => return Err(Error::Model(format!("the oracle does not know the architecture {other}"))),
    })
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
        let (pairs, renormalise, final_norm) = switches(architecture)?;
        let keys = Keys { file, architecture };
        let epsilon = keys.needed_float("attention.layer_norm_rms_epsilon")?;
        let dense = keys.count("leading_dense_block_count")?.unwrap_or(0);
        let layer = |layer: usize| {
            let mixer = if keys.has("attention.kv_lora_rank") {
                Mixer::Latent(Latent::load(&keys, layer, pairs, epsilon)?)
            } else if keys.of_layer("attention.head_count_kv", layer)? == Some(0) {
                Mixer::Convolution(Convolution::load(&keys, layer)?)
            } else {
                Mixer::Attention(Attention::load(&keys, layer, pairs, epsilon)?)
            };
            let feed = if layer < dense {
                Feed::Unit(Units::load(&keys, layer, "")?)
            } else {
                Feed::Experts(Box::new(Experts::load(&keys, layer, renormalise)?))
            };
            let mixer_norm = keys.part(layer, "attn_norm.weight")?;
            Ok(Layer { mixer_norm, mixer, feed_norm: keys.part(layer, "ffn_norm.weight")?, feed })
        };
        let head = file.has("output.weight").then(|| file.tensor("output.weight")).transpose()?;
        Ok(Self {
            epsilon,
            embedding: file.tensor("token_embd.weight")?,
            layers: (0..keys.needed("block_count")?).map(layer).collect::<Result<_, Error>>()?,
            final_norm: file.tensor(&format!("{final_norm}.weight"))?,
            head,
        })
    }

    /// Entries of the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.embedding.shape[1]
    }

    /// The experts of each layer that has any.
    #[must_use]
    pub fn experts(&self) -> Vec<usize> {
        let count = |layer: &Layer| match &layer.feed {
            Feed::Experts(experts) => Some(experts.count()),
            Feed::Unit(_) => None,
        };
        self.layers.iter().filter_map(count).collect()
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
        let mut routing = Vec::new();
        for layer in &self.layers {
            let normed = self.normed(&x, &layer.mixer_norm);
            x.add(&match &layer.mixer {
                Mixer::Attention(attention) => attention.forward(&normed),
                Mixer::Latent(latent) => latent.forward(&normed),
                Mixer::Convolution(convolution) => convolution.forward(&normed),
            });
            let normed = self.normed(&x, &layer.feed_norm);
            x.add(&match &layer.feed {
                Feed::Experts(experts) => {
                    let (fed, choices) = experts.forward(&normed);
                    routing.push(choices);
                    fed
                }
                Feed::Unit(unit) => unit.forward(&normed, 0),
            });
        }
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        let logits = multiply(&self.normed(&x, &self.final_norm), head, 0);
        let shape = (ids.len(), logits.width);
        let logits = logits.data.iter().map(|&logit| logit as f32).collect();
        Forward { logits: Array2::from_shape_vec(shape, logits).expect("rows times columns"), routing }
    }

    fn normed(&self, x: &Rows, weight: &Values) -> Rows {
        let mut out = x.clone();
        out.iter_mut().for_each(|row| rms_norm(row, &weight.data, self.epsilon));
        out
    }
}
