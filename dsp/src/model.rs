//! The model as the firmware sees it: the recipe joined with the directory, every number checked once.
//!
//! A pack is hostile until checked: dimensions must be those that the recipe implies, formats must be known, extents must
//! lie inside their ranges and at their alignments. After [`Model::read`] no code of the engine checks them again.

use estream_idl::format::Format;
use estream_idl::pack::{Directory, DirectoryHeader, LayerEntry, MatrixEntry, NO_LAYER, Part, Role};
use estream_idl::recipe::{
    Attention, Convolution, Experts, FeedForward, Latent, Layer, Mixer, QkNorm, Recipe,
};
use estream_idl::status::{Refusal, Status};

/// A matrix of the dense segment or of an expert record.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Storage.
    pub format: Format,
    /// Inputs.
    pub k: usize,
    /// Outputs.
    pub n: usize,
    /// Byte offset in the segment or record.
    pub at: usize,
}

impl Matrix {
    /// Bytes of the matrix.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.format.matrix_bytes(self.k, self.n)
    }
}

/// A vector of f32 in the dense segment.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// Elements.
    pub len: usize,
    /// Byte offset in the dense segment.
    pub at: usize,
}

/// Weights of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionWeights {
    /// Width → heads · key_width.
    pub query: Matrix,
    /// Width → kv_heads · key_width.
    pub key: Matrix,
    /// Width → kv_heads · value_width.
    pub value: Matrix,
    /// heads · value_width → width.
    pub output: Matrix,
    /// Norm weights of queries and keys, where the recipe norms them.
    pub norms: Option<(Vector, Vector)>,
}

/// Weights of a latent attention layer.
#[derive(Clone, Copy, Debug)]
pub struct LatentWeights {
    /// Width → heads · (plain + rope width).
    pub query: Matrix,
    /// Width → latent + rope width.
    pub latent: Matrix,
    /// Norm weights of the latent vector.
    pub norm: Vector,
    /// A head after the other: plain → latent, or latent → plain.
    pub key: Matrix,
    /// Latent → heads · value_width.
    pub value: Matrix,
    /// heads · value_width → width.
    pub output: Matrix,
}

/// Weights of a convolution layer.
#[derive(Clone, Copy, Debug)]
pub struct ConvolutionWeights {
    /// Width → 3 · width.
    pub input: Matrix,
    /// `[width][taps]`.
    pub taps: Vector,
    /// Width → width.
    pub output: Matrix,
}

/// Weights of a mixer.
#[derive(Clone, Copy, Debug)]
pub enum MixerWeights {
    /// Grouped-query attention.
    Attention(AttentionWeights),
    /// Latent attention.
    Latent(LatentWeights),
    /// Short convolution.
    Convolution(ConvolutionWeights),
}

/// A gated unit: gate and up, width → inner; down, inner → width.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Width → inner.
    pub gate: Matrix,
    /// Width → inner.
    pub up: Matrix,
    /// Inner → width.
    pub down: Matrix,
}

impl Unit {
    /// How the three are stored.
    #[must_use]
    pub const fn formats(&self) -> [Format; 3] {
        [self.gate.format, self.up.format, self.down.format]
    }
}

/// Where a layer's experts stand and how they are stored.
#[derive(Clone, Copy, Debug)]
pub struct ExpertStore {
    /// Experts, E.
    pub experts: usize,
    /// Byte offset of the first record in the pack.
    pub file: u64,
    /// W_l.
    pub record_bytes: usize,
    /// First entry of this layer's π in the permutation table.
    pub permutation: usize,
    /// Offsets of an expert's matrices in its record.
    pub unit: Unit,
}

/// The weights of a layer with experts.
#[derive(Clone, Copy, Debug)]
pub struct SparseWeights {
    /// The layer among those with experts.
    pub ordinal: usize,
    /// The router, width → experts.
    pub router: Matrix,
    /// Bias of the choice.
    pub bias: Option<Vector>,
    /// The experts.
    pub store: ExpertStore,
    /// The unit that all tokens pass besides.
    pub shared: Option<Unit>,
}

/// Weights of a feed-forward part. The variants differ in size, and most layers have the larger one.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum FeedWeights {
    /// Routed experts.
    Sparse(SparseWeights),
    /// One resident unit.
    Dense(Unit),
}

/// One layer, resolved.
#[derive(Clone, Copy, Debug)]
pub struct LayerWeights {
    /// Norm before the mixer.
    pub mixer_norm: Vector,
    /// The mixer.
    pub mixer: MixerWeights,
    /// Norm before the feed-forward part.
    pub feed_norm: Vector,
    /// The feed-forward part.
    pub feed: FeedWeights,
}

/// The embedding's rows.
#[derive(Clone, Copy, Debug)]
pub struct Embedding {
    /// Storage of a row.
    pub format: Format,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Byte offset of row 0 in the pack.
    pub file: u64,
}

/// A checked model over the bytes of a `Prepare`.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// What it is.
    pub recipe: Recipe,
    /// Where it is.
    pub directory: Directory<'a>,
    /// Rows of the embedding.
    pub embedding: Embedding,
    /// Norm before the head.
    pub final_norm: Vector,
    /// The head.
    pub head: Matrix,
}

fn damaged(item: usize) -> Refusal {
    Refusal { detail: item as u32, ..Status::BadDirectory.into() }
}

impl<'a> Model<'a> {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// `BadRecipe`, or `BadDirectory` with the index of the matrix or (for experts) the layer.
    pub fn read(recipe: &[u8], directory: &'a [u8]) -> Result<Self, Refusal> {
        let recipe = Recipe::decode(recipe).ok_or(Refusal::from(Status::BadRecipe))?;
        let directory = Directory::read(directory).ok_or(Refusal::from(Status::BadDirectory))?;
        directory.check_tables().map_err(|fault| damaged(fault.index))?;
        if !directory.matrices.iter().is_sorted_by_key(|entry| entry.layer) {
            return Err(damaged(0));
        }
        let embedding = embedding(&recipe, &directory.header)?;
        let finder = Finder { directory, layer: NO_LAYER };
        let width = recipe.width as usize;
        let final_norm = finder.vector(Role::FinalNorm, width)?;
        let head = finder.matrix(Role::Head, width, recipe.vocab as usize)?;
        let model = Self { recipe, directory, embedding, final_norm, head };
        if model.directory.layers.len() != model.sparse_before(model.layers()) {
            return Err(damaged(model.directory.layers.len()));
        }
        for index in 0..model.recipe.layers.len() {
            model.layer(index)?;
        }
        Ok(model)
    }

    /// Layers.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.recipe.layers.len()
    }

    /// Layers with experts before layer `index`.
    fn sparse_before(&self, index: usize) -> usize {
        let sparse =
            |layer: &usize| matches!(self.recipe.layer(*layer).feed_forward, FeedForward::Experts(_));
        (0..index).filter(sparse).count()
    }

    /// Experts of every layer that has any, in order.
    pub fn experts(&self) -> impl Iterator<Item = &Experts> {
        (0..self.layers()).filter_map(|index| match &self.recipe.layer(index).feed_forward {
            FeedForward::Experts(experts) => Some(experts),
            FeedForward::Dense { .. } => None,
        })
    }

    /// Storage position of `expert`, π_l(e).
    #[must_use]
    pub fn position(&self, store: &ExpertStore, expert: usize) -> usize {
        self.directory.permutations.get(store.permutation + expert).map_or(0, usize::from)
    }

    /// Layer `index`, resolved and checked.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn layer(&self, index: usize) -> Result<LayerWeights, Refusal> {
        let finder = Finder { directory: self.directory, layer: index as u16 };
        let width = self.recipe.width as usize;
        let Layer { mixer, feed_forward } = self.recipe.layer(index);
        Ok(LayerWeights {
            mixer_norm: finder.vector(Role::MixerNorm, width)?,
            mixer: match mixer {
                Mixer::Attention(attention) => MixerWeights::Attention(finder.attention(width, attention)?),
                Mixer::Latent(latent) => MixerWeights::Latent(finder.latent(width, latent)?),
                Mixer::Convolution(Convolution { taps }) => MixerWeights::Convolution(ConvolutionWeights {
                    input: finder.matrix(Role::ConvolutionIn, width, 3 * width)?,
                    taps: finder.vector(Role::Taps, width * *taps as usize)?,
                    output: finder.matrix(Role::ConvolutionOut, width, width)?,
                }),
            },
            feed_norm: finder.vector(Role::FeedNorm, width)?,
            feed: match feed_forward {
                FeedForward::Dense { width: inner } => {
                    FeedWeights::Dense(finder.unit(width, *inner as usize)?)
                }
                FeedForward::Experts(experts) => {
                    FeedWeights::Sparse(self.sparse(&finder, index, width, experts)?)
                }
            },
        })
    }

    fn sparse(
        &self,
        finder: &Finder<'_>,
        index: usize,
        width: usize,
        experts: &Experts,
    ) -> Result<SparseWeights, Refusal> {
        let ordinal = self.sparse_before(index);
        let count = experts.experts as usize;
        Ok(SparseWeights {
            ordinal,
            router: finder.matrix(Role::Router, width, count)?,
            bias: experts.biased.then(|| finder.vector(Role::ChoiceBias, count)).transpose()?,
            store: self.store(ordinal, index, width, experts).ok_or_else(|| damaged(index))?,
            shared: match experts.shared {
                0 => None,
                inner => Some(finder.unit(width, inner as usize)?),
            },
        })
    }

    fn store(&self, ordinal: usize, index: usize, width: usize, experts: &Experts) -> Option<ExpertStore> {
        let entry: LayerEntry = self.directory.layers.get(ordinal)?;
        let count = usize::try_from(entry.experts).ok()?;
        let record_bytes = usize::try_from(entry.record_bytes).ok()?;
        let inner = experts.width as usize;
        // What the tables say by themselves, `check_tables` has checked: here they only meet the recipe.
        if entry.layer as usize != index || entry.experts != experts.experts {
            return None;
        }
        Some(ExpertStore {
            experts: count,
            file: entry.file,
            record_bytes,
            permutation: entry.permutation as usize,
            unit: Unit {
                gate: part(&entry.gate, width, inner)?,
                up: part(&entry.up, width, inner)?,
                down: part(&entry.down, inner, width)?,
            },
        })
    }
}

fn part(part: &Part, k: usize, n: usize) -> Option<Matrix> {
    let format = part.format.check()?;
    let sound = part.k as usize == k && part.n as usize == n;
    sound.then_some(Matrix { format, k, n, at: part.offset as usize })
}

fn embedding(recipe: &Recipe, header: &DirectoryHeader) -> Result<Embedding, Refusal> {
    let bad = || Refusal::from(Status::BadDirectory);
    let format = header.embedding_format.check().ok_or_else(bad)?;
    let row_bytes = header.row_bytes as usize;
    let rows = u64::from(header.row_bytes) * u64::from(recipe.vocab);
    let range = header.embedding;
    if row_bytes != format.row(recipe.width as usize).bytes || range.bytes < rows {
        return Err(bad());
    }
    Ok(Embedding { format, row_bytes, file: range.file })
}

/// Finds one layer's matrices by role.
struct Finder<'a> {
    directory: Directory<'a>,
    layer: u16,
}

impl Finder<'_> {
    /// The entry of a role: a binary search for the layer, then its few roles.
    fn entry(&self, role: Role) -> Result<(usize, MatrixEntry), Refusal> {
        let matrices = self.directory.matrices;
        let (mut low, mut high) = (0, matrices.len());
        while low < high {
            let middle = low.midpoint(high);
            let before = matrices.get(middle).is_some_and(|entry| entry.layer < self.layer);
            if before { low = middle + 1 } else { high = middle }
        }
        let of_layer = (low..matrices.len()).map_while(|index| {
            let entry = matrices.get(index)?;
            (entry.layer == self.layer).then_some((index, entry))
        });
        let missing =
            Refusal { needed: role as u64, limit: u64::from(self.layer), ..damaged(matrices.len()) };
        of_layer.into_iter().find(|(_, entry)| entry.role == role as u16).ok_or(missing)
    }

    /// The entry's place in the dense segment, which a small device may be unable to address.
    fn place(&self, index: usize, entry: &MatrixEntry) -> Result<usize, Refusal> {
        let at = entry.file - self.directory.header.dense.file;
        usize::try_from(at).map_err(|_| damaged(index))
    }

    fn attention(&self, width: usize, attention: &Attention) -> Result<AttentionWeights, Refusal> {
        let [heads, kv_heads] = [attention.heads as usize, attention.kv_heads as usize];
        let [key, value] = [attention.key_width as usize, attention.value_width as usize];
        let norms = match attention.norm {
            QkNorm::None => None,
            QkNorm::Whole => Some((heads * key, kv_heads * key)),
            QkNorm::PerHead => Some((key, key)),
        };
        let norms = match norms {
            None => None,
            Some((q, k)) => Some((self.vector(Role::QueryNorm, q)?, self.vector(Role::KeyNorm, k)?)),
        };
        Ok(AttentionWeights {
            query: self.matrix(Role::Query, width, heads * key)?,
            key: self.matrix(Role::Key, width, kv_heads * key)?,
            value: self.matrix(Role::Value, width, kv_heads * value)?,
            output: self.matrix(Role::Output, heads * value, width)?,
            norms,
        })
    }

    fn latent(&self, width: usize, mixer: &Latent) -> Result<LatentWeights, Refusal> {
        let [heads, latent, plain] = [mixer.heads as usize, mixer.latent as usize, mixer.plain as usize];
        let [value, rope] = [mixer.value_width as usize, mixer.rope.width as usize];
        let key = if mixer.absorbed { (plain, heads * latent) } else { (latent, heads * plain) };
        Ok(LatentWeights {
            query: self.matrix(Role::Query, width, heads * (plain + rope))?,
            latent: self.matrix(Role::Latent, width, latent + rope)?,
            norm: self.vector(Role::LatentNorm, latent)?,
            key: self.matrix(Role::KeyUp, key.0, key.1)?,
            value: self.matrix(Role::ValueUp, latent, heads * value)?,
            output: self.matrix(Role::Output, heads * value, width)?,
        })
    }

    fn unit(&self, width: usize, inner: usize) -> Result<Unit, Refusal> {
        Ok(Unit {
            gate: self.matrix(Role::Gate, width, inner)?,
            up: self.matrix(Role::Up, width, inner)?,
            down: self.matrix(Role::Down, inner, width)?,
        })
    }

    fn matrix(&self, role: Role, k: usize, n: usize) -> Result<Matrix, Refusal> {
        let (index, entry) = self.entry(role)?;
        let format = entry.format.check().ok_or_else(|| damaged(index))?;
        if entry.k as usize != k || entry.n as usize != n {
            return Err(damaged(index));
        }
        Ok(Matrix { format, k, n, at: self.place(index, &entry)? })
    }

    fn vector(&self, role: Role, len: usize) -> Result<Vector, Refusal> {
        let (index, entry) = self.entry(role)?;
        if entry.k as usize != len || entry.n != 0 {
            return Err(damaged(index));
        }
        Ok(Vector { len, at: self.place(index, &entry)? })
    }
}
