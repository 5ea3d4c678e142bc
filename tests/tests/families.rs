//! The families whose building blocks the oracle does not know yet, against llama.cpp: latent attention from both tensor
//! layouts, short convolution, leading dense layers, shared experts, sigmoid router with a selection bias, tied heads.
//!
//! llama.cpp's F32 twin is the independent reference; laws are held on these files too, with convolution and latent
//! attention in the batch.

use estream::{Arena, Banks, Engine, KernelSet, Options, Request, Verify};
use estream_pack::{Family, Shape, SynthFormat, SynthOptions};
use estream_tests::collect::Collector;
use estream_tests::compare::compare;
use estream_tests::fixture::{self, Golden};
use ndarray::Array2;
use std::path::Path;

/// Files of `goldens/random`.
const NAMES: [&str; 6] =
    ["lfm2moe", "lfm2moe-skew", "deepseek2-new", "deepseek2-old", "deepseek2-27l", "deepseek2-q4mla"];
/// Bounds of the mean KL: scalar, AVX2.
const BOUNDS: [(KernelSet, f64); 2] = [(KernelSet::SCALAR, 1e-7), (KernelSet::AVX2, 1e-6)];

fn run(pack: &Path, prompts: &[&[u32]], options: Options) -> Vec<Array2<f32>> {
    let lengths: Vec<usize> = prompts.iter().map(|ids| ids.len()).collect();
    let tokens = lengths.iter().sum::<usize>() as u32;
    let options = options
        .max_tokens(tokens)
        .max_requests(prompts.len() as u32)
        .max_outputs(prompts.len() as u32)
        .rows(true)
        .verify(Verify::Never);
    let mut engine = Engine::open(pack, options).expect("the engine opens");
    let mut collector = Collector::new(&lengths, engine.model().vocab as usize);
    let requests: Vec<Request> = prompts.iter().map(|&ids| Request::next_token(ids).with_rows()).collect();
    engine.prefill_into(&requests, &mut collector).expect("the pass ends well");
    collector.finish()
}

/// Small models of every family, made here, so that the laws are held without the shared goldens too. The first has
/// queries narrower than its residual stream.
fn made(folder: &Path) -> Vec<(&'static str, std::path::PathBuf)> {
    let families = [
        ("narrow", Family::Qwen3Moe, 1, 1),
        ("mixtral", Family::Mixtral, 4, 2),
        ("lfm2moe", Family::Lfm2Moe { attention: vec![2], dense_layers: 1 }, 4, 2),
    ];
    let synth = |(name, family, heads, kv_heads): (&'static str, Family, u32, u32)| {
        let shape = Shape {
            family,
            heads,
            kv_heads,
            layers: 3,
            dense_width: 128,
            name: name.into(),
            ..Shape::tiny()
        };
        let output = folder.join(name).with_extension("estream");
        let options = SynthOptions {
            shape,
            layers: None,
            seed: 5,
            skew: 0.0,
            format: SynthFormat::Pack,
            output: output.clone(),
            progress: &|_, _| (),
        };
        estream_pack::synth(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, output)
    };
    families.map(synth).into()
}

fn each(check: impl Fn(&Golden, &Path)) {
    let Some(shared) = fixture::shared() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for name in NAMES {
        let golden = Golden::load(&shared.join("goldens/random"), name);
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        check(&golden, &pack);
    }
}

#[test]
fn logits_are_those_of_llama_cpp() {
    each(|golden, pack| {
        for (kernels, bound) in BOUNDS {
            for prompt in &golden.prompts {
                let options = Options::new().kernels(kernels).arena(Arena::Group(2, Some(Banks::Count(3))));
                let logits = run(pack, &[&prompt.ids], options);
                let agreement = compare(prompt.logits().view(), prompt.select(&logits[0]).view());
                println!("{} {} {}: {agreement:?}", golden.name, kernels.name(), prompt.ids.len());
                assert!(agreement.kl_mean <= bound, "{} {}: {agreement:?}", golden.name, kernels.name());
                assert_eq!(agreement.top1, 1.0, "{} {}", golden.name, kernels.name());
            }
        }
    });
}

/// Requests alone and together, at settings that share nothing.
fn hold_the_law(name: &str, pack: &Path, ids: &[u32]) {
    let bits = |logits: &Array2<f32>| logits.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let prompts: [&[u32]; 4] = [&ids[..1], &ids[3..36], ids, &ids[5..45]];
    let plain = || Options::new().arena(Arena::Group(16, Some(Banks::All))).threads(1);
    let alone: Vec<_> = prompts.iter().map(|prompt| bits(&run(pack, &[prompt], plain())[0])).collect();
    let settings = [
        plain().arena(Arena::Group(1, Some(Banks::Count(1)))).threads(2),
        plain().arena(Arena::Group(2, Some(Banks::Count(3)))).threads(2).row_chunk(32).depth(4),
        plain().arena(Arena::Group(4, Some(Banks::Count(2)))).scratch(2 << 20).row_chunk(96),
    ];
    for (index, options) in settings.into_iter().enumerate() {
        let together = run(pack, &prompts, options);
        for (request, (logits, alone)) in together.iter().zip(&alone).enumerate() {
            assert!(bits(logits) == *alone, "{name}: request {request} under setting {index}");
        }
    }
}

#[test]
fn neither_settings_nor_neighbours_change_a_bit() {
    each(|golden, pack| {
        let ids: Vec<u32> = golden.prompts[0].ids.iter().copied().cycle().take(130).collect();
        hold_the_law(&golden.name, pack, &ids);
    });
}

#[test]
fn nor_do_they_on_models_made_here() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let ids: Vec<u32> = (0..130).map(|index| index * 131 % 512).collect();
    for (name, pack) in made(folder.path()) {
        hold_the_law(name, &pack, &ids);
    }
}
