//! The oracle against llama.cpp: before anything is held to the oracle it is held to somebody else's logits.

use estream_tests::compare::compare;
use estream_tests::fixture;
use estream_tests::oracle::Model;

/// f32 rounding of llama.cpp's own pass on the F32 twin: measured 2e-13 to 4e-12.
const KL_MEAN: f64 = 1e-10;
/// Measured 4e-6 to 1.9e-5.
const MAX_ABS: f64 = 1e-4;

#[test]
fn the_oracle_gives_the_logits_of_llama_cpp() {
    for golden in fixture::goldens().into_iter().chain(fixture::wild()) {
        let model = Model::open(&golden.gguf).expect("a golden is a model that the oracle knows");
        for prompt in &golden.prompts {
            let forward = model.forward(&prompt.ids);
            let agreement = compare(prompt.logits().view(), prompt.select(&forward.logits).view());
            println!("{} {}: {agreement:?}", golden.name, prompt.ids.len());
            assert!(agreement.passes(KL_MEAN), "{}: {agreement:?}", golden.name);
            assert!(agreement.max_abs <= MAX_ABS, "{}: {agreement:?}", golden.name);
        }
    }
}

#[test]
fn a_later_token_changes_no_earlier_row() {
    let golden = fixture::own();
    let model = Model::open(&golden.gguf).expect("our own golden");
    let ids = &golden.prompts[0].ids;
    let (long, short) = (model.forward(&ids[..24]), model.forward(&ids[..16]));
    assert_eq!(long.logits.slice(ndarray::s![..16, ..]), short.logits);
    assert_eq!(long.routing[3][..16], short.routing[3][..]);
    assert!(long.first_doubtful(0.0).is_none() && long.first_doubtful(1.0) == Some(0));
}
