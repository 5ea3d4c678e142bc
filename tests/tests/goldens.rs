//! The product against llama.cpp and the oracle, through the command line: pack, run, compare the logits file.
//!
//! The scalar backend loses nothing but f32 rounding. The vector backend may round otherwise but must route alike
//! wherever the oracle's choice is firmer than its rounding: a flip shows as a jump of KL at its position and after, so
//! every position before the first doubtful choice is held to the bound by itself.

use estream_tests::compare::{compare, read_npy};
use estream_tests::fixture::{self, Golden};
use estream_tests::oracle::Model;
use estream_tests::program;
use ndarray::{Array2, s};
use std::path::Path;

/// Scalar: the bound of the mean KL.
const SCALAR_KL: f64 = 1e-7;
/// Vector kernels: the bound of the mean KL, and of each position before the first doubtful choice.
const VECTOR_KL: f64 = 1e-6;
/// The oracle's margin below which a choice is doubtful.
const MARGIN: f64 = 1e-5;

/// Logits of `ids` by the command line, through an arena of a few banks.
fn logits(pack: &Path, ids: &[u32], kernels: &str, folder: &Path) -> Array2<f32> {
    let (tokens, npy) = (folder.join("ids.txt"), folder.join("logits.npy"));
    std::fs::write(&tokens, program::ids(ids)).expect("ids can be written");
    let mut command = program::estream();
    command.arg("run").arg(pack).arg("--tokens-file").arg(&tokens).arg("--logits").arg(&npy);
    let report = program::report(command.args(["--kernels", kernels, "--group", "2", "--banks", "3"]));
    assert_eq!(report["kernels"], kernels);
    assert_eq!((program::number(&report, "group"), program::number(&report, "banks")), (2, 3));
    let logits = read_npy(&npy).expect("the logits file is NumPy's");
    let last = logits.row(ids.len() - 1);
    let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b]).then(b.cmp(&a)));
    assert_eq!(report["top"][0]["id"].as_u64(), best.map(|id| id as u64), "the report and the file disagree");
    logits
}

fn pack(golden: &Golden, folder: &Path, order: Option<&str>) -> std::path::PathBuf {
    let output = folder.join(if order.is_some() { "ordered.estream" } else { "plain.estream" });
    let mut command = program::estream();
    command.arg("pack").arg(&golden.gguf).arg("-o").arg(&output);
    if let Some(order) = order {
        let file = folder.join("order.json");
        std::fs::write(&file, order).expect("the order can be written");
        command.arg("--order").arg(file);
    }
    let ended = program::finish(&mut command);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    output
}

/// Packs and runs every golden with `kernels`, and hands each prompt's logits to `check`.
fn each(kernels: &str, check: impl Fn(&Golden, usize, &Array2<f32>)) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for golden in fixture::goldens() {
        let model = Model::open(&golden.gguf).expect("a golden");
        let layers = model.layers();
        let order = fixture::random_order(layers, model.experts(), 11);
        for order in [None, Some(order.as_str())] {
            let pack = pack(&golden, folder.path(), order);
            for (index, prompt) in golden.prompts.iter().enumerate() {
                check(&golden, index, &logits(&pack, &prompt.ids, kernels, folder.path()));
            }
        }
    }
}

#[test]
fn scalar_kernels_give_the_logits_of_llama_cpp() {
    each("scalar", |golden, index, logits| {
        let prompt = &golden.prompts[index];
        let agreement = compare(prompt.logits().view(), prompt.select(logits).view());
        println!("scalar {} {}: {agreement:?}", golden.name, prompt.ids.len());
        assert!(agreement.kl_mean <= SCALAR_KL, "{}: {agreement:?}", golden.name);
        assert_eq!(agreement.top1, 1.0, "{}", golden.name);
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn vector_kernels_give_the_logits_of_llama_cpp_and_flip_no_firm_route() {
    if !(std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")) {
        eprintln!("skipped: the AVX2 goldens (this processor has no AVX2 and FMA)");
        return;
    }
    each("avx2", |golden, index, logits| {
        let prompt = &golden.prompts[index];
        let agreement = compare(prompt.logits().view(), prompt.select(logits).view());
        println!("avx2 {} {}: {agreement:?}", golden.name, prompt.ids.len());
        assert!(agreement.kl_mean <= VECTOR_KL, "{}: {agreement:?}", golden.name);
        let oracle = Model::open(&golden.gguf).expect("a golden").forward(&prompt.ids);
        let firm = oracle.first_doubtful(MARGIN).unwrap_or(prompt.ids.len());
        assert!(firm > 0, "{}: no position is firm", golden.name);
        let before = s![..firm, ..];
        let agreement = compare(oracle.logits.slice(before), logits.slice(before));
        println!("avx2 {} {}: {firm} firm positions, {agreement:?}", golden.name, prompt.ids.len());
        assert!(agreement.kl_max <= VECTOR_KL, "{}: {agreement:?}", golden.name);
    });
}
