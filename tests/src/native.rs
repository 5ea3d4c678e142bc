//! The product in this process, through its library: for tests that make more passes than programs could be started.

use crate::collect::Collector;
use estream::{Engine, KernelSet, Options, Request, Verify};
use ndarray::Array2;
use std::path::Path;
use std::sync::Once;

/// The sets of kernels that this processor has, each with the mean KL that it is allowed against llama.cpp, but for the
/// choice of one digit and the models of Hexagon's units, which round more and have tests of their own.
///
/// Scalar kernels lose nothing but f32 rounding; the others may round activations.
#[must_use]
pub fn backends() -> Vec<(KernelSet, f64)> {
    let exact = KernelSet::all().difference(KernelSet::MATRIX.union(KernelSet::ONE_DIGIT));
    let available = estream_dsp::kernels::available();
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        for set in exact.difference(available).iter() {
            eprintln!("skipped: {} kernels (not on this processor)", set.name());
        }
    });
    let bound = |set| if set == KernelSet::SCALAR { 1e-7 } else { 1e-6 };
    exact.intersection(available).iter().map(|set| (set, bound(set))).collect()
}

/// Whether kernels are portable code or models, whose speed allows little of a grid.
#[must_use]
pub fn slow(kernels: KernelSet) -> bool {
    kernels.intersects(KernelSet::SCALAR | KernelSet::SCALAR_INT8 | KernelSet::HMX_MODEL)
}

/// The logits of prompts run in one pass of an engine opened for it, `[tokens, vocabulary]` each.
///
/// # Panics
/// When anything is refused.
#[must_use]
pub fn logits(pack: &Path, prompts: &[&[u32]], options: Options) -> Vec<Array2<f32>> {
    let lengths: Vec<_> = prompts.iter().map(|ids| ids.len()).collect();
    let tokens: usize = lengths.iter().sum();
    let options = options.max_tokens(tokens as u32).max_requests(prompts.len() as u32).rows(true);
    let mut engine = Engine::open(pack, options.verify(Verify::Never)).expect("the engine opens");
    let mut collector = Collector::new(&lengths, engine.model().vocab as usize);
    let requests: Vec<_> = prompts.iter().map(|&ids| Request::new(ids).with_rows()).collect();
    engine.prefill_into(&requests, &mut collector).expect("the pass runs");
    engine.close().expect("the session ends well");
    collector.finish()
}

/// The log-probability of every token of each prompt after the first, all prompts in one pass of an engine opened for it.
///
/// # Panics
/// When anything is refused.
#[must_use]
pub fn scores(pack: &Path, prompts: &[&[u32]], options: Options) -> Vec<Vec<f32>> {
    let tokens = prompts.iter().map(|ids| ids.len()).sum::<usize>() as u32;
    let options = options.max_tokens(tokens).max_requests(prompts.len() as u32).max_outputs(tokens);
    let mut engine = Engine::open(pack, options.verify(Verify::Never)).expect("the engine opens");
    let requests: Vec<_> = prompts.iter().map(|&ids| Request::score(ids)).collect();
    let responses = engine.prefill(&requests).expect("the pass runs");
    engine.close().expect("the session ends well");
    let score = |answer: &estream::Answer| answer.target_logprob.expect("a target was given");
    responses.iter().map(|response| response.outputs.iter().map(score).collect()).collect()
}

/// Fails, naming the first place, unless two sets of logits are the same bits.
///
/// # Panics
/// When they are not.
pub fn assert_same(reference: &Array2<f32>, other: &Array2<f32>, what: impl std::fmt::Debug) {
    assert_eq!(reference.dim(), other.dim(), "{what:?}");
    let differs = |(_, (a, b)): &(usize, (&f32, &f32))| a.to_bits() != b.to_bits();
    if let Some((at, (a, b))) = reference.iter().zip(other).enumerate().find(differs) {
        let (row, column) = (at / reference.ncols(), at % reference.ncols());
        panic!("{what:?}: position {row}, token {column}: {b:?} in place of {a:?}");
    }
}
