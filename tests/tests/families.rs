//! What only some families have, each made visible by changing it: which norm and which weights the same tensors get by their
//! architecture's name (case O12 of the users' list), a selection bias (O13), leading dense layers and shared experts (O15).
//!
//! llama.cpp's logits of these goldens are compared in `goldens`; here the files are others, so the oracle is the reference,
//! and each test shows that the feature is seen at all.

use estream::Options;
use estream_tests::compare::compare;
use estream_tests::fixture::{self, Golden};
use estream_tests::gguf::Parts;
use estream_tests::native::{backends, logits};
use estream_tests::oracle::{Feed, Forward, Gguf, Model, Weighing};
use std::path::Path;

fn parts(golden: &Golden) -> Parts {
    Parts::read(&std::fs::read(&golden.gguf).expect("a golden"))
}

/// Runs a changed model by every backend, which must agree with the oracle.
fn agree(parts: &Parts, ids: &[u32], what: &str) -> (Model, Forward) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.path().join("changed.gguf");
    let bytes = parts.write(32);
    std::fs::write(&path, &bytes).expect("a file can be written");
    let pack = fixture::pack(&path, Path::new(folder.path()), None);
    let model = Model::load(&Gguf::parse(bytes).expect("a GGUF")).expect("a model");
    let forward = model.forward(ids);
    for (kernels, bound) in backends() {
        let logits = logits(&pack, &[ids], Options::new().kernels(kernels)).remove(0);
        let agreement = compare(forward.logits.view(), logits.view());
        println!("{what}, {}: {agreement:?}", kernels.name());
        assert!(agreement.passes(bound), "{what}, {}: {agreement:?}", kernels.name());
    }
    (model, forward)
}

/// The same weights under both names: `olmoe` norms whole vectors and leaves the weights, `qwen3moe` norms heads and divides
/// by the sum.
#[test]
fn the_same_weights_are_two_models_under_two_names() {
    let Some(golden) = fixture::golden("qwen3moe") else { return };
    let prompt = &golden.prompts[0];
    let one = parts(&golden);
    let mut other = one.clone();
    for (key, _) in &mut other.keys {
        if let Some(rest) = key.strip_prefix("qwen3moe.") {
            *key = format!("olmoe.{rest}");
        }
    }
    other.set_text("general.architecture", "olmoe");
    let heads = [("attn_q_norm", 4), ("attn_k_norm", 2)];
    for piece in &mut other.tensors {
        if let Some((_, heads)) = heads.iter().find(|(part, _)| piece.name.contains(part)) {
            piece.data = piece.data.repeat(*heads);
            piece.shape[0] *= *heads as u64;
        }
    }
    let (_, one) = agree(&one, &prompt.ids, "as qwen3moe");
    let (_, other) = agree(&other, &prompt.ids, "as olmoe");
    assert!(compare(prompt.logits().view(), one.logits.view()).passes(1e-10));
    assert!(compare(one.logits.view(), other.logits.view()).kl_mean > 1e-2);
}

/// An expert with a bias of 10 is everybody's first choice, at the weight that its own logit gives it.
#[test]
fn a_selection_bias_chooses_and_does_not_weigh() {
    let Some(golden) = fixture::golden("lfm2moe") else { return };
    let ids = &golden.prompts[0].ids;
    let mut parts = parts(&golden);
    for layer in 2..5 {
        let bias = &mut parts.tensor(&format!("blk.{layer}.exp_probs_b.bias")).data;
        bias[3 * 4..4 * 4].copy_from_slice(&10f32.to_le_bytes());
    }
    let (mut model, forward) = agree(&parts, ids, "a bias of 10");
    for choice in forward.routing.iter().flatten() {
        // Two sigmoids divided by their sum: neither is larger than 1, as the sum with the bias would be.
        assert_eq!((choice.experts[0], choice.experts.len()), (3, 2));
        assert!((choice.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    assert!(forward.routing.iter().flatten().any(|choice| choice.weights[0] < choice.weights[1]));
    for layer in &mut model.layers {
        if let Feed::Experts(experts) = &mut layer.feed {
            experts.router.weighing = Weighing::Score;
        }
    }
    let wrong = model.forward(ids);
    assert!(compare(wrong.logits.view(), forward.logits.view()).kl_mean > 1e-2, "the bias would be seen");
}

/// One leading dense layer, two shared experts in one unit, one group of experts: loaded, and each of them counts.
#[test]
fn dense_layers_and_shared_experts_count() {
    for name in ["deepseek2-new", "deepseek2-old"] {
        let Some(golden) = fixture::golden(name) else { return };
        let prompt = &golden.prompts[0];
        let sound = parts(&golden);
        let mut grouped = sound.clone();
        grouped.set("deepseek2.expert_group_count", 1);
        grouped.set("deepseek2.expert_group_used_count", 1);
        let (model, forward) = agree(&grouped, &prompt.ids, name);
        assert!(compare(prompt.logits().view(), forward.logits.view()).passes(1e-10), "{name}");
        let dense = |feed: &Feed| matches!(feed, Feed::Unit(_));
        assert!(dense(&model.layers[0].feed) && !model.layers[1..].iter().any(|layer| dense(&layer.feed)));
        let Feed::Experts(experts) = &model.layers[1].feed else { panic!("no experts") };
        let shared = experts.shared.as_ref().expect("a shared unit");
        assert_eq!(shared.gate.shape[1], 2 * experts.units.gate.shape[1], "{name}: two experts' width");
        for part in ["blk.0.ffn_down.weight", "blk.1.ffn_down_shexp.weight"] {
            let mut silent = sound.clone();
            silent.tensor(part).data.fill(0);
            let (_, other) = agree(&silent, &prompt.ids, part);
            assert!(compare(forward.logits.view(), other.logits.view()).kl_mean > 1e-2, "{name}: {part}");
        }
    }
}
