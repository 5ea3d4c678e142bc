//! Models trained on real text: the log-probability of every token against llama.cpp's run of the F32 twin.
//!
//! Compared token by token, since the mean hides real mistakes (the last test shows one). The four windows of a model go
//! through one pass as four requests, streamed through an arena of three banks; slow kernels take the first window alone,
//! and the models of Hexagon's units its beginning, but with `ESTREAM_FULL=1`.

use estream::{Arena, Banks, KernelSet, Options};
use estream_tests::gguf::Parts;
use estream_tests::{fixture, native};
use ndarray::{Array2, ArrayView2, s};
use ndarray_npy::NpzReader;
use std::fs::File;
use std::path::{Path, PathBuf};

/// How far log-probabilities may be from the reference's, in nats.
struct Bound {
    mean: f64,
    max: f64,
    /// How far the mean of whole windows may be off: in the mean of a few tokens it would be one of them that counts.
    of_means: f64,
}

const SCALAR: Bound = Bound { mean: 1e-5, max: 1e-3, of_means: OF_MEANS };
const OTHERS: Bound = Bound { mean: 1e-4, max: 1e-2, of_means: OF_MEANS };
/// Operands are halves: a near-tie of the router may fall the other way, and the token with it.
const HALVES: Bound = Bound { mean: 5e-3, max: f64::INFINITY, of_means: OF_MEANS };
/// Activations have 8 bits: as with halves. A mean difference of d is a divergence of about d².
const ONE_DIGIT: Bound = Bound { mean: 2e-2, max: f64::INFINITY, of_means: 2e-3 };
/// A thousandth of the perplexity.
const OF_MEANS: f64 = 1e-3;
const WINDOW: usize = 511;

/// A model with its windows of text and llama.cpp's log-probabilities for them.
struct Trained {
    name: String,
    gguf: PathBuf,
    windows: Vec<Vec<u32>>,
    /// Entry [w, i] is about token i + 1 of window w.
    twin: Array2<f32>,
}

impl Trained {
    fn load(folder: &Path, name: &str) -> Self {
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        let text = std::fs::read_to_string(file("windows.json")).expect("the windows");
        let mut windows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let windows = serde_json::from_value(windows["windows"].take()).expect("lists of ids");
        let npz = File::open(file("ref.npz")).expect("the reference");
        let twin = NpzReader::new(npz).and_then(|mut npz| npz.by_name("twin")).expect("an array");
        Self { name: name.into(), gguf: file("gguf"), windows, twin }
    }

    /// The shared models, or none where there is no shared folder.
    fn all() -> Vec<Self> {
        let Some(folder) = fixture::shared().map(|shared| shared.join("goldens/trained")) else {
            return Vec::new();
        };
        let entries = std::fs::read_dir(&folder).expect("the models").map(|entry| entry.expect("an entry"));
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".gguf").map(str::to_owned))
            .collect();
        names.sort();
        assert!(names.len() >= 7, "{names:?}");
        names.iter().map(|name| Self::load(&folder, name)).collect()
    }

    /// How far the product's log-probabilities of the windows are from the reference's.
    fn difference(&self, pack: &Path, kernels: KernelSet) -> Difference {
        let (windows, tokens) = match kernels {
            _ if fixture::full() => (4, 512),
            KernelSet::HMX_MODEL => (1, 65),
            _ if native::slow(kernels) => (1, 512),
            _ => (4, 512),
        };
        let ids: Vec<&[u32]> = self.windows[..windows].iter().map(|window| &window[..tokens]).collect();
        let options = Options::new().kernels(kernels).arena(Arena::Group(2, Some(Banks::Count(3))));
        let scores = native::scores(pack, &ids, options).concat();
        Difference::of(self.twin.slice(s![..windows, ..tokens - 1]), &scores)
    }
}

#[derive(Debug)]
struct Difference {
    count: usize,
    mean: f64,
    max: f64,
    /// Of the mean negative log-likelihood: what a report of perplexity would show.
    of_means: f64,
}

impl Difference {
    fn of(twin: ArrayView2<'_, f32>, scores: &[f32]) -> Self {
        assert_eq!(twin.len(), scores.len(), "a token has no score");
        let count = scores.len();
        let signed = || twin.iter().zip(scores).map(|(&twin, &score)| f64::from(twin) - f64::from(score));
        let mean = signed().map(f64::abs).sum::<f64>() / count as f64;
        // Without f64::max, which would lose a NaN.
        let max = signed()
            .map(f64::abs)
            .fold(0.0, |max, next| if next <= max || max.is_nan() { max } else { next });
        Self { count, mean, max, of_means: signed().sum::<f64>().abs() / count as f64 }
    }

    fn within(&self, bound: &Bound) -> bool {
        let of_means = if self.count < WINDOW { f64::INFINITY } else { bound.of_means };
        self.mean <= bound.mean && self.max <= bound.max && self.of_means <= of_means
    }
}

#[test]
fn every_token_has_the_log_probability_of_llama_cpp() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for model in Trained::all() {
        let pack = fixture::pack(&model.gguf, folder.path(), None);
        let units = KernelSet::HMX_MODEL.intersection(estream_dsp::kernels::available());
        let sets = native::backends().into_iter().map(|(kernels, _)| kernels);
        // All kernels with one digit give the same bits: the best of them speak for all.
        for kernels in sets.chain([KernelSet::ONE_DIGIT]).chain(units.iter()) {
            let bound = match kernels {
                KernelSet::SCALAR => SCALAR,
                KernelSet::HMX_MODEL => HALVES,
                _ if kernels.contains(KernelSet::ONE_DIGIT) => ONE_DIGIT,
                _ => OTHERS,
            };
            let difference = model.difference(&pack, kernels);
            println!("{} {kernels:?}: {difference:?}", model.name);
            assert!(difference.within(&bound), "{} {kernels:?}: {difference:?}", model.name);
        }
        std::fs::remove_file(pack).expect("the pack can be removed");
    }
}

/// One expert fewer a token moves the mean by less than a ten-thousandth of a nat or two, and every token by far more than
/// the bound.
#[test]
fn the_mean_hides_what_the_tokens_show() {
    let Some(shared) = fixture::shared() else { return };
    let model = Trained::load(&shared.join("goldens/trained"), "deepseek2.Q4_0");
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let mut parts = Parts::read(&std::fs::read(&model.gguf).expect("the model"));
    parts.set("deepseek2.expert_used_count", 3);
    let broken = folder.path().join("fewer.gguf");
    std::fs::write(&broken, parts.write(32)).expect("a file can be written");
    let pack = fixture::pack(&broken, folder.path(), None);
    let difference = model.difference(&pack, KernelSet::empty());
    println!("{difference:?}");
    assert!(difference.of_means < 5e-4, "{difference:?}");
    assert!(!difference.within(&OTHERS) && difference.mean > 1e-2, "{difference:?}");
}
