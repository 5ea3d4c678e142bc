//! Prompts through a small pack, by the binary: what is refused before anything runs, and what a run reports.

use crate::harness::{self, Answer, estream, small_pack};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const VOCAB: u64 = harness::VOCAB as u64;
const CONTEXT: usize = harness::CONTEXT as usize;
const LAYERS: u64 = harness::LAYERS as u64;
const EXPERTS: u64 = harness::EXPERTS as u64;

fn run(arguments: &[&str]) -> Answer {
    let pack = small_pack().display().to_string();
    let line: Vec<&str> = ["run", &pack, "--json"].iter().chain(arguments).copied().collect();
    estream(&line)
}

fn json(arguments: &[&str]) -> Value {
    let answer = run(arguments);
    assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{answer:?}");
    answer.json()
}

#[test]
fn bad_ids_are_refused_with_index_and_limit_before_anything_runs() {
    let overlong = vec!["1"; CONTEXT + 1].join(",");
    let last = VOCAB - 1;
    for (tokens, code, parts) in [
        ("-1".to_owned(), "bad-token", vec!["token 0".to_owned(), "\"-1\"".into(), format!("0 to {last}")]),
        (
            format!("1,2,{VOCAB}"),
            "bad-token",
            vec!["token 2".into(), format!("{VOCAB}"), format!("0 to {last}")],
        ),
        (
            "1,2147483648".into(),
            "bad-token",
            vec!["token 1".into(), "2147483648".into(), format!("0 to {last}")],
        ),
        ("7,seven".into(), "bad-token", vec!["token 1".into(), "seven".into()]),
        ("1,,2".into(), "bad-token", vec!["token 1".into()]),
        (String::new(), "empty-request", vec!["at least one".into()]),
        (" ,".trim_end_matches(',').into(), "empty-request", vec!["at least one".into()]),
        (
            overlong,
            "too-many-tokens",
            vec![format!("{} tokens", CONTEXT + 1), format!("context is {CONTEXT}")],
        ),
    ] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &tokens).expect("ids");
        let path = file.path().display().to_string();
        for arguments in [["--tokens", &tokens], ["--tokens-file", &path]] {
            let before = Instant::now();
            let (found, message) = run(&arguments).json_error(3);
            assert!(before.elapsed() < Duration::from_secs(1), "{arguments:?} took {:?}", before.elapsed());
            assert_eq!(found, code, "{arguments:?}: {message}");
            for part in &parts {
                assert!(message.contains(part.as_str()), "{arguments:?}: {message:?} lacks {part:?}");
            }
        }
    }
}

#[test]
fn a_text_far_beyond_the_context_is_refused_early() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spaces");
    std::fs::write(&file, " ".repeat(4 << 20)).expect("a prompt");
    let pack = small_pack().display().to_string();
    let line = ["run", &pack, "--prompt-file", &file.display().to_string(), "--json"];
    let begin = Instant::now();
    // Beyond 64 MiB the allocator gets nothing, and the program ends by a signal.
    let answer = harness::answer(&mut harness::shell(r#"ulimit -d 65536; exec "$@""#, &line));
    assert!(begin.elapsed() < Duration::from_secs(1), "it took {:?}", begin.elapsed());
    let (code, message) = answer.json_error(3);
    assert_eq!(code, "too-many-tokens");
    assert!(message.contains("4194304 bytes") && message.contains("context is 64"), "{message}");
}

#[test]
fn ids_and_prompts_may_come_through_a_pipe() {
    let pack = small_pack().display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let path = pipe.display().to_string();
    let whole = json(&["--tokens", "3,1,4"]);
    for (flag, text, tokens) in [("--tokens-file", "3,1,4", 3), ("--prompt-file", "ab", 0)] {
        let writer = {
            let pipe = pipe.clone();
            std::thread::spawn(move || std::fs::write(pipe, text))
        };
        let answer = estream(&["run", &pack, flag, &path, "--json"]);
        writer.join().expect("it ends").expect("it is read");
        assert_eq!(answer.exit, 0, "{answer:?}");
        if tokens > 0 {
            assert_eq!(answer.json()["top"], whole["top"]);
        }
    }
}

#[test]
fn what_was_asked_for_and_not_had_is_reported() {
    let report =
        json(&["--tokens", "1,2", "--threads", "5000", "--group", "99", "--banks", "7000", "--depth", "900"]);
    for (key, asked) in [("threads", 5000), ("group", 99), ("banks", 7000), ("depth", 900)] {
        assert_eq!(report[format!("{key}_asked")], asked, "{report}");
        assert!(report[key].as_u64().is_some_and(|had| had >= 1 && had < asked), "{key}: {report}");
    }
    assert_eq!((&report["group"], &report["banks"]), (&EXPERTS.into(), &LAYERS.into()));
    assert_eq!(report["depth"], report["banks"], "no more reads than banks");

    let report = json(&["--tokens", "1,2", "--threads", "1", "--group", "4", "--banks", "2", "--depth", "2"]);
    for key in ["threads", "group", "banks", "depth"] {
        assert!(report[format!("{key}_asked")].is_null(), "{key}: {report}");
    }

    let pack = small_pack().display().to_string();
    let line = ["run", &pack, "--tokens", "1", "--threads", "5000", "--banks", "7000", "--depth", "900"];
    let summary = estream(&line).stdout;
    for asked in ["threads (asked: 5000)", "banks (asked: 7000)", "reads in flight (asked: 900)"] {
        assert!(summary.contains(asked), "{asked}: {summary}");
    }
}

#[test]
fn a_refused_prompt_leaves_no_logits() {
    let folder = tempfile::tempdir().expect("a folder");
    let logits = folder.path().join("logits.npy").display().to_string();
    run(&["--tokens", "1,999999", "--logits", &logits]).json_error(3);
    run(&["--tokens", "1,2", "--arena", "4KiB", "--logits", &logits]).json_error(1);
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    let nowhere = folder.path().join("no/such/folder/logits.npy").display().to_string();
    let (code, _) = run(&["--tokens", "1,2", "--logits", &nowhere]).json_error(1);
    assert_eq!(code, "write");
}

#[test]
fn an_arena_below_one_slot_is_refused_with_the_bytes_of_one() {
    let record = estream::Model::read(small_pack()).expect("a model").record_bytes;
    let (code, message) = run(&["--tokens", "1,2", "--arena", &(record - 1).to_string()]).json_error(1);
    assert_eq!(code, "arena-too-small");
    assert!(message.contains(&record.to_string()), "{message}");
    let exact = json(&["--tokens", "1,2", "--arena", &record.to_string()]);
    assert_eq!((&exact["group"], &exact["banks"], &exact["depth"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(exact["memory"]["arena_bytes"], record);
}

#[test]
fn a_run_reports_what_the_contract_says() {
    let report =
        json(&["--tokens", "3,1,4,1,5,9,2,6", "--top-k", "7", "--kernels", "scalar", "--threads", "1"]);
    assert_eq!(report["device"], "native");
    assert_eq!(report["kernels"], "scalar");
    assert_eq!(report["threads"], 1);
    assert_eq!(report["tokens"], 8);
    for key in ["group", "banks", "depth"] {
        assert!(report[key].as_u64().is_some_and(|value| value >= 1), "{key}");
    }
    let numbers = [
        ("time", &["open_ms", "prefill_ms", "total_ms", "io_wait_ms"][..]),
        ("io", &["bytes", "reads", "speculative"]),
        ("memory", &["peak_bytes", "arena_bytes", "dense_bytes", "activation_bytes", "measured_peak_bytes"]),
        ("routing", &["pairs_total", "pairs_routed", "max_share"]),
    ];
    for (part, keys) in numbers {
        for key in keys {
            assert!(report[part][key].as_f64().is_some_and(|value| value >= 0.0), "{part}.{key}: {report}");
        }
    }
    assert!(matches!(report["io"]["mode"].as_str(), Some("direct" | "buffered")));
    assert!(matches!(report["io"]["pages"].as_str(), Some("huge" | "thp" | "4k")));
    assert!(report["time"]["prefill_ms"].as_f64() <= report["time"]["total_ms"].as_f64());

    let top = report["top"].as_array().expect("a list");
    assert_eq!(top.len(), 7);
    let column =
        |key: &str| -> Vec<f64> { top.iter().map(|entry| entry[key].as_f64().expect("finite")).collect() };
    let (logits, logprobs) = (column("logit"), column("logprob"));
    assert!(logits.is_sorted_by(|a, b| a >= b) && logprobs.iter().all(|&p| p < 0.0));
    // One normaliser for all: logit − logprob is the same number.
    let normaliser = |index: usize| logits[index] - logprobs[index];
    assert!((0..7).all(|index| (normaliser(index) - normaliser(0)).abs() < 1e-4));
    assert!(
        top.iter()
            .all(|entry| entry["text"].is_string() && entry["id"].as_u64().is_some_and(|id| id < VOCAB))
    );

    let routing = &report["routing"];
    assert_eq!(routing["pairs_total"], LAYERS * EXPERTS);
    let hist = routing["routes_hist"].as_array().expect("a list");
    let counted: u64 = hist.iter().map(|pairs| pairs.as_u64().expect("a count")).sum();
    assert_eq!(counted, routing["pairs_routed"].as_u64().expect("a count"));
}

#[test]
fn the_firmware_s_log_is_told_on_request_and_beside_the_answer() {
    let answer = run(&["--tokens", "1,2,3", "-v"]);
    assert_eq!(answer.exit, 0, "{answer:?}");
    assert!(answer.json()["top"].is_array());
    let lines: Vec<&str> = answer.stderr.lines().collect();
    assert!(lines[0].contains("info: started with"), "{lines:?}");
    assert!(lines.last().is_some_and(|line| line.contains("pass 1 ends")), "{lines:?}");
}

#[test]
fn verification_is_remembered_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let pack = folder.path().join("m.estream");
    std::fs::copy(small_pack(), &pack).expect("a copy");
    let pack = pack.display().to_string();
    let verify = |policy: &str| {
        let answer = estream(&["run", &pack, "--tokens", "1,2", "--verify", policy, "--json"]);
        assert_eq!(answer.exit, 0, "{answer:?}");
        answer.json()["verify"].clone()
    };
    let state = |report: &Value| (report["ran"].as_bool(), report["remembered"].as_bool());
    assert_eq!(state(&verify("never")), (Some(false), Some(false)));
    let first = verify("once");
    assert_eq!((first["policy"].as_str(), state(&first)), (Some("once"), (Some(true), Some(false))));
    assert_eq!(state(&verify("once")), (Some(false), Some(true)));
}

#[test]
fn logits_are_the_same_numbers_as_the_table_and_do_not_depend_on_the_arena() {
    let folder = tempfile::tempdir().expect("a folder");
    let ids = "3,1,4,1,5,9,2,6,5,3,5";
    let logits = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        let path_text = path.display().to_string();
        let line: Vec<&str> =
            ["--tokens", ids, "--logits", &path_text].iter().chain(arguments).copied().collect();
        let report = json(&line);
        (report, std::fs::read(&path).expect("the logits"))
    };
    let (report, whole) = logits("a.npy", &["--banks", "all"]);
    assert_eq!(whole.len() as u64, 128 + 4 * 11 * VOCAB);
    for (name, arguments) in [
        ("b.npy", &["--arena", "1MiB"][..]),
        ("c.npy", &["--group", "1", "--banks", "1", "--depth", "4"]),
        ("d.npy", &["--group", "3", "--banks", "2", "--threads", "1", "--row-chunk", "32"]),
    ] {
        assert!(logits(name, arguments).1 == whole, "{arguments:?} changes the logits");
    }
    let last = &whole[whole.len() - 4 * VOCAB as usize..];
    let values: Vec<f32> =
        last.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect();
    for candidate in report["top"].as_array().expect("a list") {
        let id = candidate["id"].as_u64().expect("an id") as usize;
        let better = values.iter().filter(|&&value| value > values[id]).count();
        assert!(better < 5, "{candidate} is number {better}");
        assert_eq!(candidate["logit"].as_f64().map(|logit| logit as f32), Some(values[id]));
    }
}

#[test]
fn people_get_a_summary_without_control_bytes() {
    let pack = small_pack().display().to_string();
    let answer = estream(&["run", &pack, "--tokens", "1,2,3"]);
    assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{answer:?}");
    answer.no_control_bytes();
    for word in ["arena", "prefill", "read", "routing", "peak, measured", "next token"] {
        assert!(answer.stdout.contains(word), "{word}: {}", answer.stdout);
    }
}

#[test]
fn the_planned_peak_is_the_measured_one() {
    for arguments in [&["--banks", "all"][..], &["--group", "1", "--banks", "1"]] {
        let line: Vec<&str> = ["--tokens", "1,2,3"].iter().chain(arguments).copied().collect();
        let memory = json(&line)["memory"].clone();
        let bytes = |key: &str| memory[key].as_f64().expect("bytes");
        let (planned, measured) = (bytes("peak_bytes"), bytes("measured_peak_bytes"));
        assert!((planned - measured).abs() <= 0.05 * measured + f64::from(8 << 20), "{memory}");
    }
}

#[test]
fn packs_are_inspected_and_verified_and_damage_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let pack = folder.path().join("m.estream");
    std::fs::copy(small_pack(), &pack).expect("a copy");
    let path = pack.display().to_string();
    for line in [["inspect", &path, "--json"], ["verify", &path, "--json"]] {
        let answer = estream(&line);
        assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{answer:?}");
        answer.json();
    }
    for line in [["inspect", &path], ["verify", &path]] {
        let answer = estream(&line);
        assert_eq!(answer.exit, 0, "{answer:?}");
        answer.no_control_bytes();
    }
    flip(&pack, std::fs::metadata(&pack).expect("a file").len() - 5000);
    for line in [vec!["verify", &path, "--json"], vec!["run", &path, "--tokens", "1", "--json"]] {
        let (code, message) = estream(&line).json_error(3);
        assert_eq!(code, "checksum", "{message}");
    }
    let always = ["run", &path, "--tokens", "1", "--banks", "all", "--verify", "always", "--json"];
    // Only extents that the prompt reads are checked: where it passes, the damaged expert had no routes.
    let answer = estream(&always);
    assert!(answer.exit == 0 || answer.json_error(3).0 == "checksum", "{answer:?}");
}

fn flip(path: &Path, offset: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the pack");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("a byte");
}

#[test]
fn the_demo_shows_the_picture_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = harness::command(&["demo"]).env("TMPDIR", folder.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    for word in ["loads", "experts", "arena", "next token", "ms"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "nothing is left behind");
    assert!(output.stderr.is_empty(), "no bars in a pipe: {:?}", output.stderr);
}
