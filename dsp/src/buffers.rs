//! All memory of a session: what the private block holds, as one layout that is measured for the plan and carved at start.

use crate::attention::{self, key_elements};
use crate::batch::{OutputSpan, RequestSpan};
use crate::block::{Carver, NoMemory};
use crate::head::{Candidate, Summary};
use crate::kernels::Backend;
use crate::latent;
use crate::linear::WORKER_SCRATCH;
use crate::model::{LayerWeights, Model};
use crate::residency::{Bank, Group, Records};
use crate::rope;
use crate::routes::Route;
use crate::topology::Topology;
use estream_idl::address::TILE;
use estream_idl::call::Config;
use estream_idl::recipe::{Attention, Mixer};

/// The counts that the layout follows from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    tokens: usize,
    requests: usize,
    outputs: usize,
    top_k: usize,
    width: usize,
    /// Widest row that a mixer makes: queries.
    query: usize,
    /// Widest row that stands beside the residual: normed activations, attention's output.
    side: usize,
    latent: usize,
    wide: usize,
    /// Words of the widest packed row.
    packed: usize,
    keys: usize,
    values: usize,
    angles: usize,
    experts: usize,
    chosen: usize,
    layers: usize,
    sparse: usize,
    groups: usize,
    banks: usize,
    row_bytes: usize,
    scratch: usize,
}

impl Sizes {
    /// The counts for a model, a backend and a clamped configuration; `scratch` is what the fused operator's plans need, in
    /// elements.
    #[must_use]
    pub fn new(model: &Model<'_>, backend: &Backend, config: &Config, scratch: usize) -> Self {
        let width = model.recipe.width as usize;
        let mut sizes = Self {
            tokens: config.max_tokens as usize,
            requests: config.max_requests as usize,
            outputs: config.max_outputs as usize,
            top_k: config.top_k as usize,
            width,
            side: width,
            layers: model.layers(),
            banks: config.banks as usize,
            row_bytes: model.embedding.row_bytes,
            ..Self::default()
        };
        let positions = sizes.tokens.min(model.recipe.context as usize);
        for kind in &model.recipe.kinds {
            let rows = MixerRows::new(&kind.mixer, width);
            sizes.query = sizes.query.max(rows.query);
            sizes.side = sizes.side.max(rows.side);
            sizes.latent = sizes.latent.max(rows.latent);
            sizes.wide = sizes.wide.max(rows.wide);
            if let Some(attention) = rows.attention {
                sizes.keys = sizes.keys.max(key_elements(&attention, sizes.tokens, sizes.requests));
                let values = (attention.kv_heads * attention.value_width) as usize;
                sizes.values = sizes.values.max(values * sizes.tokens);
                sizes.angles = sizes.angles.max(rope::elements(&attention.rope, positions));
            }
        }
        // A product's inputs are normed activations, what a mixer attended, or a latent vector.
        sizes.packed = backend.row_words(sizes.side.max(sizes.latent));
        for experts in model.experts() {
            sizes.experts = sizes.experts.max(experts.experts as usize);
            sizes.chosen = sizes.chosen.max(experts.chosen as usize);
            sizes.groups += (experts.experts as usize).div_ceil(config.group as usize);
            sizes.sparse += 1;
        }
        // The head gathers its rows there.
        sizes.query = sizes.query.max(width);
        let widest_row = sizes.query;
        let worker = WORKER_SCRATCH.max(attention::SCRATCH).max(widest_row.next_multiple_of(TILE));
        sizes.scratch = scratch.max(worker * config.threads as usize);
        sizes
    }

    /// Elements of the rotary tables: one for each kind of layer.
    #[must_use]
    pub const fn angle_elements(&self) -> usize {
        self.angles
    }
}

/// Widths of the rows that a mixer makes, in elements a token.
struct MixerRows {
    query: usize,
    side: usize,
    latent: usize,
    wide: usize,
    /// The attention that it comes down to.
    attention: Option<Attention>,
}

impl MixerRows {
    fn new(mixer: &Mixer, width: usize) -> Self {
        let none = Self { query: 0, side: 0, latent: 0, wide: 0, attention: None };
        match mixer {
            Mixer::Attention(attention) => Self {
                query: (attention.heads * attention.key_width) as usize,
                side: (attention.heads * attention.value_width) as usize,
                attention: Some(*attention),
                ..none
            },
            Mixer::Latent(latent) => {
                let attention = latent::attention(latent);
                let heads = latent.heads as usize;
                let row = (latent.latent + latent.rope.width) as usize;
                let attended = heads * attention.value_width as usize;
                Self {
                    query: (heads * (latent.plain + latent.rope.width) as usize).max(attended),
                    side: heads * latent.value_width as usize,
                    latent: row,
                    wide: if latent.absorbed { heads * row } else { 0 },
                    attention: Some(attention),
                }
            }
            Mixer::Convolution(_) => Self { query: 3 * width, ..none },
        }
    }
}

/// The tables and activations of a session.
pub struct Buffers<'a> {
    /// Requests of the batch.
    pub requests: &'a mut [RequestSpan],
    /// Token ids.
    pub ids: &'a mut [u32],
    /// Outputs of the batch.
    pub outputs: &'a mut [OutputSpan],
    /// Tokens by id, for the embedding.
    pub order: &'a mut [u32],
    /// One embedding row.
    pub row: &'a mut [u8],
    /// Residual stream, `[tokens][width]`.
    pub x: &'a mut [f32],
    /// Normed activations, then attention's output, `[tokens][side]`.
    pub side: &'a mut [f32],
    /// Positioned keys before they are transposed, then queries, `[tokens][query]`.
    pub query: &'a mut [f32],
    /// Latent vectors with the rotated part of the keys, `[tokens][latent + rope width]`.
    pub latent: &'a mut [f32],
    /// Absorbed queries, `[tokens][heads · (latent + rope width)]`.
    pub wide: &'a mut [f32],
    /// The rows that products read, as they want them packed, `[tokens][packed]`.
    pub packed: &'a mut [f32],
    /// Transposed key blocks.
    pub keys: &'a mut [f32],
    /// Value strips.
    pub values: &'a mut [f32],
    /// Rotary tables, one a layer kind.
    pub angles: &'a mut [f32],
    /// Router logits, `[tokens][experts]`.
    pub logits: &'a mut [f32],
    /// Chosen experts, `[tokens][chosen]`.
    pub chosen: &'a mut [u16],
    /// Their weights.
    pub weights: &'a mut [f32],
    /// π of the layer.
    pub positions: &'a mut [u16],
    /// Which storage positions of the layer have routes, 1 or 0.
    pub wanted: &'a mut [u8],
    /// Route map offsets.
    pub offsets: &'a mut [u32],
    /// Route map records.
    pub routes: &'a mut [Route],
    /// One route a token with weight 1: for units that all tokens pass.
    pub everyone: &'a mut [Route],
    /// The bank table.
    pub banks: &'a mut [Bank],
    /// The group table, all layers.
    pub groups: &'a mut [Group],
    /// Layers, resolved.
    pub layers: &'a mut [Option<LayerWeights>],
    /// Topologies, a class each.
    pub topologies: &'a mut [Option<Topology>],
    /// The classes of each layer, two a layer.
    pub class: &'a mut [u32],
    /// Experts of each layer that has any.
    pub layer_experts: &'a mut [u32],
    /// For each layer with experts: byte offset of its first record in the pack, and W_l.
    pub records: &'a mut [Records],
    /// Row summaries of the head.
    pub summaries: &'a mut [Summary],
    /// Candidates of the head, `[outputs][top_k]`.
    pub candidates: &'a mut [Candidate],
    /// The scratchpad.
    pub scratch: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    /// The layout.
    ///
    /// # Errors
    /// [`NoMemory`], as the carver says.
    pub fn layout(carver: &mut Carver<'a>, sizes: &Sizes, kinds: usize) -> Result<Self, NoMemory> {
        let s = sizes;
        let times = |a: usize, b: usize| a.saturating_mul(b);
        Ok(Self {
            requests: carver.take(s.requests)?,
            ids: carver.take(s.tokens)?,
            outputs: carver.take(s.outputs)?,
            order: carver.take(s.tokens)?,
            row: carver.take(s.row_bytes)?,
            x: carver.take(times(s.tokens, s.width))?,
            side: carver.take(times(s.tokens, s.side))?,
            query: carver.take(times(s.tokens, s.query))?,
            latent: carver.take(times(s.tokens, s.latent))?,
            wide: carver.take(times(s.tokens, s.wide))?,
            packed: carver.take(times(s.tokens, s.packed))?,
            keys: carver.take(s.keys)?,
            values: carver.take(s.values)?,
            angles: carver.take(times(s.angles, kinds))?,
            logits: carver.take(times(s.tokens, s.experts))?,
            chosen: carver.take(times(s.tokens, s.chosen))?,
            weights: carver.take(times(s.tokens, s.chosen))?,
            positions: carver.take(s.experts)?,
            wanted: carver.take(s.experts)?,
            offsets: carver.take(s.experts + 1)?,
            routes: carver.filled(times(s.tokens, s.chosen), Route::default())?,
            everyone: carver.filled(s.tokens, Route { token: 0, weight: 1.0 })?,
            banks: carver.filled(s.banks, Bank::default())?,
            groups: carver.filled(s.groups, Group::default())?,
            layers: carver.filled(s.layers, None)?,
            topologies: carver.filled(2 * s.layers, None)?,
            class: carver.take(2 * s.layers)?,
            layer_experts: carver.take(s.sparse)?,
            records: carver.filled(s.sparse, (0, 0))?,
            summaries: carver.take(s.outputs)?,
            candidates: carver.take(times(s.outputs, s.top_k))?,
            scratch: carver.take(s.scratch)?,
        })
    }
}
