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
    let mut other = vec![0; whole.len()];
    build(&Shape::tiny(), 4, 0.0).read_at(0, &mut other).unwrap();
    assert_ne!(whole, other);
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
fn every_shape_is_a_sound_gguf_and_a_model() {
    for name in Shape::NAMES {
        let shape = Shape { layers: 3, ..Shape::named(name).unwrap() };
        let file = build(&shape, 1, 0.5);
        let gguf = Gguf::read(&file).unwrap();
        assert_eq!(gguf.array_len("tokenizer.ggml.tokens"), Some(u64::from(shape.vocab)), "{name}");
        let model = Model::of(&gguf).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(model.recipe.layers.len(), 3, "{name}");
        let alike = matches!(shape.family, Family::Olmoe | Family::Qwen3Moe | Family::Mixtral);
        assert_eq!(model.recipe.kinds.len() == 1, alike, "{name}");
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
    for (experts, chosen) in [(64, 1), (64, 8), (8, 2)] {
        for skew in [0.5f32, 1.0, 1.5] {
            let shape = Shape { experts, chosen, width: 1024, vocab: 2048, ..Shape::tiny() };
            let file = build(&shape, 5, skew);
            let measured = share::measure(&Gguf::read(&file).unwrap(), 0, chosen as usize).unwrap().unwrap();
            let wanted = f64::from(skew::shares(experts as usize, chosen as usize, skew)[0]);
            // Two thousand tokens leave some noise.
            let ratio = measured.max_share / wanted;
            assert!(
                (0.8..1.25).contains(&ratio),
                "E {experts} k {chosen} S {skew}: {measured:?}, wanted {wanted}"
            );
        }
    }
    let even = share::measure(&Gguf::read(&build(&Shape::tiny(), 5, 0.0)).unwrap(), 0, 4).unwrap().unwrap();
    assert!(even.max_share < 2.0 * even.even_share, "{even:?}");
}
