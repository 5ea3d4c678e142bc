//! Near llama.cpp up to a prompt's first flip, and no flip where the oracle's choice is firm.
//!
//! Halves round more than f32, so a choice of experts that hangs on less may fall otherwise, and everything after it
//! differs: a prompt is held to the bound up to its first flip, and a flip is allowed only where the oracle's own choice is
//! doubtful.

use crate::prompts::{KL, goldens, margin, options};
use estream_tests::compare::{compare, kl};
use estream_tests::fixture;
use estream_tests::native::logits;
use estream_tests::oracle::Model;
use ndarray::s;

/// What no rounding of halves reaches, and every flip does.
const FLIP: f64 = 5e-4;

#[test]
fn goldens_are_near_up_to_their_first_flip_and_flip_no_firm_route() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let mut failed = Vec::new();
    for golden in goldens() {
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        let model = Model::open(&golden.gguf).expect("a golden");
        let prompt = &golden.prompts[0];
        let oracle = model.forward(&prompt.ids);
        let ours = logits(&pack, &[&prompt.ids], options()).remove(0);
        let mut rows = oracle.logits.rows().into_iter().zip(ours.rows());
        let flip = rows.position(|(p, q)| kl(p, q) > FLIP).unwrap_or(prompt.ids.len());
        // The choice that fell otherwise is among those of that position, in some layer.
        let margins = oracle.routing.iter().filter_map(|layer| layer.get(flip)).map(|choice| choice.margin);
        let least = margins.fold(f64::INFINITY, f64::min);
        let before = s![..flip.max(1), ..];
        let agreement = compare(oracle.logits.slice(before), ours.slice(before));
        let what = format!("{}: first flip at {flip} of {}", golden.name, prompt.ids.len());
        let what = format!("{what}, whose margin is {least:.1e}; before it {agreement:?}");
        println!("{what}");
        let firm = oracle.first_doubtful(margin(&golden)).unwrap_or(prompt.ids.len());
        if flip < firm || flip == 0 || agreement.kl_mean.is_nan() || agreement.kl_mean > KL {
            failed.push(what);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
