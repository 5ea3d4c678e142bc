//! `estream bench` on a small pack: that its numbers are there, agree with each other and with what the pack holds, and are
//! null where nothing was measured. How large they are is the machine's affair.

use estream::Model;
use estream_tests::{fixture, oracle, program};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn packed() -> (TempDir, PathBuf) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    (folder, pack)
}

fn bench(pack: &Path, flags: &[&str]) -> Value {
    let mut command = program::estream();
    command.arg("bench").arg(pack).args(["--group", "2", "--banks", "4", "--threads", "1"]).args(flags);
    program::report(&mut command)
}

fn number(value: &Value, path: &str) -> f64 {
    let found = value.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number {path} in {value}"))
}

#[test]
fn a_row_has_its_reads_its_limits_and_the_storage_beside_it() {
    let (_folder, pack) = packed();
    let model = Model::read(&pack).expect("a pack");
    let flags = ["--prompts", "4,96", "--runs", "2", "--cold-runs", "1", "--resident"];
    let report = bench(&pack, &flags);
    assert!(number(&report, "/storage/best_bytes_per_second") > 0.0);
    assert!(number(&report, "/storage/small_pages_bytes_per_second") > 0.0);
    for (index, tokens) in [(0, 4), (1, 96)] {
        let row = &report["rows"][index];
        let of = |path: &str| number(row, path);
        assert_eq!(of("/tokens"), f64::from(tokens));
        // Whole groups are read, so what the routes call for is known to the byte.
        assert_eq!(of("/warm/read_bytes_expected/least"), of("/warm/read_bytes"), "{row}");
        assert_eq!(of("/warm/read_bytes_expected/most"), of("/warm/read_bytes"), "{row}");
        assert_eq!(of("/warm/read_twice_bytes"), 0.0);
        assert!(of("/warm/requests") <= of("/warm/reads") && of("/warm/requests") >= 1.0, "{row}");
        assert!(of("/warm/reads_alone_ms") > 0.0 && of("/warm/share_of_best") > 0.0, "{row}");
        assert!(of("/cold/peak_bytes") > 0.0 && of("/cold/first_token_ms") > of("/cold/prefill_ms"), "{row}");
        let longer = of("/warm/reads_alone_ms").max(of("/resident/prefill_ms"));
        let ratio = of("/warm/prefill_median_ms") / longer;
        assert!((of("/total_over_longer") - ratio).abs() < 1e-9 * ratio, "{row}");
        // Rates of different lengths belong to one count of multiply-accumulates.
        let counted = of("/resident/macs_per_second") * of("/resident/prefill_ms") / 1e3;
        assert!((counted / macs(f64::from(tokens)) - 1.0).abs() < 1e-9, "{counted}: {row}");
    }
    // All experts are routed by the longer prompt.
    let read = number(&report["rows"][1], "/warm/read_bytes");
    assert!((0.0..1e6).contains(&(read - model.expert_bytes as f64)), "{read}");
}

/// Multiply-accumulates of weights in a pass with one output, from what the GGUF says of an OLMoE.
fn macs(tokens: f64) -> f64 {
    let model = oracle::Gguf::open(&fixture::own().gguf).expect("our own golden");
    let number = |key: &str| {
        let found = model.integer(&format!("olmoe.{key}")).expect("a number");
        found.unwrap_or_else(|| panic!("no {key}")) as f64
    };
    let (width, heads) = (number("embedding_length"), number("attention.head_count"));
    let kv = width / heads * number("attention.head_count_kv");
    let attention = 2.0 * width * width + 2.0 * width * kv;
    let router = width * number("expert_count");
    let experts = number("expert_used_count") * 3.0 * width * number("feed_forward_length");
    let layers = number("block_count") * (attention + router + experts);
    let vocabulary = oracle::Model::open(&fixture::own().gguf).expect("our own golden").vocabulary() as f64;
    tokens * layers + width * vocabulary
}

#[test]
fn what_was_not_measured_is_null_and_columns_stay() {
    let (_folder, pack) = packed();
    let report = bench(&pack, &["--prompts", "8", "--runs", "1", "--cold-runs", "0"]);
    let row = &report["rows"][0];
    for nothing in ["/cold", "/resident", "/total_over_longer", "/warm/tokens_per_second_sd", "/warm/joules"]
    {
        assert_eq!(row.pointer(nothing), Some(&Value::Null), "{nothing}: {row}");
    }
    let mut command = program::estream();
    command.arg("bench").arg(&pack).args(["--prompts", "8,16", "--runs", "1", "--cold-runs", "0"]);
    let ended = program::finish(command.args(["--output", "csv"]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let columns: Vec<_> = ended.stdout.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns.len(), 3, "{}", ended.stdout);
    assert!(columns.iter().all(|&count| count == columns[0]), "{}", ended.stdout);
}

#[test]
fn parts_of_groups_are_bounded_and_streamed_dense_weights_are_called_for() {
    let (_folder, pack) = packed();
    let more = ["--prompts", "3", "--runs", "1", "--cold-runs", "0", "--gap", "0", "--dense", "stream"];
    let report = bench(&pack, &[&more[..], &["--schedule", "after-routing"]].concat());
    let of = |path: &str| number(&report["rows"][0], path);
    let (least, most) = (of("/warm/read_bytes_expected/least"), of("/warm/read_bytes_expected/most"));
    assert!(least <= of("/warm/read_bytes") && of("/warm/read_bytes") <= most && least < most, "{report}");
    // After routing and without gaps exactly the routed records are read.
    assert_eq!(least, of("/warm/read_bytes"), "{report}");
}

#[test]
fn ablations_compare_all_modes_at_every_length() {
    let (_folder, pack) = packed();
    let report = bench(&pack, &["--ablations", "--prompts", "4,64", "--cold-runs", "1"]);
    let rows = report["rows"].as_array().expect("rows");
    let modes: Vec<_> = rows.iter().map(|row| row["mode"].as_str().expect("a name")).collect();
    let expected = [
        "on-demand",
        "after-routing",
        "early",
        "cross-layer",
        "per-expert",
        "naive",
        "layer-2",
        "layer-all",
        "resident",
    ];
    assert_eq!(modes, expected.repeat(2));
    let model = Model::read(&pack).expect("a pack");
    for row in rows {
        let read = number(row, "/read_bytes");
        if row["mode"] == "resident" {
            // An embedding row lies on two pages at the most.
            assert!(read <= 2.0 * 4096.0 * number(row, "/tokens"), "no expert is read in the pass: {row}");
        } else if row["tokens"] == 64 {
            assert!(read >= model.expert_bytes as f64, "all experts are routed: {row}");
        }
        assert!(number(row, "/prefill_ms") > 0.0 && number(row, "/peak_bytes") > 0.0, "{row}");
        if row["mode"] == "cross-layer" {
            assert_eq!(number(row, "/over_cross_layer"), 1.0);
        }
    }
    // What cuts its own arena holds more of it, and what reads nothing before the routes reads nothing in vain.
    let of = |mode: &str, key: &str| {
        let found = rows.iter().find(|row| row["mode"] == mode).expect("a mode");
        number(found, key)
    };
    assert!(of("after-routing", "/read_bytes") <= of("cross-layer", "/read_bytes"));
    assert!(of("layer-all", "/peak_bytes") > of("naive", "/peak_bytes"));
}

#[test]
fn a_check_of_the_tuner_holds_its_choice_against_a_sweep() {
    let (_folder, pack) = packed();
    let mut command = program::estream();
    command.arg("tune").arg(&pack).args(["--budget", "64MiB", "--check", "--threads", "1"]);
    let report = program::report(&mut command);
    let (check, choice) = (&report["check"], &report["choices"][0]);
    let points = check["points"].as_array().expect("points");
    let setting = |point: &Value| ["group", "banks", "streamed"].map(|key| point[key].clone());
    // Every point is a setting of its own, the choice among them and the rival not the choice.
    let settings: Vec<_> = points.iter().map(setting).collect();
    assert!(settings.iter().enumerate().all(|(index, one)| !settings[..index].contains(one)), "{settings:?}");
    assert!(settings.contains(&setting(choice)), "{report}");
    assert!(settings.contains(&setting(&check["rival"])), "{report}");
    assert_ne!(setting(&check["rival"]), setting(choice));
    let (feasible, run) = (number(check, "/feasible"), points.len() as f64);
    assert!(feasible >= run && run >= 2.0, "{check}");
    let whole = number(check, "/sweep_ms") / run * feasible;
    assert!((number(check, "/whole_sweep_ms") - whole).abs() < 1e-6 * whole, "{check}");
    let times = whole / number(&report, "/profile_ms");
    assert!((number(check, "/whole_sweep_over_profile") - times).abs() < 1e-6 * times, "{check}");
    let mut ratios: Vec<_> =
        check["ratios"].as_array().expect("pairs").iter().filter_map(Value::as_f64).collect();
    assert_eq!(ratios.len(), 7);
    ratios.sort_by(f64::total_cmp);
    assert!((number(check, "/regret") - (ratios[3] - 1.0).max(0.0)).abs() < 1e-9, "{check}");
}
