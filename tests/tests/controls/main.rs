//! Negative controls: mistakes that engines make, made on purpose, one or more for each feature of an architecture. Each
//! must be noticed by the gate that passes the right one ([`Agreement::passes`]), or that gate proves nothing.
//!
//! Mistakes in the oracle (`computing`) show what the comparison with llama.cpp can see. Mistakes in the file (`storing`)
//! show besides that the packer reads the key or tensor in question and the firmware computes with it: the broken file is a
//! model of its own, which llama.cpp's logits of the sound one must refuse and the oracle's of the broken one must pass.
//!
//! All references are of F32 twins. Against llama.cpp's own run of the quantised file two of the mistakes drown in the
//! rounding of its activations; that they would is checked too.

mod computing;
mod storing;

use estream::{KernelSet, Options};
use estream_tests::compare::{Agreement, compare};
use estream_tests::fixture::{self, Golden};
use estream_tests::gguf::Parts;
use estream_tests::native;
use estream_tests::oracle::{Gguf, Model};
use std::path::Path;

/// The loosest bound of the mean KL to which any kernels are held.
const LOOSEST: f64 = 1e-6;
/// The bound for scalar kernels.
const SCALAR: f64 = 1e-7;
/// The bound for the oracle.
const ORACLE: f64 = 1e-10;

fn against_llama_cpp(golden: &Golden, model: &Model) -> Agreement {
    let prompt = &golden.prompts[0];
    compare(prompt.logits().view(), prompt.select(&model.forward(&prompt.ids).logits).view())
}

/// llama.cpp's own mean KL between the quantised file and its twin, where the shared folder says it.
fn rounding_of_llama_cpp(name: &str) -> Option<f64> {
    let file = fixture::shared()?.join("goldens/random").join(name).with_extension("json");
    let text = std::fs::read_to_string(file).expect("a golden's figures");
    let figures: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    figures["llama_cpp_quantised"]["kl_mean"].as_f64()
}

#[test]
fn mistakes_in_computing_are_noticed() {
    for (name, mistakes) in computing::MISTAKES {
        let Some(golden) = fixture::golden(name) else { continue };
        let model = Model::open(&golden.gguf).expect("a golden");
        let right = against_llama_cpp(&golden, &model);
        assert!(right.passes(ORACLE), "{name}: {right:?}");
        for mistake in mistakes {
            let mut broken = model.clone();
            (mistake.make)(&mut broken);
            let agreement = against_llama_cpp(&golden, &broken);
            println!("{name}, {}: {agreement:?}", mistake.what);
            assert!(!agreement.passes(mistake.bound), "{name}, {}: {agreement:?}", mistake.what);
            if let Some(rounding) = mistake.hidden.then(|| rounding_of_llama_cpp(name)).flatten() {
                assert!(agreement.kl_mean < 1.5 * rounding, "{name}, {}: {agreement:?}", mistake.what);
            }
        }
    }
}

/// The product's scalar logits for a golden's short prompt.
fn product(gguf: &Path, folder: &Path, ids: &[u32]) -> ndarray::Array2<f32> {
    let pack = fixture::pack(gguf, folder, None);
    native::logits(&pack, &[ids], Options::new().kernels(KernelSet::SCALAR)).remove(0)
}

#[test]
fn mistakes_in_storing_are_noticed() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for (name, mistakes) in storing::MISTAKES {
        let Some(golden) = fixture::golden(name) else { continue };
        let prompt = &golden.prompts[0];
        let sound = std::fs::read(&golden.gguf).expect("a golden");
        let right = product(&golden.gguf, folder.path(), &prompt.ids);
        assert!(compare(prompt.logits().view(), right.view()).passes(SCALAR), "{name}");
        for (what, make) in mistakes {
            let mut parts = Parts::read(&sound);
            make(&mut parts);
            let bytes = parts.write(32);
            let path = folder.path().join("broken.gguf");
            std::fs::write(&path, &bytes).expect("a file can be written");
            let logits = product(&path, folder.path(), &prompt.ids);
            let noticed = compare(prompt.logits().view(), logits.view());
            println!("{name}, {what}: {noticed:?}");
            assert!(!noticed.passes(LOOSEST), "{name}, {what}: {noticed:?}");
            let broken = Model::load(&Gguf::parse(bytes).expect("a GGUF")).expect("a model");
            let agreement = compare(broken.forward(&prompt.ids).logits.view(), logits.view());
            assert!(agreement.passes(SCALAR), "{name}, {what}: {agreement:?}");
        }
    }
}
