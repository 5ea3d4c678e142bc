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
    /// Causal attention whose keys and values come from one latent vector a token.
    Latent(Latent),
    /// Gated causal convolution over few tokens.
    Convolution(Convolution),
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

/// Multi-head latent attention (DeepSeek-V2, section 2.1): `c = norm(latent part)`; a head's key is `[K_h c | k_rope]`, the
/// rotated part shared by all heads, its value `V_h c`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latent {
    /// Heads.
    pub heads: u32,
    /// Elements of the latent vector.
    pub latent: u32,
    /// Elements of a head of queries and keys that carry no position.
    pub plain: u32,
    /// Elements of a head of values.
    pub value_width: u32,
    /// Factor of the scores.
    pub scale: f32,
    /// Rotary positions of the remaining elements, `rope.width` of them, after the plain ones.
    pub rope: Rope,
    /// Which way the key matrix is stored: absorbed, `plain → latent` a head, so that queries go to the latent space and
    /// K and V are the latent vectors themselves; else `latent → plain` a head, and K and V are expanded.
    pub absorbed: bool,
}

/// Short convolution: `[B | C | X] = in(x)`; `y = out(C ∘ conv(B ∘ X))`, causal over `taps` tokens of a request, the last
/// tap on the token itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convolution {
    /// Taps of each channel.
    pub taps: u32,
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

/// Rotary position embedding: pair i of `width / 2` turns by `position · f_i`, `f_i = base^(−2i/width)` before scaling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Which two elements are a pair.
    pub pairs: RopePairs,
    /// Rotated elements of a head, the leading ones.
    pub width: u32,
    /// Frequency base θ.
    pub base: f32,
    /// How frequencies are stretched.
    pub scaling: RopeScaling,
}

/// Frequency scaling for contexts beyond the trained one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum RopeScaling {
    /// None.
    None,
    /// YaRN (arXiv 2309.00071, section 3.2): frequencies of pairs below `low` are kept, above `high` divided by `factor`,
    /// between them blended linearly.
    Yarn {
        /// Stretch s.
        factor: f32,
        /// Last pair that is kept.
        low: f32,
        /// First pair that is fully stretched.
        high: f32,
    },
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
    /// One gated unit for all tokens, resident.
    Dense {
        /// Inner width.
        width: u32,
    },
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
    /// How logits become weights.
    pub gating: Gating,
    /// Whether a bias is added to the weights for the choice alone.
    pub biased: bool,
    /// Whether the chosen weights are divided by their sum.
    pub renormalise: bool,
    /// Factor of the chosen weights.
    pub scale: f32,
    /// Inner width of a gated unit that every token passes with weight 1; 0 for none.
    pub shared: u32,
}

/// The router's function of the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// The logistic function of each.
    Sigmoid,
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

fn head(width: u32) -> bool {
    (1..=1024).contains(&width) && width.is_multiple_of(2)
}

impl Mixer {
    fn is_sound(&self) -> bool {
        match self {
            Self::Attention(a) => {
                (1..=1024).contains(&a.heads)
                    && a.kv_heads > 0
                    && a.heads.is_multiple_of(a.kv_heads)
                    && head(a.key_width)
                    && head(a.value_width)
                    && a.value_width.is_multiple_of(32)
                    && a.scale.is_finite()
                    && a.scale > 0.0
                    && a.rope.width <= a.key_width
                    && a.rope.is_sound()
            }
            Self::Latent(l) => {
                (1..=1024).contains(&l.heads)
                    && head(l.latent)
                    && head(l.plain)
                    && head(l.value_width)
                    && [l.latent, l.value_width].iter().all(|width| width.is_multiple_of(32))
                    && l.plain + l.rope.width <= 1024
                    && l.latent + l.rope.width <= 2048
                    && l.scale.is_finite()
                    && l.scale > 0.0
                    && l.rope.is_sound()
            }
            Self::Convolution(c) => (1..=16).contains(&c.taps),
        }
    }
}

impl Rope {
    fn is_sound(&self) -> bool {
        let scaling = match self.scaling {
            RopeScaling::None => true,
            RopeScaling::Yarn { factor, low, high } => {
                factor.is_finite() && factor > 0.0 && low.is_finite() && high.is_finite() && low <= high
            }
        };
        self.width.is_multiple_of(2) && self.base.is_finite() && self.base > 1.0 && scaling
    }
}

impl FeedForward {
    fn is_sound(&self) -> bool {
        let inner = |width: u32| (1..=1 << 18).contains(&width);
        match self {
            Self::Experts(e) => {
                (1..=4096).contains(&e.experts)
                    && (1..=e.experts.min(64)).contains(&e.chosen)
                    && inner(e.width)
                    && e.scale.is_finite()
                    && (e.shared == 0 || inner(e.shared))
            }
            Self::Dense { width } => inner(*width),
        }
    }
}
