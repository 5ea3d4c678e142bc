//! From a GGUF's keys and tensors to a recipe and a list of matrices, every shape checked against the keys.
//!
//! A file must be understood completely: a tensor that the recipe does not use, or a key that would change the
//! computation, is a refusal and not a wrong number later.

mod architecture;
mod experts;
mod identity;
mod keys;
mod tensors;

use crate::error::{Error, Result};
use crate::gguf::{Gguf, Value};
use architecture::{Architecture, NEUTRAL};
use estream_idl::format::Format;
use estream_idl::pack::{NO_LAYER, Role};
use estream_idl::recipe::{Attention, Experts, FeedForward, Layer, MAX_LAYERS, Mixer, QkNorm, Recipe, Rope};
use experts::Projection;
pub use experts::{ExpertMatrix, Place};
use keys::Keys;
use tensors::Tensors;

/// A tensor (or one expert's part of it) as the pack stores it.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Number of the tensor.
    pub tensor: usize,
    /// Row of the tensor with which it begins.
    pub first_row: u64,
    /// Inputs.
    pub k: u32,
    /// Outputs; 0 for a vector.
    pub n: u32,
    /// Storage in the pack.
    pub format: Format,
}

/// A matrix that stays resident.
#[derive(Clone, Copy, Debug)]
pub struct Dense {
    /// What it is for.
    pub role: Role,
    /// Its layer, or [`NO_LAYER`].
    pub layer: u16,
    /// Its storage.
    pub matrix: Matrix,
}

/// The experts of one layer.
#[derive(Clone, Debug)]
pub struct SparseLayer {
    /// The layer.
    pub layer: u32,
    /// Experts.
    pub experts: u32,
    /// Width → expert width.
    pub gate: ExpertMatrix,
    /// Width → expert width.
    pub up: ExpertMatrix,
    /// Expert width → width.
    pub down: ExpertMatrix,
}

impl SparseLayer {
    /// Gate, up and down of `expert`, in the order of the record.
    #[must_use]
    pub fn record(&self, expert: u32) -> [Matrix; 3] {
        [&self.gate, &self.up, &self.down].map(|matrix| matrix.of(expert))
    }
}

/// A model that can be packed.
#[derive(Clone, Debug)]
pub struct Model {
    /// The value of `general.architecture`.
    pub architecture: &'static str,
    /// The model as numbers.
    pub recipe: Recipe,
    /// The embedding, `[width, vocab]`.
    pub embedding: Matrix,
    /// Resident matrices in the order of the pack.
    pub dense: Vec<Dense>,
    /// Layers with experts.
    pub sparse: Vec<SparseLayer>,
    /// Whether the head is the embedding, which the pack therefore stores twice.
    pub tied: bool,
}

impl Model {
    /// Understands a GGUF, completely or not at all.
    ///
    /// # Errors
    /// An input error that names the key or tensors concerned.
    pub fn of(gguf: &Gguf<'_>) -> Result<Self> {
        let architecture = identity::identify(gguf)?;
        let keys = Keys { gguf, architecture: architecture.name };
        refuse_unknown_switches(&keys, architecture)?;
        Builder { architecture, keys, tensors: Tensors::new(gguf) }.build()
    }
}

/// The numbers of one layer before its tensors are looked at.
struct Sizes {
    width: u32,
    heads: u32,
    kv_heads: u32,
    key_width: u32,
    value_width: u32,
    experts: u32,
    expert_width: u32,
}

struct Builder<'a> {
    architecture: &'static Architecture,
    keys: Keys<'a>,
    tensors: Tensors<'a>,
}

impl Builder<'_> {
    fn build(mut self) -> Result<Model> {
        let keys = &self.keys;
        let layers = keys.u32("block_count")? as usize;
        if layers == 0 || layers > MAX_LAYERS {
            let message = format!("block_count is {layers}; 1 to {MAX_LAYERS} layers are possible");
            return Err(Error::input("unsupported-shape", message));
        }
        let width = keys.u32("embedding_length")?;
        let mut recipe = Recipe {
            width,
            vocab: 0,
            context: keys.u32("context_length")?,
            epsilon: keys.f32("attention.layer_norm_rms_epsilon")?,
            kinds: Default::default(),
            layers: Default::default(),
        };
        let heads = keys.per_layer("attention.head_count", layers)?;
        let kv_heads = match keys.value("attention.head_count_kv") {
            Some(_) => keys.per_layer("attention.head_count_kv", layers)?,
            None => heads.clone(),
        };
        let width_key = self.architecture.expert_width.iter().find(|key| keys.value(key).is_some());
        let expert_widths =
            keys.per_layer(width_key.unwrap_or(&self.architecture.expert_width[0]), layers)?;
        let experts = keys.u32("expert_count")?;

        let embedding = self.embedding(&mut recipe)?;
        let (mut dense, mut sparse) = (Vec::new(), Vec::new());
        for layer in 0..layers {
            let per_head = width.checked_div(heads[layer]).unwrap_or(0);
            let sizes = Sizes {
                width,
                heads: heads[layer],
                kv_heads: kv_heads[layer],
                key_width: self.keys.optional_u32("attention.key_length")?.unwrap_or(per_head),
                value_width: self.keys.optional_u32("attention.value_length")?.unwrap_or(per_head),
                experts,
                expert_width: expert_widths[layer],
            };
            let kind = self.layer(layer, &sizes, &mut dense, &mut sparse)?;
            push_kind(&mut recipe, kind)?;
        }
        let tied = self.head(&recipe, embedding, &mut dense)?;
        self.tensors.finish()?;
        check_recipe(&recipe)?;
        Ok(Model { architecture: self.architecture.name, recipe, embedding, dense, sparse, tied })
    }

    fn embedding(&mut self, recipe: &mut Recipe) -> Result<Matrix> {
        let name = "token_embd.weight";
        let rows = self.tensors.rows(name)?;
        let gguf = self.keys.gguf;
        let vocab = u32::try_from(rows).unwrap_or(u32::MAX);
        let named = gguf.array_len("tokenizer.ggml.tokens").unwrap_or(rows);
        let keyed = self.keys.optional_u32("vocab_size")?.unwrap_or(vocab);
        if named != rows || keyed != vocab {
            let message =
                format!("{rows} rows, but the vocabulary has {named} tokens and vocab_size is {keyed}");
            return Err(Error::input("bad-shape", message).of(name));
        }
        recipe.vocab = vocab;
        self.tensors.matrix(name, recipe.width, vocab)
    }

    fn layer(
        &mut self,
        layer: usize,
        sizes: &Sizes,
        dense: &mut Vec<Dense>,
        sparse: &mut Vec<SparseLayer>,
    ) -> Result<Layer> {
        let Sizes { width, heads, kv_heads, key_width, value_width, experts, expert_width } = *sizes;
        let tensors = &mut self.tensors;
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let mut add = |role, matrix| dense.push(Dense { role, layer: layer as u16, matrix });
        let outputs = |heads: u32, width: u32| {
            heads.checked_mul(width).ok_or_else(|| {
                Error::input(
                    "size-overflow",
                    format!("size overflow: {heads} heads of {width} in layer {layer}"),
                )
            })
        };
        add(Role::MixerNorm, tensors.vector(&name("attn_norm"), width)?);
        add(Role::Query, tensors.matrix(&name("attn_q"), width, outputs(heads, key_width)?)?);
        add(Role::Key, tensors.matrix(&name("attn_k"), width, outputs(kv_heads, key_width)?)?);
        add(Role::Value, tensors.matrix(&name("attn_v"), width, outputs(kv_heads, value_width)?)?);
        let mut norm = QkNorm::None;
        if self.architecture.qk_norm {
            let whole = tensors.rows_of_vector(&name("attn_q_norm"))? != u64::from(key_width);
            norm = if whole { QkNorm::Whole } else { QkNorm::PerHead };
            let long = |heads| if whole { outputs(heads, key_width) } else { Ok(key_width) };
            add(Role::QueryNorm, tensors.vector(&name("attn_q_norm"), long(heads)?)?);
            add(Role::KeyNorm, tensors.vector(&name("attn_k_norm"), long(kv_heads)?)?);
        }
        add(Role::Output, tensors.matrix(&name("attn_output"), outputs(heads, value_width)?, width)?);
        add(Role::FeedNorm, tensors.vector(&name("ffn_norm"), width)?);
        add(Role::Router, tensors.matrix(&name("ffn_gate_inp"), width, experts)?);
        sparse.push(SparseLayer {
            layer: layer as u32,
            experts,
            gate: tensors.experts(layer, Projection::Gate, width, expert_width, experts)?,
            up: tensors.experts(layer, Projection::Up, width, expert_width, experts)?,
            down: tensors.experts(layer, Projection::Down, expert_width, width, experts)?,
        });
        let attention = Attention {
            heads,
            kv_heads,
            key_width,
            value_width,
            scale: 1.0 / (key_width as f32).sqrt(),
            norm,
            rope: Rope {
                pairs: self.architecture.pairs,
                width: self.keys.optional_u32("rope.dimension_count")?.unwrap_or(key_width),
                base: self.keys.optional_f32("rope.freq_base")?.unwrap_or(10_000.0),
            },
        };
        let chosen = self.keys.u32("expert_used_count")?;
        let renormalise = self.architecture.renormalise;
        let experts = Experts { experts, chosen, width: expert_width, renormalise };
        Ok(Layer { mixer: Mixer::Attention(attention), feed_forward: FeedForward::Experts(experts) })
    }

    fn head(&mut self, recipe: &Recipe, embedding: Matrix, dense: &mut Vec<Dense>) -> Result<bool> {
        let norm = self.tensors.vector("output_norm.weight", recipe.width)?;
        dense.push(Dense { role: Role::FinalNorm, layer: NO_LAYER, matrix: norm });
        let tied = self.architecture.may_tie && self.keys.gguf.find("output.weight").is_none();
        let matrix = if tied {
            embedding
        } else {
            self.tensors.matrix("output.weight", recipe.width, recipe.vocab)?
        };
        dense.push(Dense { role: Role::Head, layer: NO_LAYER, matrix });
        Ok(tied)
    }
}

fn push_kind(recipe: &mut Recipe, kind: Layer) -> Result<()> {
    let known = recipe.kinds.iter().position(|other| *other == kind);
    let index = match known {
        Some(index) => index,
        None => {
            recipe.kinds.push(kind).map_err(|_| {
                Error::input(
                    "unsupported-shape",
                    format!("more than {} different layers", recipe.kinds.len()),
                )
            })?;
            recipe.kinds.len() - 1
        }
    };
    // `build` has bounded the layers by the capacity.
    recipe.layers.push(index as u8).map_err(|_| Error::input("unsupported-shape", "too many layers"))
}

/// Refuses what the firmware would refuse, while the file's name is still known.
fn check_recipe(recipe: &Recipe) -> Result<()> {
    match Recipe::decode(&encode_recipe(recipe)?) {
        Some(_) => Ok(()),
        None => Err(Error::input(
            "unsupported-shape",
            format!(
                "the sizes are outside what can be computed (width {}, vocabulary {}, context {}, {:?})",
                recipe.width, recipe.vocab, recipe.context, recipe.kinds
            ),
        )),
    }
}

pub(crate) fn encode_recipe(recipe: &Recipe) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 64 << 10];
    let used = postcard::to_slice(recipe, &mut bytes)
        .map_err(|error| Error::input("unsupported-shape", format!("the recipe does not fit: {error}")))?
        .len();
    bytes.truncate(used);
    Ok(bytes)
}

fn refuse_unknown_switches(keys: &Keys<'_>, architecture: &Architecture) -> Result<()> {
    let refused = |key: &str, value: String| {
        let message = format!("{}.{key} is {value}, which is not supported", architecture.name);
        Err(Error::input("unsupported-key", message))
    };
    for (key, neutral) in &NEUTRAL {
        let number = match keys.value(key) {
            None => continue,
            Some(Value::Unsigned(value)) => value as f64,
            Some(Value::Signed(value)) => value as f64,
            Some(Value::Float(value)) => value,
            Some(Value::Bool(value)) => f64::from(u8::from(value)),
            Some(other) => return refused(key, other.name().to_owned()),
        };
        if !neutral.contains(&number) {
            return refused(key, number.to_string());
        }
    }
    match keys.value("expert_weights_norm") {
        Some(Value::Bool(norm)) if norm != architecture.renormalise => {
            return refused("expert_weights_norm", norm.to_string());
        }
        _ => {}
    }
    match keys.gguf.string(&format!("{}.rope.scaling.type", architecture.name))? {
        Some(kind) if kind != "none" => refused("rope.scaling.type", kind),
        _ => Ok(()),
    }
}
