//! The model as the firmware sees it: the recipe joined with the directory, every number checked once.
//!
//! A pack is hostile until checked: dimensions must be those that the recipe implies, formats must be known, extents must
//! lie inside their ranges and at their alignments. After [`Model::read`] no code of the engine checks them again.

use estream_idl::address::PAGE;
use estream_idl::format::{Format, VECTOR};
use estream_idl::pack::{Directory, DirectoryHeader, LayerEntry, MatrixEntry, NO_LAYER, Part, Role};
use estream_idl::recipe::{
    Attention, Convolution, Experts, FeedForward, Latent, Layer, Mixer, QkNorm, Recipe,
};
use estream_idl::status::{Refusal, Status};

/// Most experts of a layer; bounds the check of permutations.
const MAX_EXPERTS: usize = 4096;

/// Most matrices of a layer, and of no layer.
const MAX_ROLES: usize = 32;
/// Largest expert record: one load must hold it.
const MAX_RECORD: usize = 1 << 30;

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
        check_order(&recipe, &directory)?;
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
        let aligned = entry.file.is_multiple_of(PAGE as u64) && record_bytes.is_multiple_of(PAGE);
        let end = (record_bytes as u64).checked_mul(count as u64)?.checked_add(entry.file)?;
        if entry.layer as usize != index
            || entry.experts != experts.experts
            || count > MAX_EXPERTS
            || !(1..=MAX_RECORD).contains(&record_bytes)
            || !aligned
            || end > u64::MAX / 2
        {
            return None;
        }
        // Permutations lie end to end, so no two layers share an entry.
        let before = (0..ordinal).filter_map(|layer| self.directory.layers.get(layer));
        let permutation = before.map(|layer| layer.experts as usize).sum::<usize>();
        if entry.permutation as usize != permutation {
            return None;
        }
        let mut seen = [0u64; MAX_EXPERTS / 64];
        for expert in 0..count {
            let position = usize::from(self.directory.permutations.get(permutation.checked_add(expert)?)?);
            if position >= count || seen[position / 64] >> (position % 64) & 1 == 1 {
                return None;
            }
            seen[position / 64] |= 1 << (position % 64);
        }
        Some(ExpertStore {
            experts: count,
            file: entry.file,
            record_bytes,
            permutation,
            unit: apart(Unit {
                gate: part(&entry.gate, width, inner, record_bytes)?,
                up: part(&entry.up, width, inner, record_bytes)?,
                down: part(&entry.down, inner, width, record_bytes)?,
            })?,
        })
    }
}

fn part(part: &Part, k: usize, n: usize, record_bytes: usize) -> Option<Matrix> {
    let format = part.format.check()?;
    let at = part.offset as usize;
    let sound = part.k as usize == k
        && part.n as usize == n
        && at.is_multiple_of(VECTOR)
        && at.checked_add(format.matrix_bytes(k, n))? <= record_bytes;
    sound.then_some(Matrix { format, k, n, at })
}

/// The unit, where its matrices stand one after the other.
fn apart(unit: Unit) -> Option<Unit> {
    let ordered = |first: &Matrix, second: &Matrix| first.at + first.bytes() <= second.at;
    (ordered(&unit.gate, &unit.up) && ordered(&unit.up, &unit.down)).then_some(unit)
}

/// Matrices stand end to end over the whole dense range, layer by layer, each layer with few; those of no layer come
/// last. So none overlaps another, and finding one costs a search and not a scan.
fn check_order(recipe: &Recipe, directory: &Directory<'_>) -> Result<(), Refusal> {
    let matrices = directory.matrices;
    if matrices.len() > (recipe.layers.len() + 1) * MAX_ROLES {
        return Err(damaged(matrices.len()));
    }
    let (mut end, mut layer) = (directory.header.dense.file, 0);
    for (index, entry) in matrices.iter().enumerate() {
        let aligned = entry.file.is_multiple_of(PAGE as u64) && entry.bytes.is_multiple_of(PAGE as u64);
        if entry.file != end || !aligned || entry.bytes == 0 || entry.layer < layer {
            return Err(damaged(index));
        }
        end = end.checked_add(entry.bytes).ok_or_else(|| damaged(index))?;
        layer = entry.layer;
    }
    let dense = directory.header.dense;
    if dense.file.checked_add(dense.bytes) == Some(end) { Ok(()) } else { Err(damaged(matrices.len())) }
}

fn embedding(recipe: &Recipe, header: &DirectoryHeader) -> Result<Embedding, Refusal> {
    let bad = || Refusal::from(Status::BadDirectory);
    let format = header.embedding_format.check().ok_or_else(bad)?;
    let row_bytes = header.row_bytes as usize;
    let rows = u64::from(header.row_bytes) * u64::from(recipe.vocab);
    let range = header.embedding;
    let sound = row_bytes == format.row(recipe.width as usize).bytes
        && range.file.is_multiple_of(PAGE as u64)
        && range.bytes.is_multiple_of(PAGE as u64)
        && range.bytes >= rows
        && range.file.checked_add(range.bytes).is_some();
    if !sound {
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

    /// The entry's place in the dense segment, where `bytes` must fit.
    fn place(&self, index: usize, entry: &MatrixEntry, bytes: usize) -> Result<usize, Refusal> {
        let dense = self.directory.header.dense;
        let end = entry.file.checked_add(entry.bytes);
        let inside = entry.file >= dense.file && end.is_some_and(|end| end - dense.file <= dense.bytes);
        let aligned = entry.file.is_multiple_of(PAGE as u64) && entry.bytes.is_multiple_of(PAGE as u64);
        if !inside || !aligned || (bytes as u64) > entry.bytes {
            return Err(damaged(index));
        }
        usize::try_from(entry.file - dense.file).map_err(|_| damaged(index))
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
        let at = self.place(index, &entry, format.matrix_bytes(k, n))?;
        Ok(Matrix { format, k, n, at })
    }

    fn vector(&self, role: Role, len: usize) -> Result<Vector, Refusal> {
        let (index, entry) = self.entry(role)?;
        if entry.k as usize != len || entry.n != 0 {
            return Err(damaged(index));
        }
        Ok(Vector { len, at: self.place(index, &entry, len * 4)? })
    }
}
