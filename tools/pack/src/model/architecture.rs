//! The architectures, as data: which keys and tensors say what, and the switches that no key carries.

use estream_idl::recipe::RopePairs;

/// What tells one architecture from another; everything else is in the file's keys and shapes.
pub(super) struct Architecture {
    /// The value of `general.architecture` and the prefix of the keys.
    pub(super) name: &'static str,
    /// Keys that may hold the experts' inner width; the first that is present counts.
    pub(super) expert_width: &'static [&'static str],
    /// Which elements RoPE pairs.
    pub(super) pairs: RopePairs,
    /// Whether queries and keys are normed; the norm's kind is read from its length.
    pub(super) qk_norm: bool,
    /// Whether attention is latent.
    pub(super) latent: bool,
    /// Whether the chosen weights are divided by their sum, where no key says so.
    pub(super) renormalise: bool,
    /// Whether a missing head means that the embedding is used.
    pub(super) may_tie: bool,
    /// The tensor with the weights of the last norm.
    pub(super) final_norm: &'static str,
}

/// Most architectures: adjacent or split pairs are the first thing in which they differ.
const PLAIN: Architecture = Architecture {
    name: "",
    expert_width: &["expert_feed_forward_length"],
    pairs: RopePairs::Halves,
    qk_norm: true,
    latent: false,
    renormalise: true,
    may_tie: true,
    final_norm: "output_norm.weight",
};

pub(super) static ARCHITECTURES: [Architecture; 7] = [
    Architecture {
        name: "olmoe",
        // Files of the current converter have feed_forward_length alone; older ones carry the other key too.
        expert_width: &["expert_feed_forward_length", "feed_forward_length"],
        renormalise: false,
        may_tie: false,
        ..PLAIN
    },
    Architecture { name: "qwen3moe", ..PLAIN },
    // Mixtral: the converter permuted the rows of q and k for adjacent pairs.
    Architecture {
        name: "llama",
        expert_width: &["feed_forward_length"],
        pairs: RopePairs::Adjacent,
        qk_norm: false,
        ..PLAIN
    },
    // The last norm has the name that elsewhere would be a norm of the embedding; it is not applied to it.
    Architecture { name: "lfm2moe", final_norm: "token_embd_norm.weight", ..PLAIN },
    Architecture {
        name: "deepseek2",
        pairs: RopePairs::Adjacent,
        qk_norm: false,
        latent: true,
        renormalise: false,
        ..PLAIN
    },
    // ERNIE 4.5: a selection bias over softmax probabilities.
    Architecture { name: "ernie4_5-moe", pairs: RopePairs::Adjacent, qk_norm: false, ..PLAIN },
    // dots.llm1: sigmoid, bias and scale of the weights come with the file.
    Architecture { name: "dots1", renormalise: false, may_tie: false, ..PLAIN },
];

/// Keys whose presence with another value would change what has to be computed: such a file is refused rather than
/// computed wrongly. Each with the values that change nothing.
pub(super) static NEUTRAL: [(&str, &[f64]); 11] = [
    ("attention.clamp_kqv", &[0.0]),
    ("attention.max_alibi_bias", &[0.0]),
    ("attention.scale", &[0.0]),
    ("attention.sliding_window", &[0.0]),
    ("embedding_scale", &[0.0, 1.0]),
    ("expert_group_count", &[0.0, 1.0]),
    ("final_logit_softcapping", &[0.0]),
    ("interleave_moe_layer_step", &[0.0, 1.0]),
    ("logit_scale", &[0.0, 1.0]),
    ("residual_scale", &[0.0, 1.0]),
    ("rope.scale_linear", &[0.0, 1.0]),
];
