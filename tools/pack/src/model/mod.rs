//! From a GGUF's keys and tensors to a recipe and a list of matrices, every shape checked against the keys.
//!
//! A file must be understood completely: a tensor that the recipe does not use, or a key that would change the
//! computation, is a refusal and not a wrong number later.

mod architecture;
mod attention;
mod experts;
mod feeds;
mod identity;
mod keys;
mod tensors;

use crate::error::{Error, Result};
use crate::gguf::{Gguf, Value};
use architecture::{Architecture, NEUTRAL};
use estream_idl::format::Format;
use estream_idl::pack::{NO_LAYER, Role};
use estream_idl::recipe::{Layer, MAX_LAYERS, Recipe};
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
    /// Rows that stand together in the tensor; all of them unless it shares the tensor with another matrix.
    pub run: u32,
    /// Rows from one run to the next.
    pub stride: u64,
    /// Inputs.
    pub k: u32,
    /// Outputs; 0 for a vector.
    pub n: u32,
    /// Storage in the pack.
    pub format: Format,
}

impl Matrix {
    /// Where rows `first..first + count` stand in the tensor: (first row, rows) a piece.
    pub fn pieces(&self, first: usize, count: usize) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (run, stride, begin) = (self.run as usize, self.stride, self.first_row);
        let mut at = first;
        std::iter::from_fn(move || {
            let piece = (at / run, at % run);
            let rows = (run - piece.1).min(first + count - at);
            at += rows;
            (rows > 0).then(|| (begin + piece.0 as u64 * stride + piece.1 as u64, rows))
        })
    }
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
        let width = keys.u32("embedding_length")?;
        let tensors = Tensors::new(gguf);
        Builder { architecture, keys, tensors, width, dense: Vec::new(), sparse: Vec::new() }.build()
    }
}

struct Builder<'a> {
    architecture: &'static Architecture,
    keys: Keys<'a>,
    tensors: Tensors<'a>,
    width: u32,
    dense: Vec<Dense>,
    sparse: Vec<SparseLayer>,
}

impl Builder<'_> {
    fn build(mut self) -> Result<Model> {
        let keys = &self.keys;
        let layers = keys.u32("block_count")? as usize;
        if layers == 0 || layers > MAX_LAYERS {
            let message = format!("block_count is {layers}; 1 to {MAX_LAYERS} layers are possible");
            return Err(Error::input("unsupported-shape", message));
        }
        let mut recipe = Recipe {
            width: self.width,
            vocab: 0,
            context: keys.u32("context_length")?,
            epsilon: keys.f32("attention.layer_norm_rms_epsilon")?,
            kinds: Default::default(),
            layers: Default::default(),
        };
        let heads = attention::heads(keys, layers)?;
        let feeds = feeds::widths(keys, self.architecture, layers)?;
        let embedding = self.embedding(&mut recipe)?;
        for (layer, (heads, feed)) in heads.into_iter().zip(feeds).enumerate() {
            let norm = self.tensors.vector(&format!("blk.{layer}.attn_norm.weight"), self.width)?;
            self.add(layer, Role::MixerNorm, norm);
            let mixer = self.mixer(layer, heads)?;
            let norm = self.tensors.vector(&format!("blk.{layer}.ffn_norm.weight"), self.width)?;
            self.add(layer, Role::FeedNorm, norm);
            let feed_forward = self.feed(layer, feed)?;
            push_kind(&mut recipe, Layer { mixer, feed_forward })?;
        }
        let tied = self.head(&recipe, embedding)?;
        self.tensors.finish()?;
        check_recipe(&recipe)?;
        let (dense, sparse) = (self.dense, self.sparse);
        Ok(Model { architecture: self.architecture.name, recipe, embedding, dense, sparse, tied })
    }

    fn add(&mut self, layer: usize, role: Role, matrix: Matrix) {
        self.dense.push(Dense { role, layer: layer as u16, matrix });
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

    fn head(&mut self, recipe: &Recipe, embedding: Matrix) -> Result<bool> {
        let norm = self.tensors.vector(self.architecture.final_norm, recipe.width)?;
        self.dense.push(Dense { role: Role::FinalNorm, layer: NO_LAYER, matrix: norm });
        let tied = self.architecture.may_tie && self.keys.gguf.find("output.weight").is_none();
        let matrix = if tied {
            embedding
        } else {
            self.tensors.matrix("output.weight", recipe.width, recipe.vocab)?
        };
        self.dense.push(Dense { role: Role::Head, layer: NO_LAYER, matrix });
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
    match keys.gguf.string(&format!("{}.rope.scaling.type", architecture.name))? {
        Some(kind) if kind != "none" && !(kind == "yarn" && architecture.latent) => {
            refused("rope.scaling.type", kind)
        }
        _ => Ok(()),
    }
}
