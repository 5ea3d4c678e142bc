//! Storage that fails, and files that change, while a pack is in use or being written: right numbers or an error that names
//! file and bytes, soon, and nothing on standard output.
//!
//! Faults are made in the system's calls by a preloaded library (`tests/shim`), so they come at the same byte of every run;
//! those between two passes are made by the test, through the library face.

use estream::{Arena, Banks, Engine, NoRows, Options, Request, Verify};
use estream_host::Pack;
use estream_idl::pack::Header;
use estream_tests::child::Ended;
use estream_tests::{fixture, program};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// Far less than a firmware that waits for a read in vain would be given.
const SOON: Duration = Duration::from_secs(10);

/// A pack whose file was last written a second ago, so that a change of it shows.
fn packed() -> (TempDir, PathBuf, Header) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    age(&pack);
    let header = *Pack::open(&pack, Verify::Never, &|_, _| ()).expect("a pack").header();
    (folder, pack, header)
}

fn age(pack: &Path) {
    let file = File::options().write(true).open(pack).expect("the pack can be written");
    file.set_modified(SystemTime::now() - Duration::from_secs(1)).expect("it can be dated back");
}

/// A run of the whole prompt, which routes to all experts, in an arena of few banks.
fn command(pack: &Path, verify: &str, fault: Option<&str>) -> Command {
    let ids = program::ids(&fixture::own().prompts[0].ids);
    let mut command = program::estream();
    command.arg("run").arg(pack).args(["--tokens", &ids, "--verify", verify, "--json"]);
    command.args(["--group", "2", "--banks", "6", "--depth", "2", "--threads", "1"]);
    if let Some(fault) = fault {
        command.env("LD_PRELOAD", program::shim()).env("ESTREAM_SHIM_FILE", pack);
        command.env("ESTREAM_SHIM_LOG", pack.with_extension("log")).env("ESTREAM_SHIM_FAULT", fault);
    }
    command
}

/// The candidates of a run that must succeed.
fn candidates(pack: &Path, verify: &str, fault: Option<&str>) -> Value {
    let ended = program::finish(&mut command(pack, verify, fault));
    assert_eq!(ended.code, 0, "{fault:?}: {}{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("an object");
    report["top"].clone()
}

/// The error of a run that must fail soon: exit code, code, message and byte; it names the pack.
fn failure(pack: &Path, verify: &str, fault: &str) -> (i32, String, String, u64) {
    let Ended { code, stdout, stderr, time, .. } = program::finish(&mut command(pack, verify, Some(fault)));
    assert!(time < SOON, "{fault}: {time:?}");
    assert!(!stderr.contains("panicked"), "{fault}: {stderr}");
    let answer: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    let error = &answer["error"];
    let text = |key: &str| error[key].as_str().unwrap_or_else(|| panic!("{fault}: {answer}")).to_owned();
    let message = text("message");
    let name = pack.file_name().and_then(|name| name.to_str()).expect("a name");
    // For people the file's name is a part of the line.
    assert!(text("file").ends_with(name), "{fault}: {answer}");
    let offset = error["offset"].as_u64().unwrap_or_else(|| panic!("{fault}: {answer}"));
    (code, text("code"), message, offset)
}

/// Bytes in the middle of the third record, of the last one, of the dense range, and of the first token's embedding row.
fn places(pack: &Path, header: &Header) -> [(&'static str, u64); 4] {
    let experts = header.experts.file;
    let tables = Pack::open(pack, Verify::Never, &|_, _| ()).expect("a pack");
    let row = u64::from(tables.tables().header.row_bytes);
    [
        ("third record", experts + 2 * header.record_bytes + header.record_bytes / 2),
        ("last record", experts + header.experts.bytes - header.record_bytes / 2),
        ("dense", header.dense.file + header.dense.bytes / 2),
        ("embedding", header.embedding.file + u64::from(fixture::own().prompts[0].ids[0]) * row),
    ]
}

#[test]
fn a_disk_that_fails_ends_the_run_with_file_and_bytes() {
    let (_folder, pack, header) = packed();
    for (what, at) in places(&pack, &header) {
        let (exit, code, message, offset) = failure(&pack, "never", &format!("eio {at}"));
        assert_eq!((exit, code.as_str()), (1, "load-failed"), "{what}: {message}");
        assert!(message.contains("os error 5"), "{what}: {message}");
        assert!(offset <= at, "{what}: byte {at}: {message}");
        // "bytes FROM..TO": the very load, which holds the byte.
        let range = message.split("bytes ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a range");
        let (from, to) = range.split_once("..").expect("a range");
        let [from, to] = [from, to].map(|end| end.parse::<u64>().expect("a byte"));
        assert!(from == offset && (from..to).contains(&at), "{what}: byte {at}: {message}");
        if what.ends_with("record") {
            assert!(to - from <= 2 * header.record_bytes, "{what}: one group and no more: {message}");
        }
    }
}

#[test]
fn short_and_interrupted_reads_change_nothing() {
    let (_folder, pack, _) = packed();
    let expected = candidates(&pack, "always", None);
    let log = pack.with_extension("log");
    for (fault, most) in
        [("short 4096", 4096), ("short 10000", 10_000), ("eintr 2", i64::MAX), ("eintr 3", i64::MAX)]
    {
        std::fs::write(&log, "").expect("an empty log");
        assert_eq!(candidates(&pack, "always", Some(fault)), expected, "{fault}");
        // The last word of each line is the call's result: the fault has really happened.
        let text = std::fs::read_to_string(&log).expect("the shim's log");
        let results = text.lines().filter(|line| line.starts_with("pread"));
        let results = results.filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok());
        let results: Vec<_> = results.collect();
        assert!(results.len() > 100 && results.iter().all(|&result| result <= most), "{fault}");
        assert_eq!(results.contains(&-1), fault.starts_with("eintr"), "{fault}");
    }
}

#[test]
fn a_file_cut_while_it_is_read_is_an_error_at_the_bytes_that_are_gone() {
    let (_folder, pack, header) = packed();
    let at = header.experts.file + header.experts.bytes / 2;
    let (exit, code, message, offset) = failure(&pack, "never", &format!("truncate {at}"));
    assert_eq!((exit, code.as_str()), (1, "load-failed"), "{message}");
    assert!(offset + 2 * header.record_bytes > at && message.contains("file ends"), "{at}: {message}");
}

#[test]
fn a_file_written_over_while_it_is_read_gives_no_number() {
    for verify in ["always", "never"] {
        let (_folder, pack, header) = packed();
        let at = header.experts.file + header.experts.bytes / 2 + 200;
        let (exit, code, message, offset) = failure(&pack, verify, &format!("overwrite {at}"));
        if verify == "always" {
            assert_eq!((exit, code.as_str()), (3, "checksum"), "{message}");
            assert!(offset <= at && at < offset + header.record_bytes, "{at}: {message}");
        } else {
            assert_eq!((exit, code.as_str()), (3, "changed"), "{message}");
            assert!(message.contains("written to since it was opened"), "{message}");
        }
    }
}

#[test]
fn a_file_that_is_replaced_is_read_to_its_end_as_it_was() {
    let (_folder, pack, header) = packed();
    let expected = candidates(&pack, "never", None);
    // The other file is a pack as well, but for its experts, which are zeros.
    let other = pack.with_extension("estream.other");
    let mut bytes = std::fs::read(&pack).expect("the pack can be read");
    bytes[header.experts.file as usize..].fill(0);
    std::fs::write(&other, bytes).expect("another file");
    let at = header.experts.file + header.experts.bytes / 2;
    assert_eq!(candidates(&pack, "never", Some(&format!("replace {at}"))), expected);
    assert!(!other.exists(), "it was replaced in the middle of the run");
    assert_ne!(candidates(&pack, "never", None), expected, "it is the other file now");
}

/// An engine with a pack of its own, and a pass over the prompt.
fn engine(pack: &Path, verify: Verify) -> Engine {
    let options = Options::new().arena(Arena::Group(2, Some(Banks::Count(3)))).max_tokens(96).verify(verify);
    Engine::open(pack, options).expect("the engine opens")
}

fn pass(engine: &mut Engine) -> estream::Result<Vec<estream::Top>> {
    let request = Request::next_token(fixture::own().prompts[0].ids.clone());
    let pass = engine.prefill_into(&[request], &mut NoRows)?;
    Ok(pass.responses[0].outputs[0].top.clone())
}

#[test]
fn between_passes_a_replaced_file_is_still_the_old_one_and_a_changed_one_is_found() {
    for verify in [Verify::Never, Verify::Once, Verify::Always] {
        let (folder, pack, header) = packed();
        let mut engine = engine(&pack, verify);
        let expected = pass(&mut engine).expect("a pass");
        let keep = folder.path().join("the-old-one");
        std::fs::hard_link(&pack, &keep).expect("a second name");
        let new = folder.path().join("new");
        std::fs::write(&new, vec![0xff; 1 << 20]).expect("a file");
        std::fs::rename(&new, &pack).expect("it is replaced");
        assert_eq!(pass(&mut engine).expect("the old file is open"), expected, "{verify:?}");

        // In place, in a record that every pass reads.
        let file = File::options().read(true).write(true).open(&keep).expect("the old file");
        let at = header.experts.file + 3 * header.record_bytes + 64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[!byte[0]], at).expect("a byte");
        let error = pass(&mut engine).expect_err("a changed file");
        let code = if verify == Verify::Always { "checksum" } else { "changed" };
        assert_eq!((error.code.as_ref(), error.file.as_deref()), (code, Some(&*pack)), "{error}");
        file.set_len(at).expect("it is cut");
        let error = pass(&mut engine).expect_err("a cut file");
        assert_eq!(error.code, "load-failed", "{error}");
        assert!(error.message.contains("file ends"), "{error}");
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_disk_that_is_full_while_packing_is_told_with_the_file_and_leaves_nothing() {
    let golden = fixture::own();
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let size = fixture::pack(&golden.gguf, folder.path(), None).metadata().expect("a pack").len();
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let old = folder.path().join("model.estream");
    for before in [None, Some(b"an older file")] {
        before.map_or(Ok(()), |bytes| std::fs::write(&old, bytes)).expect("it can be written");
        let expected = names(folder.path());
        // None at all, full at the first write, in the middle, and at the last bytes.
        for limit in [0, 1, size / 2, size - 1] {
            let mut command = program::estream();
            command.arg("pack").arg(&golden.gguf).args(["-o", "model.estream", "--json"]);
            command.current_dir(folder.path()).env("LD_PRELOAD", program::shim());
            command.env("ESTREAM_SHIM_FAULT", format!("nospace {limit}"));
            let ended = program::finish(&mut command);
            assert_eq!(ended.code, 1, "{limit}: {}{}", ended.stdout, ended.stderr);
            let answer: Value = serde_json::from_str(&ended.stdout).expect("an object");
            let error = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_owned();
            assert!(error("file").ends_with("model.estream"), "{limit}: {answer}");
            assert!(error("message").contains("No space left on device"), "{limit}: {answer}");
            assert_eq!(names(folder.path()), expected, "{limit}: something is left behind");
            assert!(ended.time < SOON, "{limit}: {:?}", ended.time);
        }
        if let Some(bytes) = before {
            assert_eq!(std::fs::read(&old).expect("the older file"), bytes, "it is as it was");
        }
    }
}
