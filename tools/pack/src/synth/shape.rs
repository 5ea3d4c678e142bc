//! The shapes of the models that people run, without their weights.

/// The sizes of a synthetic model.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The name in the file.
    pub name: String,
    /// The architecture and what only it has.
    pub family: Family,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream, a multiple of 32.
    pub width: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_width: u32,
    /// Inner width of dense feed-forward parts, where there are any.
    pub dense_width: u32,
    /// Inner width of an expert, a multiple of 32.
    pub expert_width: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts of a token.
    pub chosen: u32,
    /// Vocabulary entries, at least 300.
    pub vocab: u32,
    /// Longest request.
    pub context: u32,
    /// RoPE base.
    pub theta: f32,
}

/// An architecture and the sizes that only it has.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    /// `olmoe`.
    Olmoe,
    /// `qwen3moe`.
    Qwen3Moe,
    /// `llama` with experts.
    Mixtral,
    /// `lfm2moe`: attention at the listed layers and short convolutions at the others.
    Lfm2Moe {
        /// Layers with attention.
        attention: Vec<u32>,
        /// Leading layers without experts.
        dense_layers: u32,
    },
    /// `deepseek2` with a compressed KV and direct queries; `head_width` is not used.
    DeepSeek2 {
        /// Width of the latent.
        kv_rank: u32,
        /// Elements of a head without position.
        nope: u32,
        /// Elements of a head with position.
        rope: u32,
        /// Elements of a value head.
        value: u32,
        /// Shared experts.
        shared: u32,
        /// Leading layers without experts.
        dense_layers: u32,
    },
}

impl Shape {
    /// The names that [`Shape::named`] knows.
    pub const NAMES: [&str; 5] =
        ["olmoe-1b-7b", "lfm2.5-8b-a1b", "deepseek-v2-lite", "qwen3-30b-a3b", "mixtral-8x7b"];

    /// The shape of a known model.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let base = Self {
            name: name.to_owned(),
            family: Family::Olmoe,
            layers: 16,
            width: 2048,
            heads: 16,
            kv_heads: 16,
            head_width: 128,
            dense_width: 0,
            expert_width: 1024,
            experts: 64,
            chosen: 8,
            vocab: 50304,
            context: 4096,
            theta: 1e4,
        };
        Some(match name {
            "olmoe-1b-7b" => base,
            "lfm2.5-8b-a1b" => Self {
                family: Family::Lfm2Moe { attention: vec![2, 6, 10, 14, 18, 21], dense_layers: 2 },
                layers: 24,
                heads: 32,
                kv_heads: 8,
                head_width: 64,
                dense_width: 7168,
                expert_width: 1792,
                experts: 32,
                chosen: 4,
                vocab: 128_000,
                context: 128_000,
                theta: 5e6,
                ..base
            },
            "deepseek-v2-lite" => Self {
                family: Family::DeepSeek2 {
                    kv_rank: 512,
                    nope: 128,
                    rope: 64,
                    value: 128,
                    shared: 2,
                    dense_layers: 1,
                },
                layers: 27,
                kv_heads: 1,
                dense_width: 10944,
                expert_width: 1408,
                chosen: 6,
                vocab: 102_400,
                context: 163_840,
                ..base
            },
            "qwen3-30b-a3b" => Self {
                family: Family::Qwen3Moe,
                layers: 48,
                heads: 32,
                kv_heads: 4,
                dense_width: 6144,
                expert_width: 768,
                experts: 128,
                vocab: 151_936,
                context: 40_960,
                theta: 1e6,
                ..base
            },
            "mixtral-8x7b" => Self {
                family: Family::Mixtral,
                layers: 32,
                width: 4096,
                heads: 32,
                kv_heads: 8,
                expert_width: 14336,
                experts: 8,
                chosen: 2,
                vocab: 32_000,
                context: 32_768,
                theta: 1e6,
                ..base
            },
            _ => return None,
        })
    }

    /// A model of a few MiB for demonstrations and tests, with the same parts as a large one.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            name: "tiny".to_owned(),
            family: Family::Olmoe,
            layers: 4,
            width: 256,
            heads: 4,
            kv_heads: 4,
            head_width: 64,
            dense_width: 0,
            expert_width: 128,
            experts: 16,
            chosen: 4,
            vocab: 512,
            context: 4096,
            theta: 1e4,
        }
    }

    /// The value of `general.architecture`.
    #[must_use]
    pub const fn architecture(&self) -> &'static str {
        match self.family {
            Family::Olmoe => "olmoe",
            Family::Qwen3Moe => "qwen3moe",
            Family::Mixtral => "llama",
            Family::Lfm2Moe { .. } => "lfm2moe",
            Family::DeepSeek2 { .. } => "deepseek2",
        }
    }

    /// Leading layers without experts.
    pub(super) const fn dense_layers(&self) -> u32 {
        match self.family {
            Family::Lfm2Moe { dense_layers, .. } | Family::DeepSeek2 { dense_layers, .. } => dense_layers,
            _ => 0,
        }
    }

    /// Whether the embedding is the head, too.
    pub(super) const fn tied(&self) -> bool {
        matches!(self.family, Family::Lfm2Moe { .. })
    }

    /// What is wrong with the sizes, in words.
    pub(super) fn defect(&self) -> Option<String> {
        let blocks =
            [("width", self.width), ("expert_width", self.expert_width), ("dense_width", self.dense_width)];
        if let Some((name, value)) = blocks.into_iter().find(|(_, value)| !value.is_multiple_of(32)) {
            return Some(format!("{name} is {value}, not a multiple of 32"));
        }
        let counts = [self.layers, self.width, self.heads, self.kv_heads, self.expert_width, self.experts];
        if counts.contains(&0) || self.layers > 256 || self.experts > 4096 {
            return Some("a size is zero or beyond a model's".to_owned());
        }
        if self.chosen == 0 || self.chosen > self.experts {
            return Some(format!("{} of {} experts cannot be chosen", self.chosen, self.experts));
        }
        (!(300..=1 << 22).contains(&self.vocab))
            .then(|| format!("a vocabulary of {}; 300 to 4194304", self.vocab))
    }
}
