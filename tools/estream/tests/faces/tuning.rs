//! `tune`, what runs make of it, and `trace`.

use crate::harness::{EXPERTS, LAYERS, estream, small_pack};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// A pack of its own for a test, since what the tuner finds is kept beside it.
fn pack(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("tuned.estream");
    fs::copy(small_pack(), &path).expect("a copy");
    path
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("a path of this test")
}

#[test]
fn runs_take_what_the_tuner_found_and_a_new_budget_needs_no_new_profile() {
    let folder = folder();
    let pack = pack(&folder);
    let (order, plot) = (folder.path().join("order.json"), folder.path().join("front.svg"));
    let tune = ["tune", text(&pack), "--json", "--threads", "1"];
    let more = ["--budget", "64MiB", "--budget", "1GiB", "--order", text(&order), "--plot", text(&plot)];
    let first = estream(&[&tune[..], &more].concat()).json();
    assert_eq!(first["profiled"], true, "{first}");
    // Groups of 1, 2, 4, 8 and 16 of 16 experts, one request each and nothing more.
    assert_eq!(first["requests"], 5, "{first}");
    let choice = &first["choices"][0];
    assert!(choice["memory_bytes"].as_u64() <= Some(64 << 20), "{first}");
    assert!(choice["banks"].as_u64() >= first["depth"].as_u64(), "{first}");

    // The order holds every expert of every layer once.
    let lists: Vec<Vec<u32>> =
        serde_json::from_slice(&fs::read(&order).expect("it was written")).expect("lists");
    assert_eq!(lists.len(), LAYERS as usize);
    for mut list in lists {
        list.sort_unstable();
        assert_eq!(list, (0..EXPERTS).collect::<Vec<_>>());
    }
    assert!(fs::read_to_string(&plot).expect("it was drawn").ends_with("</svg>\n"));

    let second = estream(&[&tune[..], &["--budget", "100MiB"]].concat()).json();
    assert_eq!((&second["profiled"], &second["requests"]), (&false.into(), &0.into()), "{second}");
    assert!(second["choose_ms"].as_f64() < Some(1.0), "{second}");
    let again = estream(&[&tune[..], &["--budget", "100MiB", "--again"]].concat()).json();
    assert_eq!(again["profiled"], true, "{again}");

    let run = |flags: &[&str]| {
        let arguments = ["run", text(&pack), "--tokens", "1,2,3,4", "--json"];
        let answer = estream(&[&arguments[..], flags].concat());
        assert_eq!(answer.exit, 0, "{answer:?}");
        answer.json()
    };
    let taken = run(&["--threads", "1"]);
    let choice = &again["choices"][0];
    assert_eq!(taken["tuned"]["budget_bytes"], 100 << 20, "{taken}");
    for key in ["group", "banks", "depth"] {
        assert_eq!(taken[key], choice[key], "{key}");
    }
    // Other threads are another machine, and a word about the arena is a word about it all.
    assert_eq!(run(&["--threads", "2"])["tuned"], Value::Null);
    let told = run(&["--threads", "1", "--group", "2", "--banks", "3"]);
    assert_eq!((&told["tuned"], &told["group"], &told["banks"]), (&Value::Null, &2.into(), &3.into()));
    assert_eq!(told["top"], taken["top"], "settings change no result");
}

#[test]
fn a_budget_below_the_minimum_is_refused_with_it() {
    let folder = folder();
    let pack = pack(&folder);
    let (code, message) = estream(&["tune", text(&pack), "--json", "--budget", "64KiB"]).json_error(1);
    assert_eq!(code, "budget-too-small");
    let minimum: u64 = message
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .max()
        .expect("a number");
    assert!(minimum > 64 << 10, "{message}");
    // What the process itself holds differs a little from start to start.
    let enough = (minimum + (8 << 20)).to_string();
    let tuned = estream(&["tune", text(&pack), "--json", "--budget", &enough]);
    assert_eq!(tuned.exit, 0, "{tuned:?}");
}

#[test]
fn a_trace_has_reads_banks_and_kernels() {
    let folder = folder();
    let (json, svg) = (folder.path().join("t.json"), folder.path().join("t.svg"));
    let arguments =
        ["trace", text(small_pack()), "--tokens", "1,2,3,4,5", "--group", "2", "--banks", "3", "--json"];
    let report = estream(&[&arguments[..], &["-o", text(&json), "--svg", text(&svg)]].concat()).json();
    let trace: Value = serde_json::from_slice(&fs::read(&json).expect("it was written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let complete: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(report["spans"], complete.len());
    assert!(
        complete.iter().all(|event| event["ts"].as_f64() >= Some(0.0) && event["dur"].as_f64() >= Some(0.0))
    );
    let named = |start: &str| {
        let names = events.iter().filter(|event| event["name"] == "thread_name");
        names
            .filter(|event| event["args"]["name"].as_str().is_some_and(|name| name.starts_with(start)))
            .count()
    };
    assert_eq!((named("layers"), named("kernels"), named("bank")), (1, 1, 3));
    assert!((1..=2).contains(&named("reader")), "two reads in flight at the most");
    // Every group that was loaded fills a bank.
    let fills = complete.iter().filter(|event| event["name"] == "fills").count();
    assert_eq!(report["run"]["io"]["groups_loaded"], fills);
    assert!(fs::read_to_string(&svg).expect("it was drawn").starts_with("<svg"));
}

#[test]
fn schedules_that_cut_the_arena_leave_nothing_else_to_say_about_it() {
    let pack = text(small_pack());
    let run =
        |schedule: &str| estream(&["run", pack, "--tokens", "5,6", "--json", "--schedule", schedule]).json();
    let cut = |report: &Value| (report["group"].as_u64(), report["banks"].as_u64(), report["depth"].as_u64());
    assert_eq!(cut(&run("naive")), (Some(1), Some(3), Some(1)));
    assert_eq!(cut(&run("layer-2")), (Some(16), Some(2), Some(2)));
    assert_eq!(cut(&run("layer-all")), (Some(16), Some(u64::from(LAYERS)), Some(2)));
    let resident = run("resident");
    assert_eq!((&resident["schedule"], &resident["io"]["groups_loaded"]), (&"resident".into(), &0.into()));
    let wrong = ["run", pack, "--tokens", "5", "--json", "--schedule", "naive", "--group", "2"];
    assert_eq!(estream(&wrong).json_error(2).0, "usage");
}
