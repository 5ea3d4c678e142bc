//! A vocabulary of ours for synthetic models: valid for llama.cpp, of the right size, and about nothing.

use super::shape::{Family, Shape};
use crate::gguf::write::Metadata;
use crate::vocabulary::character_of;

/// Token types.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Appends the tokenizer's keys.
pub(super) fn write(metadata: &mut Metadata, shape: &Shape) {
    let last = shape.vocab - 1;
    let pre = match shape.family {
        Family::Olmoe => "olmo",
        Family::Qwen3Moe => "qwen2",
        Family::Lfm2Moe { .. } => "lfm2",
        Family::DeepSeek2 { .. } => "deepseek-llm",
        Family::Mixtral => return write_pieces(metadata, shape.vocab as usize),
    };
    write_byte_level(metadata, shape.vocab as usize, pre);
    let has_bos = matches!(shape.family, Family::Lfm2Moe { .. } | Family::DeepSeek2 { .. });
    metadata.u32("tokenizer.ggml.bos_token_id", last - 1);
    metadata.u32("tokenizer.ggml.eos_token_id", last);
    metadata.u32("tokenizer.ggml.padding_token_id", last);
    metadata.bool("tokenizer.ggml.add_bos_token", has_bos);
    metadata.bool("tokenizer.ggml.add_eos_token", false);
}

fn letters() -> impl Iterator<Item = (char, char)> {
    ('a'..='z').flat_map(|first| ('a'..='z').map(move |second| (first, second)))
}

/// 256 bytes, pairs of letters with their merges, unused tokens, and two control tokens.
fn write_byte_level(metadata: &mut Metadata, vocab: usize, pre: &str) {
    let mut tokens: Vec<String> = (0..=255).map(|byte| character_of(byte).to_string()).collect();
    let mut types = vec![NORMAL; tokens.len()];
    let mut merges = Vec::new();
    for (first, second) in letters().take(vocab - 2 - tokens.len()) {
        tokens.push(format!("{first}{second}"));
        types.push(NORMAL);
        merges.push(format!("{first} {second}"));
    }
    fill(&mut tokens, &mut types, vocab - 2);
    tokens.extend(["<|begin|>".to_owned(), "<|end|>".to_owned()]);
    types.extend([CONTROL; 2]);
    metadata.string("tokenizer.ggml.model", "gpt2");
    metadata.string("tokenizer.ggml.pre", pre);
    metadata.strings("tokenizer.ggml.tokens", &tokens);
    metadata.i32s("tokenizer.ggml.token_type", &types);
    metadata.strings("tokenizer.ggml.merges", &merges);
}

/// Three special tokens, 256 bytes, letters with and without a space before them, pairs of letters, unused tokens.
fn write_pieces(metadata: &mut Metadata, vocab: usize) {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut types = vec![UNKNOWN, CONTROL, CONTROL];
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    types.extend([BYTE; 256]);
    let special = tokens.len();
    let single = ('a'..='z').map(|letter| letter.to_string());
    let spaced = ('a'..='z').map(|letter| format!("▁{letter}"));
    let pairs = letters().map(|(first, second)| format!("{first}{second}"));
    tokens
        .extend(["▁".to_owned()].into_iter().chain(single).chain(spaced).chain(pairs).take(vocab - special));
    types.resize(tokens.len(), NORMAL);
    fill(&mut tokens, &mut types, vocab);
    let score = |index: usize| if index < special { 0.0 } else { -((index - special) as f32) };
    let scores: Vec<f32> = (0..vocab).map(score).collect();
    metadata.string("tokenizer.ggml.model", "llama");
    metadata.string("tokenizer.ggml.pre", "default");
    metadata.strings("tokenizer.ggml.tokens", &tokens);
    metadata.f32s("tokenizer.ggml.scores", &scores);
    metadata.i32s("tokenizer.ggml.token_type", &types);
    metadata.u32("tokenizer.ggml.bos_token_id", 1);
    metadata.u32("tokenizer.ggml.eos_token_id", 2);
    metadata.u32("tokenizer.ggml.unknown_token_id", 0);
    metadata.bool("tokenizer.ggml.add_bos_token", true);
    metadata.bool("tokenizer.ggml.add_eos_token", false);
}

fn fill(tokens: &mut Vec<String>, types: &mut Vec<i32>, vocab: usize) {
    while tokens.len() < vocab {
        tokens.push(format!("<tok_{}>", tokens.len()));
        types.push(UNUSED);
    }
}
