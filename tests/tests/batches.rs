//! A request's logits do not change by a bit with its neighbours, its place among them, or what follows a token: on every
//! family, for prompts at and around the sizes at which work is cut (rows in eights and thirty-twos, keys in sixty-fours).
//!
//! Alone means resident on one thread; together means streamed through few banks on two. The state of a convolution is part
//! of it: it must not be seen by the next request, and must be seen by the next rows, which are computed in blocks of eight.

use estream::{Arena, Banks, KernelSet, Options};
use estream_pack::{Family, Shape, SynthFormat, SynthOptions};
use estream_tests::compare;
use estream_tests::fixture;
use estream_tests::native::{assert_same, backends, logits, slow};
use estream_tests::oracle::Model;
use estream_tests::random::Random;
use ndarray::{Array2, s};
use std::path::{Path, PathBuf};

/// Tokens of the prompts.
const LENGTHS: [usize; 9] = [1, 2, 3, 31, 32, 33, 40, 130, 512];
/// The longest prompt for slow kernels but in full runs.
const SLOW_LENGTH: usize = 130;
/// Ids below this are in the vocabulary of every model here.
const VOCABULARY: u64 = 512;

/// A prompt that no other seed gives.
fn prompt(seed: u64, tokens: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..tokens).map(|_| random.below(VOCABULARY) as u32).collect()
}

/// Models of every family, made here, so that the law is held without the shared goldens too. The first has queries narrower
/// than its residual stream.
fn made(folder: &Path) -> Vec<(String, PathBuf)> {
    let latent = Family::DeepSeek2 { kv_rank: 64, nope: 32, rope: 32, value: 32, shared: 2, dense_layers: 1 };
    let families = [
        ("narrow", Family::Qwen3Moe, 1, 1),
        ("whole", Family::Olmoe, 4, 4),
        ("adjacent", Family::Mixtral, 4, 2),
        ("convolution", Family::Lfm2Moe { attention: vec![2], dense_layers: 1 }, 4, 2),
        ("latent", latent, 4, 1),
    ];
    let synth = |(name, family, heads, kv_heads): (&str, Family, u32, u32)| {
        let (layers, dense_width) = (3, 128);
        let shape =
            Shape { family, heads, kv_heads, layers, dense_width, name: name.into(), ..Shape::tiny() };
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
        (name.to_owned(), output)
    };
    families.map(synth).into()
}

/// Calls `check` with every model, those made here and the goldens of all families, and every set of kernels; slow ones on
/// few models but in full runs.
fn each(check: impl Fn(&str, &Path, KernelSet)) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for (name, pack) in made(folder.path()) {
        backends().into_iter().for_each(|(kernels, _)| check(&name, &pack, kernels));
    }
    let goldens = if fixture::full() { fixture::goldens() } else { fixture::families() };
    for golden in goldens {
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        for (kernels, _) in backends() {
            if !slow(kernels) || fixture::full() || fixture::is_own(&golden) {
                check(&golden.name, &pack, kernels);
            }
        }
    }
}

fn alone(kernels: KernelSet) -> Options {
    Options::new().kernels(kernels).arena(Arena::Group(16, Some(Banks::All))).depth(1).threads(1)
}

fn together(kernels: KernelSet) -> Options {
    Options::new().kernels(kernels).arena(Arena::Group(2, Some(Banks::Count(3)))).threads(2).row_chunk(32)
}

/// Requests in an order, and for each the number of the prompt that it is, if it is one.
type Order<'a> = Vec<(Option<usize>, &'a [u32])>;

/// In order, in reverse, one by one behind something that puts each at an odd row, and one prompt three times.
fn orders<'a>(prompts: &'a [Vec<u32>], filler: &'a [u32]) -> Vec<Order<'a>> {
    let plain: Order<'_> = prompts.iter().enumerate().map(|(index, ids)| (Some(index), &ids[..])).collect();
    let reversed = plain.iter().copied().rev().collect();
    let (mut odd, mut row) = (Vec::new(), 0);
    for &request in &plain {
        let before = 1 + row % 2;
        odd.extend([(None, &filler[..before]), request]);
        row += before + request.1.len();
    }
    let middle = plain[plain.len() / 2];
    vec![plain, reversed, odd, vec![middle, middle, (None, filler), middle]]
}

#[test]
fn neither_neighbours_nor_places_change_a_bit() {
    each(|name, pack, kernels| {
        let most = if slow(kernels) && !fixture::full() { SLOW_LENGTH } else { 512 };
        let lengths = LENGTHS.into_iter().filter(|&tokens| tokens <= most);
        let prompts: Vec<Vec<u32>> = (1..).zip(lengths).map(|(seed, n)| prompt(seed, n)).collect();
        let filler = prompt(0, 3);
        let expected: Vec<Array2<f32>> =
            prompts.iter().map(|ids| logits(pack, &[ids], alone(kernels)).remove(0)).collect();
        for (index, order) in orders(&prompts, &filler).iter().enumerate() {
            let requests: Vec<&[u32]> = order.iter().map(|(_, ids)| *ids).collect();
            let packed = logits(pack, &requests, together(kernels));
            for ((prompt, ids), logits) in order.iter().zip(&packed) {
                if let Some(prompt) = prompt {
                    let what = (name, kernels.name(), "order", index, "tokens", ids.len());
                    assert_same(&expected[*prompt], logits, what);
                }
            }
        }
    });
}

/// Case O14 of the users' list: rows of a prompt are those of its beginnings, however far these go.
#[test]
fn a_beginning_of_a_prompt_has_the_rows_of_the_whole() {
    let whole = prompt(7, 130);
    each(|name, pack, kernels| {
        let expected = logits(pack, &[&whole], alone(kernels)).remove(0);
        let beginnings = [1, 7, 16, 31, 32, 33, 64, 130].map(|tokens| &whole[..tokens]);
        let packed = logits(pack, &beginnings, together(kernels));
        for (ids, logits) in beginnings.iter().zip(&packed) {
            let rows = expected.slice(s![..ids.len(), ..]).to_owned();
            assert_same(&rows, logits, (name, kernels.name(), ids.len()));
        }
    });
}

/// What stands before a request in the batch is not in its convolution's state, and its own earlier rows are: no row departs
/// from the oracle, whose convolution knows no blocks.
#[test]
fn the_state_of_a_convolution_ends_with_its_request_and_not_with_a_block() {
    let Some(golden) = fixture::golden("lfm2moe") else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let (before, other, ids) = (prompt(1, 33), prompt(2, 33), prompt(3, 130));
    let oracle = Model::open(&golden.gguf).expect("a golden").forward(&ids).logits;
    for (kernels, bound) in backends() {
        let first = logits(&pack, &[&before, &ids], together(kernels)).remove(1);
        let second = logits(&pack, &[&other, &ids], together(kernels)).remove(1);
        assert_same(&first, &second, "what stands before it");
        for (position, (expected, row)) in oracle.rows().into_iter().zip(first.rows()).enumerate() {
            let kl = compare::kl(expected, row);
            assert!(kl <= bound, "{} row {position}: KL {kl}", kernels.name());
        }
    }
}
