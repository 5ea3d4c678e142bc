//! The product against llama.cpp and the oracle, through the command line: pack, run, compare the logits file.
//!
//! The scalar backend loses nothing but f32 rounding. The others may round otherwise but must route alike
//! wherever the oracle's choice is firmer than its rounding: a flip shows as a jump of KL at its position and after, so
//! every position before the first doubtful choice is held to the bound by itself.

use estream::KernelSet;
use estream_tests::compare::{compare, read_npy};
use estream_tests::fixture::{self, Golden};
use estream_tests::native::backends;
use estream_tests::oracle::{Forward, Model};
use estream_tests::program;
use ndarray::{Array2, s};
use std::path::Path;

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

/// Packs and runs every golden, in the order of its experts and in another, by the sets of kernels that are `wanted`.
fn hold(wanted: impl Fn(KernelSet) -> bool) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for golden in fixture::goldens() {
        let model = Model::open(&golden.gguf).expect("a golden");
        let forwards: Vec<Forward> = golden.prompts.iter().map(|prompt| model.forward(&prompt.ids)).collect();
        let order = fixture::random_order(&model.experts(), 11);
        for order in [None, Some(order.as_str())] {
            let pack = pack(&golden, folder.path(), order);
            for (kernels, bound) in backends().into_iter().filter(|(set, _)| wanted(*set)) {
                // The other order need not be held at length.
                let prompts = if order.is_none() || fixture::full() { golden.prompts.len() } else { 1 };
                for (prompt, oracle) in golden.prompts.iter().zip(&forwards).take(prompts) {
                    let what = format!("{} {} {}", kernels.name(), golden.name, prompt.ids.len());
                    let logits = logits(&pack, &prompt.ids, kernels.name(), folder.path());
                    let agreement = compare(prompt.logits().view(), prompt.select(&logits).view());
                    println!("{what}: {agreement:?}");
                    assert!(agreement.passes(bound), "{what}: {agreement:?}");

                    let firm = oracle.first_doubtful(MARGIN).unwrap_or(prompt.ids.len());
                    assert!(firm > 0, "{what}: no position is firm");
                    let before = s![..firm, ..];
                    let agreement = compare(oracle.logits.slice(before), logits.slice(before));
                    println!("{what}: {firm} firm positions, {agreement:?}");
                    assert!(agreement.kl_max <= bound, "{what}: {agreement:?}");
                }
            }
        }
    }
}

#[test]
fn scalar_kernels_give_the_logits_of_llama_cpp() {
    hold(|kernels| kernels == KernelSet::SCALAR);
}

#[test]
fn other_kernels_give_the_logits_of_llama_cpp_and_flip_no_firm_route() {
    hold(|kernels| kernels != KernelSet::SCALAR);
}
