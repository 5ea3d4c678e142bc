//! Mistakes in the file: keys and tensors that say something else.

use estream_tests::gguf::Parts;

/// What is wrong, and how it is made.
type Mistake = (&'static str, fn(&mut Parts));

/// For each golden what can go wrong with it.
pub static MISTAKES: [(&str, &[Mistake]); 7] = [
    ("olmoe", &OLMOE),
    ("qwen3moe", &QWEN3MOE),
    ("mixtral", &MIXTRAL),
    ("lfm2moe", &LFM2MOE),
    ("deepseek2-new", &DEEPSEEK2),
    ("ernie4_5-moe", &ERNIE),
    ("dots1", &DOTS),
];

static OLMOE: [Mistake; 6] = [
    ("weights divided by their sum", |p| p.set_flag("olmoe.expert_weights_norm", true)),
    ("weights scaled", |p| p.set_float("olmoe.expert_weights_scale", 2.5)),
    ("one expert fewer", |p| p.set("olmoe.expert_used_count", 3)),
    ("ε of 1e-3", |p| p.set_float("olmoe.attention.layer_norm_rms_epsilon", 1e-3)),
    ("another base", |p| p.set_float("olmoe.rope.freq_base", 9_000.0)),
    ("half of each head rotated", |p| p.set("olmoe.rope.dimension_count", 32)),
];

static QWEN3MOE: [Mistake; 4] = [
    ("weights not divided by their sum", |p| p.set_flag("qwen3moe.expert_weights_norm", false)),
    ("another base", |p| p.set_float("qwen3moe.rope.freq_base", 9e5)),
    ("norm of queries without its weights", |p| fill(p, "blk.1.attn_q_norm.weight", 1.0)),
    ("norm of keys without its weights", |p| fill(p, "blk.2.attn_k_norm.weight", 1.0)),
];

static MIXTRAL: [Mistake; 3] = [
    ("weights not divided by their sum", |p| p.set_flag("llama.expert_weights_norm", false)),
    ("sigmoid for softmax", |p| p.set("llama.expert_gating_func", 2)),
    ("the embedding for a head", |p| p.tensors.retain(|piece| piece.name != "output.weight")),
];

static LFM2MOE: [Mistake; 6] = [
    ("weights not divided by their sum", |p| p.set_flag("lfm2moe.expert_weights_norm", false)),
    ("softmax for sigmoid", |p| p.set("lfm2moe.expert_gating_func", 1)),
    ("selection bias of zero", |p| fill(p, "blk.3.exp_probs_b.bias", 0.0)),
    ("kernel reversed", |p| {
        let kernel = floats(p, "blk.1.shortconv.conv.weight");
        let reversed: Vec<f32> = kernel.chunks(3).flat_map(|taps| [taps[2], taps[1], taps[0]]).collect();
        let shape = [3, kernel.len() as u64 / 3];
        p.replace("blk.1.shortconv.conv.weight", &shape, &reversed);
    }),
    ("last norm without its weights", |p| fill(p, "token_embd_norm.weight", 1.0)),
    ("dense gate and up exchanged", |p| {
        let up = p.tensor("blk.0.ffn_up.weight").data.clone();
        let gate = std::mem::replace(&mut p.tensor("blk.0.ffn_gate.weight").data, up);
        p.tensor("blk.0.ffn_up.weight").data = gate;
    }),
];

static DEEPSEEK2: [Mistake; 7] = [
    ("no mscale", |p| p.set_float("deepseek2.rope.scaling.yarn_log_multiplier", 0.0)),
    ("no YaRN", |p| p.set_text("deepseek2.rope.scaling.type", "none")),
    ("another factor", |p| p.set_float("deepseek2.rope.scaling.factor", 4.0)),
    ("another original context", |p| p.set("deepseek2.rope.scaling.original_context_length", 4096)),
    ("weights scaled", |p| p.set_float("deepseek2.expert_weights_scale", 2.5)),
    ("latent's norm without its weights", |p| fill(p, "blk.2.attn_kv_a_norm.weight", 1.0)),
    ("a shared unit of zeros", |p| p.tensor("blk.1.ffn_down_shexp.weight").data.fill(0)),
];

static ERNIE: [Mistake; 2] = [
    ("selection bias of zero", |p| fill(p, "blk.1.exp_probs_b.bias", 0.0)),
    ("a head of its own", |p| {
        let (mut head, embedding) = (p.tensor("token_embd.weight").clone(), p.tensor("token_embd.weight"));
        head.name = "output.weight".into();
        // One row of 128 bytes with its scales for another: logits of token 0 and 1 are exchanged.
        let row = embedding.data.len() / embedding.shape[1] as usize;
        head.data[..2 * row].rotate_left(row);
        p.tensors.push(head);
    }),
];

static DOTS: [Mistake; 3] = [
    ("weights not scaled", |p| p.set_float("dots1.expert_weights_scale", 1.0)),
    ("weights not divided by their sum", |p| p.set_flag("dots1.expert_weights_norm", false)),
    ("one shared expert, the other of zeros", |p| {
        let gate = &mut p.tensor("blk.1.ffn_gate_shexp.weight").data;
        let half = gate.len() / 2;
        gate[half..].fill(0);
    }),
];

fn floats(parts: &mut Parts, name: &str) -> Vec<f32> {
    let words = parts.tensor(name).data.chunks_exact(4);
    words.map(|word| f32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

/// One value in all places of an f32 tensor.
fn fill(parts: &mut Parts, name: &str, value: f32) {
    let piece = parts.tensor(name);
    piece.data = value.to_le_bytes().repeat(piece.data.len() / 4);
}
