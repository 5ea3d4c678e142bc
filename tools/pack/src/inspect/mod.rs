//! What is in a GGUF or a pack: real types and bytes by component, what streaming will move, what is stored twice.
//!
//! A GGUF is described even where it cannot be packed; then `refusal` says why and the figures that only a pack has are
//! absent rather than guessed.

mod gguf;
mod pack;
mod show;

use crate::error::Result;
use crate::model::Model;
use crate::model_files::ModelFiles;
use crate::pack_file;
use crate::source::{FileRange, Source};
use estream_idl::recipe::{FeedForward, Recipe};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What a file holds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Inspection {
    /// `gguf` or `pack`.
    pub kind: &'static str,
    /// Bytes of the file, or of all files of a split model.
    pub file_bytes: u64,
    /// The value of `general.architecture`.
    pub architecture: Option<String>,
    /// The model's name, as the file gives it.
    pub name: Option<String>,
    /// Why a GGUF cannot be packed; `None` where it can.
    pub refusal: Option<String>,
    /// The sizes of the model, where it is understood.
    pub model: Option<Sizes>,
    /// Bytes by component and type.
    pub components: Vec<Component>,
    /// W_e, the largest expert record.
    pub record_bytes: Option<u64>,
    /// Each layer's records.
    pub sparse_layers: Vec<Records>,
    /// What one group is, for the powers of two up to all experts.
    pub groups: Vec<Group>,
    /// What the pack stores twice, and why.
    pub duplicates: Vec<Duplicate>,
}

/// The sizes of a model; those of experts are its first sparse layer's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sizes {
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: u32,
    /// Vocabulary entries.
    pub vocab: u32,
    /// The longest request that the model was made for.
    pub context: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts of a token.
    pub chosen: u32,
    /// Inner width of an expert.
    pub expert_width: u32,
}

/// A part of the model.
#[derive(Clone, Debug, Serialize)]
pub struct Component {
    /// `embedding`, `attention`, `router`, `experts`, `head`, `norms` or another part's name.
    pub component: &'static str,
    /// Bytes of its tensors.
    pub bytes: u64,
    /// Its types, most bytes first.
    pub types: Vec<TypeShare>,
}

/// How much of a component has one type.
#[derive(Clone, Debug, Serialize)]
pub struct TypeShare {
    /// The type's name.
    pub r#type: String,
    /// Tensors (in a pack: matrices) of it.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The records of one layer.
#[derive(Clone, Debug, Serialize)]
pub struct Records {
    /// The layer.
    pub layer: u32,
    /// Records.
    pub experts: u32,
    /// W_l, bytes of each.
    pub record_bytes: u64,
    /// Type of the gate matrices.
    pub gate: String,
    /// Type of the up matrices.
    pub up: String,
    /// Type of the down matrices.
    pub down: String,
    /// Experts in storage order; `None` where it is by number (and for a GGUF).
    pub order: Option<Vec<u16>>,
}

/// G experts loaded as one range.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Group {
    /// G.
    pub experts: u32,
    /// Bytes of a whole group, G·W_e.
    pub bytes: u64,
    /// Groups of a layer.
    pub groups: u32,
}

/// Something that the pack stores twice.
#[derive(Clone, Debug, Serialize)]
pub struct Duplicate {
    /// What, and why.
    pub what: String,
    /// Bytes of the second copy.
    pub bytes: u64,
}

/// Describes the GGUF (or any file of a split one, or its folder) or pack at `path`.
///
/// # Errors
/// For a file that is neither, or is damaged.
pub fn inspect(path: &Path) -> Result<Inspection> {
    let is_pack = !path.is_dir() && {
        let source = FileRange::open(path)?;
        let mut first = [0; 8];
        let known = (first.len() as u64).min(source.bytes()) as usize;
        source.read_at(0, &mut first[..known]).is_ok() && pack_file::has_magic(&first)
    };
    let inspection = if is_pack {
        pack::inspect(path)
    } else {
        ModelFiles::open(path).and_then(|files| gguf::inspect(&files))
    };
    inspection.map_err(|error| error.in_file(path))
}

impl Sizes {
    fn of(recipe: &Recipe) -> Option<Self> {
        let experts = recipe.kinds.iter().find_map(|kind| match kind.feed_forward {
            FeedForward::Experts(experts) => Some(experts),
            FeedForward::Dense { .. } => None,
        })?;
        Some(Self {
            layers: recipe.layers.len(),
            width: recipe.width,
            vocab: recipe.vocab,
            context: recipe.context,
            experts: experts.experts,
            chosen: experts.chosen,
            expert_width: experts.width,
        })
    }
}

/// G = 1, 2, 4, … and all experts.
fn groups(experts: u32, record_bytes: u64) -> Vec<Group> {
    let powers = (0..32).map(|power| 1u32 << power).take_while(|&group| group < experts);
    powers
        .chain([experts])
        .map(|group| Group {
            experts: group,
            bytes: u64::from(group) * record_bytes,
            groups: experts.div_ceil(group.max(1)),
        })
        .collect()
}

/// Adds up tensors by component and type.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, BTreeMap<String, (u64, u64)>>);

impl Tally {
    fn add(&mut self, component: &'static str, name: String, tensors: u64, bytes: u64) {
        let share = self.0.entry(component).or_default().entry(name).or_default();
        share.0 += tensors;
        share.1 += bytes;
    }

    fn components(self) -> Vec<Component> {
        let mut components: Vec<Component> = (self.0.into_iter())
            .map(|(component, types)| {
                let mut types: Vec<TypeShare> = (types.into_iter())
                    .map(|(name, (tensors, bytes))| TypeShare { r#type: name, tensors, bytes })
                    .collect();
                types.sort_by_key(|share| std::cmp::Reverse(share.bytes));
                Component { component, bytes: types.iter().map(|share| share.bytes).sum(), types }
            })
            .collect();
        components.sort_by_key(|component| std::cmp::Reverse(component.bytes));
        components
    }
}

/// What the pack of `model` repeats.
fn duplicates(model: &Model) -> Vec<Duplicate> {
    let head = &model.embedding;
    let bytes = head.format.matrix_bytes(head.k as usize, head.n as usize) as u64;
    if model.tied { vec![tied_head(bytes)] } else { Vec::new() }
}

fn tied_head(bytes: u64) -> Duplicate {
    let what = "the head is the embedding (tied): stored as rows and as strips".to_owned();
    Duplicate { what, bytes }
}
