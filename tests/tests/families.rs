//! The families whose building blocks the oracle does not know yet, against llama.cpp: latent attention from both tensor
//! layouts, short convolution, leading dense layers, shared experts, sigmoid router with a selection bias, tied heads.
//!
//! llama.cpp's F32 twin is the independent reference; laws are held on these files too, with convolution and latent
//! attention in the batch.

use estream::{Arena, Banks, Engine, KernelSet, Options, Request, Verify};
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
    let options =
        options.max_tokens(tokens).max_requests(prompts.len() as u32).rows(true).verify(Verify::Never);
    let mut engine = Engine::open(pack, options).expect("the engine opens");
    let mut collector = Collector::new(&lengths, engine.model().vocab as usize);
    let requests: Vec<Request> = prompts.iter().map(|&ids| Request::new(ids).with_rows()).collect();
    engine.prefill_into(&requests, &mut collector).expect("the pass ends well");
    collector.finish()
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

#[test]
fn neither_settings_nor_neighbours_change_a_bit() {
    let bits = |logits: &Array2<f32>| logits.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    each(|golden, pack| {
        let ids: Vec<u32> = golden.prompts[0].ids.iter().copied().cycle().take(130).collect();
        let prompts: [&[u32]; 4] = [&ids[..1], &ids[3..36], &ids, &ids[5..45]];
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
                assert!(bits(logits) == *alone, "{}: request {request} under setting {index}", golden.name);
            }
        }
    });
}
