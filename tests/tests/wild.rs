//! Files as people own them: every mix of types that llama.cpp's own quantiser makes, against llama.cpp's logits.

use estream::Options;
use estream_tests::compare::{Agreement, compare};
use estream_tests::fixture;
use estream_tests::gguf::Parts;
use estream_tests::native::{backends, logits};
use estream_tests::{codecs, program};
use serde_json::Value;
use std::collections::BTreeSet;

/// Bits a weight may cost in the pack at 256 inputs or more; Q2_K and Q3_K are widened.
const BITS: [(&str, f64); 15] = [
    ("F32", 32.0),
    ("F16", 16.0),
    ("BF16", 16.0),
    ("Q4_0", 4.6),
    ("Q4_1", 5.1),
    ("Q5_0", 5.6),
    ("Q5_1", 6.1),
    ("Q8_0", 8.6),
    ("Q2_K", 5.2),
    ("Q3_K", 4.7),
    ("Q4_K", 4.7),
    ("Q5_K", 5.7),
    ("Q6_K", 6.7),
    ("IQ4_NL", 4.6),
    ("MXFP4", 4.4),
];

#[test]
fn every_mix_of_types_gives_the_logits_of_llama_cpp() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for golden in fixture::wild() {
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        let prompt = &golden.prompts[0];
        for (kernels, bound) in backends() {
            let logits = logits(&pack, &[&prompt.ids], Options::new().kernels(kernels)).remove(0);
            let agreement: Agreement = compare(prompt.logits().view(), prompt.select(&logits).view());
            println!("{} {}: {agreement:?}", golden.name, kernels.name());
            assert!(agreement.passes(bound), "{} {}: {agreement:?}", golden.name, kernels.name());
        }
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("no {key} in {object}"))
}

/// `pack --json` lists each tensor once with its real type, its codec and what a weight costs.
#[test]
fn the_mapping_of_every_tensor_is_told_and_costs_what_it_should() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let own = fixture::own();
    for golden in fixture::wild().iter().chain([&own]) {
        let output = folder.path().join("out.estream");
        let report = program::report(program::estream().arg("pack").arg(&golden.gguf).arg("-o").arg(&output));
        let tensors = report["tensors"].as_array().expect("a list of tensors");
        let listed: BTreeSet<(String, String)> = tensors
            .iter()
            .map(|tensor| (text(tensor, "tensor").to_owned(), text(tensor, "type").to_owned()))
            .collect();
        let name = |kind: u32| codecs::TYPES.iter().find(|(_, known)| *known == kind).expect("a type").0;
        let parts = Parts::read(&std::fs::read(&golden.gguf).expect("a golden"));
        let real: BTreeSet<(String, String)> =
            parts.tensors.iter().map(|piece| (piece.name.clone(), name(piece.kind).to_owned())).collect();
        assert_eq!(listed, real, "{}", golden.name);
        // A tied head is the embedding a second time.
        let twice = usize::from(report["tied_head"] == Value::Bool(true));
        assert_eq!(tensors.len(), real.len() + twice, "{}: a tensor is listed twice", golden.name);
        for tensor in tensors {
            let bits = tensor["bits_per_weight"].as_f64().expect("a number");
            let (_, most) = BITS.into_iter().find(|(name, _)| *name == text(tensor, "type")).expect("a type");
            // A row of the embedding is padded to 16 bytes, which counts where it is short.
            let wide = tensor["shape"][0].as_u64().is_some_and(|width| width >= 256)
                && text(tensor, "layout") == "strips";
            assert!(!wide || bits <= most, "{}: {tensor}", golden.name);
            let codec = match text(tensor, "type") {
                "F32" | "F16" | "BF16" => "F16",
                "Q5_0" | "Q5_1" | "Q8_0" | "Q5_K" | "Q6_K" => "B8",
                _ => "N4",
            };
            assert_eq!(text(tensor, "codec"), codec, "{tensor}");
        }
        let inspected = program::report(program::estream().arg("inspect").arg(&output));
        let types = |of: &Value| -> BTreeSet<String> {
            let components = of["components"].as_array().expect("components").iter();
            let names = components.flat_map(|component| component["types"].as_array().expect("types"));
            names.flat_map(|share| text(share, "type").split('/')).map(str::to_owned).collect()
        };
        let real: BTreeSet<String> = real.into_iter().map(|(_, kind)| kind).collect();
        assert_eq!(types(&inspected), real, "{}: inspect of the pack", golden.name);
        let source = program::report(program::estream().arg("inspect").arg(&golden.gguf));
        assert_eq!(types(&source), real, "{}: inspect of the file", golden.name);
    }
}
