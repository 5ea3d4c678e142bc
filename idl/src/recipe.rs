//! The recipe: what a model is, as numbers. The firmware has building blocks and no model names; a new architecture of
//! the same blocks is a new recipe and nothing else.

use heapless::Vec;
use serde::{Deserialize, Serialize};

/// Layers that a recipe can hold.
pub const MAX_LAYERS: usize = 256;
/// Distinct layers that a recipe can hold.
pub const MAX_KINDS: usize = 8;

/// A whole model. Activations are `[tokens, width]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// Width of the residual stream, d.
    pub width: u32,
    /// Vocabulary entries, the rows of the embedding and the columns of the head.
    pub vocab: u32,
    /// The longest request that the model was made for.
    pub context: u32,
    /// ε of every RMSNorm.
    pub epsilon: f32,
    /// The distinct layers.
    pub kinds: Vec<Layer, MAX_KINDS>,
    /// For each layer its index in `kinds`.
    pub layers: Vec<u8, MAX_LAYERS>,
}

/// One layer: `h = x + mixer(norm(x)); y = h + feed_forward(norm(h))`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// How tokens see each other.
    pub mixer: Mixer,
    /// What each token does alone.
    pub feed_forward: FeedForward,
}

/// Token mixers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Mixer {
    /// Causal attention with grouped queries.
    Attention(Attention),
}

/// Grouped-query attention: head h of the queries sees head `h / (heads / kv_heads)` of K and V.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a head of queries and keys.
    pub key_width: u32,
    /// Elements of a head of values.
    pub value_width: u32,
    /// Factor of the scores.
    pub scale: f32,
    /// Norm of queries and keys, before the rotation.
    pub norm: QkNorm,
    /// Rotary positions.
    pub rope: Rope,
}

/// RMSNorm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QkNorm {
    /// None.
    None,
    /// Over the whole vector, all heads together.
    Whole,
    /// Over each head, one weight vector for all.
    PerHead,
}

/// Rotary position embedding: pair i of `width / 2` turns by `position · base^(−2i/width)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Which two elements are a pair.
    pub pairs: RopePairs,
    /// Rotated elements of a head, the leading ones.
    pub width: u32,
    /// Frequency base θ.
    pub base: f32,
}

/// Pairing of rotated elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RopePairs {
    /// (i, i + width/2), "NEOX".
    Halves,
    /// (2i, 2i + 1), "NORM".
    Adjacent,
}

/// Feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum FeedForward {
    /// Routed experts, each `down(silu(gate·x) ∘ (up·x))`, added with the router's weight after down.
    Experts(Experts),
}

/// A router and its experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experts {
    /// Experts of the layer, E.
    pub experts: u32,
    /// Experts of a token, k.
    pub chosen: u32,
    /// Inner width of an expert.
    pub width: u32,
    /// Whether the chosen weights are divided by their sum.
    pub renormalise: bool,
}

impl Recipe {
    /// Decodes a recipe and checks that its numbers can be computed with.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (recipe, rest): (Self, _) = postcard::take_from_bytes(bytes).ok()?;
        (rest.is_empty() && recipe.is_sound()).then_some(recipe)
    }

    /// The layer at `index`.
    #[must_use]
    pub fn layer(&self, index: usize) -> &Layer {
        &self.kinds[usize::from(self.layers[index])]
    }

    fn is_sound(&self) -> bool {
        let bounded = |value: u32, most: u32| (1..=most).contains(&value);
        bounded(self.width, 1 << 16)
            && self.width.is_multiple_of(32)
            && bounded(self.vocab, 1 << 22)
            && bounded(self.context, 1 << 24)
            && self.epsilon.is_finite()
            && self.epsilon > 0.0
            && !self.layers.is_empty()
            && self.layers.iter().all(|&kind| usize::from(kind) < self.kinds.len())
            && self.kinds.iter().all(|layer| layer.mixer.is_sound() && layer.feed_forward.is_sound())
    }
}

impl Mixer {
    fn is_sound(&self) -> bool {
        let Self::Attention(a) = self;
        let head = |width: u32| (1..=1024).contains(&width) && width.is_multiple_of(2);
        (1..=1024).contains(&a.heads)
            && a.kv_heads > 0
            && a.heads.is_multiple_of(a.kv_heads)
            && head(a.key_width)
            && head(a.value_width)
            && a.scale.is_finite()
            && a.rope.width <= a.key_width
            && a.rope.width.is_multiple_of(2)
            && a.rope.base.is_finite()
            && a.rope.base > 1.0
    }
}

impl FeedForward {
    fn is_sound(&self) -> bool {
        let Self::Experts(e) = self;
        (1..=4096).contains(&e.experts)
            && (1..=e.experts.min(64)).contains(&e.chosen)
            && (1..=1 << 18).contains(&e.width)
    }
}
