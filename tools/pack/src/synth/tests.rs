//! The synthetic source against itself and against what it promises.

use super::*;
use crate::convert::{Options, convert};
use crate::model::Model;
use crate::vocabulary::Vocabulary;

fn quiet(_: u64, _: u64) {}

fn options(shape: Shape, skew: f64, format: SynthFormat, output: PathBuf) -> SynthOptions<'static> {
    SynthOptions { shape, layers: None, seed: 7, skew, format, output, progress: &quiet }
}

#[test]
fn any_piece_of_the_file_is_the_same_bytes() {
    let file = build(&Shape::tiny(), 3, 0.0);
    let mut whole = vec![0; file.bytes() as usize];
    file.read_at(0, &mut whole).unwrap();
    for (at, bytes) in [(0, 7), (file.bytes() - 5, 5), (20_001, 70_003), (file.bytes() / 2 + 1, 4097)] {
        let mut piece = vec![0; bytes];
        file.read_at(at, &mut piece).unwrap();
        assert_eq!(piece, whole[at as usize..at as usize + bytes]);
    }
    assert!(file.read_at(file.bytes(), &mut [0]).is_err());
    assert_ne!(whole, {
        let other = build(&Shape::tiny(), 4, 0.0);
        let mut w = vec![0; other.bytes() as usize];
        other.read_at(0, &mut w).unwrap();
        w
    });
}

#[test]
fn packing_the_seed_is_packing_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    synth(&options(Shape::tiny(), 1.0, SynthFormat::Gguf, path("a.gguf"))).unwrap();
    synth(&options(Shape::tiny(), 1.0, SynthFormat::Pack, path("a.estream"))).unwrap();
    convert(&path("a.gguf"), &path("b.estream"), &Options { order: None, progress: &quiet }).unwrap();
    assert_eq!(std::fs::read(path("a.estream")).unwrap(), std::fs::read(path("b.estream")).unwrap());
    let vocabulary = Vocabulary::from_pack(&path("a.estream")).unwrap();
    assert_eq!(vocabulary.len(), 512);
    assert_eq!(
        (vocabulary.text(32), vocabulary.text(256), vocabulary.text(511)),
        (" ".into(), "aa".into(), "<|end|>".into())
    );
    assert_eq!(vocabulary.text(512), "");
}

#[test]
fn every_shape_is_a_sound_gguf_and_the_known_architectures_are_models() {
    for name in Shape::NAMES {
        let shape = Shape { layers: 3, ..Shape::named(name).unwrap() };
        let file = build(&shape, 1, 0.5);
        let gguf = Gguf::read(&file).unwrap();
        assert_eq!(gguf.array_len("tokenizer.ggml.tokens"), Some(u64::from(shape.vocab)), "{name}");
        match (Model::of(&gguf), &shape.family) {
            (Ok(model), Family::Olmoe | Family::Qwen3Moe | Family::Mixtral) => {
                assert_eq!(model.recipe.layers.len(), 3);
                assert_eq!(model.recipe.kinds.len(), 1);
            }
            (Err(error), Family::Lfm2Moe { .. } | Family::DeepSeek2 { .. }) => {
                assert_eq!(error.code, "unsupported-architecture");
            }
            (result, _) => panic!("{name}: {:?}", result.err()),
        }
    }
}

#[test]
fn full_shapes_have_the_published_sizes() {
    let bytes = |name: &str| build(&Shape::named(name).unwrap(), 1, 0.0).bytes() as f64;
    // 3,928 MB is the file that llama.cpp's tools make of this shape.
    assert!((bytes("olmoe-1b-7b") / 3.928e9 - 1.0).abs() < 0.01, "{}", bytes("olmoe-1b-7b"));
}

#[test]
fn a_skew_reaches_the_routes() {
    let share = |skew| {
        let shape = Shape { experts: 64, chosen: 1, vocab: 2048, ..Shape::tiny() };
        let file = build(&shape, 5, skew);
        share::measure(&Gguf::read(&file).unwrap(), 0, 1).unwrap().unwrap().max_share
    };
    // Zipf with exponent 1 over 64 experts gives the first one a share of 1/H(64) = 0.21.
    let (even, zipf, steep) = (share(0.0), share(1.0), share(2.0));
    assert!(even < 0.06, "{even}");
    assert!((0.14..0.30).contains(&zipf), "{zipf}");
    assert!(steep > 0.45, "{steep}");
}
