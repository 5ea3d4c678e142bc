//! The hyper-parameters that llama.cpp asks for, by family.

use super::shape::{Family, Shape};
use crate::gguf::write::Metadata;

/// Appends general keys and those of the architecture.
pub(super) fn write(metadata: &mut Metadata, shape: &Shape) {
    let architecture = shape.architecture();
    metadata.string("general.architecture", architecture);
    metadata.string("general.type", "model");
    metadata.string("general.name", &format!("synthetic {}", shape.name));
    // "Mostly Q4_0", and the version of ggml's quantised types.
    metadata.u32("general.file_type", 2);
    metadata.u32("general.quantization_version", 2);

    let key = |name: &str| format!("{architecture}.{name}");
    let u32 = |metadata: &mut Metadata, name: &str, value| metadata.u32(&key(name), value);
    let dense_or_expert = if shape.dense_width == 0 { shape.expert_width } else { shape.dense_width };
    u32(metadata, "block_count", shape.layers);
    u32(metadata, "context_length", shape.context);
    u32(metadata, "embedding_length", shape.width);
    u32(metadata, "feed_forward_length", dense_or_expert);
    u32(metadata, "attention.head_count", shape.heads);
    metadata.f32(&key("rope.freq_base"), shape.theta);
    metadata.f32(&key("attention.layer_norm_rms_epsilon"), epsilon(shape));
    u32(metadata, "expert_count", shape.experts);
    u32(metadata, "expert_used_count", shape.chosen);
    match &shape.family {
        Family::Olmoe => u32(metadata, "attention.head_count_kv", shape.kv_heads),
        Family::Qwen3Moe => {
            u32(metadata, "attention.head_count_kv", shape.kv_heads);
            u32(metadata, "attention.key_length", shape.head_width);
            u32(metadata, "attention.value_length", shape.head_width);
            u32(metadata, "expert_feed_forward_length", shape.expert_width);
        }
        Family::Mixtral => {
            u32(metadata, "attention.head_count_kv", shape.kv_heads);
            u32(metadata, "vocab_size", shape.vocab);
            u32(metadata, "rope.dimension_count", shape.head_width);
        }
        Family::Lfm2Moe { attention, dense_layers } => {
            // Zero heads mark a layer with a short convolution.
            let heads = |layer| if attention.contains(&layer) { shape.kv_heads as i32 } else { 0 };
            metadata.i32s(&key("attention.head_count_kv"), &(0..shape.layers).map(heads).collect::<Vec<_>>());
            u32(metadata, "expert_feed_forward_length", shape.expert_width);
            u32(metadata, "leading_dense_block_count", *dense_layers);
            u32(metadata, "expert_gating_func", 2);
            u32(metadata, "vocab_size", shape.vocab);
            u32(metadata, "shortconv.l_cache", 3);
        }
        Family::DeepSeek2 { .. } => write_deepseek2(metadata, shape, &key),
    }
}

const fn epsilon(shape: &Shape) -> f32 {
    match shape.family {
        Family::Qwen3Moe | Family::DeepSeek2 { .. } => 1e-6,
        _ => 1e-5,
    }
}

fn write_deepseek2(metadata: &mut Metadata, shape: &Shape, key: &dyn Fn(&str) -> String) {
    let Family::DeepSeek2 { kv_rank, nope, rope, value, shared, dense_layers } = shape.family else { return };
    let mut u32 = |name: &str, value| metadata.u32(&key(name), value);
    u32("attention.head_count_kv", 1);
    u32("leading_dense_block_count", dense_layers);
    u32("vocab_size", shape.vocab);
    u32("attention.kv_lora_rank", kv_rank);
    u32("attention.key_length", kv_rank + rope);
    u32("attention.value_length", kv_rank);
    u32("attention.key_length_mla", nope + rope);
    u32("attention.value_length_mla", value);
    // Zero selects undivided queries; llama.cpp insists on the key unless the model has the full depth.
    u32("attention.q_lora_rank", 0);
    u32("expert_feed_forward_length", shape.expert_width);
    u32("expert_shared_count", shared);
    u32("expert_group_count", 1);
    u32("expert_group_used_count", 1);
    u32("expert_gating_func", 1);
    u32("rope.dimension_count", rope);
    u32("rope.scaling.original_context_length", 4096);
    metadata.f32(&key("expert_weights_scale"), 1.0);
    metadata.string(&key("rope.scaling.type"), "yarn");
    metadata.f32(&key("rope.scaling.factor"), 40.0);
    metadata.f32(&key("rope.scaling.yarn_log_multiplier"), 0.0707);
    metadata.f32(&key("rope.scaling.yarn_beta_fast"), 32.0);
    metadata.f32(&key("rope.scaling.yarn_beta_slow"), 1.0);
}
