//! Bad packs and bad tokens: each one a clear message and exit 3, in under a second and 64 MiB, before a number is
//! printed, with nothing written.
//!
//! A thousand flips are checked through the library, a few of them through the program. This process stays small, since
//! the memory of a child counts from its parent's.

use estream_host::{Pack, Verify};
use estream_tests::child::Ended;
use estream_tests::random::Random;
use estream_tests::{fixture, program};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const FLIPS: usize = 1000;
const TIME: Duration = Duration::from_secs(1);
const MEMORY: u64 = 64 << 20;

fn packed() -> (TempDir, PathBuf) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    (folder, pack)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Runs the program, which must refuse its input as every bad input is refused, and returns its message.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let before = names(folder);
    let ended = program::finish(program::estream().args(arguments).current_dir(folder));
    let Ended { code, stdout, stderr, time, peak_bytes } = ended;
    assert_eq!(code, 3, "{arguments:?}: {stdout}{stderr}");
    assert_eq!(stdout, "", "{arguments:?} prints before it refuses");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{arguments:?}: not one line: {stderr}");
    assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    assert!(time < TIME, "{arguments:?} took {time:?}");
    assert!(peak_bytes < MEMORY, "{arguments:?} took {peak_bytes} bytes");
    assert_eq!(names(folder), before, "{arguments:?} leaves something behind");
    stderr
}

fn name(pack: &Path) -> &str {
    pack.file_name().and_then(|name| name.to_str()).expect("a pack has a name")
}

#[test]
fn a_pack_cut_short_is_refused() {
    let (folder, pack) = packed();
    let whole = std::fs::read(&pack).expect("the pack can be read");
    let cut = folder.path().join("cut.estream");
    for length in [0, 1, 7, 4095, 4096, 4097, 8192, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        std::fs::write(&cut, &whole[..length]).expect("a pack can be written");
        let message = refused(folder.path(), &["run", name(&cut), "--tokens", "1,2,3"]);
        assert!(message.contains("cut.estream"), "{message}");
        refused(folder.path(), &["verify", name(&cut)]);
        assert!(Pack::open(&cut, Verify::Never, &|_, _| ()).is_err(), "{length} bytes pass even unverified");
    }
    std::fs::write(&cut, [whole.as_slice(), &[0; 4096]].concat()).expect("a pack can be written");
    refused(folder.path(), &["run", name(&cut), "--tokens", "1"]);
}

/// Flips a random bit of a random byte and calls `check` with its place, then flips it back.
fn flipped(pack: &Path, random: &mut Random, check: impl FnOnce(u64)) {
    let file = OpenOptions::new().read(true).write(true).open(pack).expect("the pack can be written");
    let place = random.below(file.metadata().expect("its length").len());
    let mut byte = [0];
    let write = |file: &File, byte| file.write_all_at(&[byte], place).expect("a byte can be written");
    file.read_exact_at(&mut byte, place).expect("a byte can be read");
    write(&file, byte[0] ^ 1 << random.below(8));
    check(place);
    write(&file, byte[0]);
}

#[test]
fn any_flipped_byte_is_found_at_the_first_open() {
    let (_folder, pack) = packed();
    let mut random = Random::new(2024);
    for _ in 0..FLIPS {
        flipped(&pack, &mut random, |place| {
            let opened = Pack::open(&pack, Verify::Once, &|_, _| ());
            assert!(opened.is_err(), "a flip at byte {place} is not found");
        });
    }
    Pack::open(&pack, Verify::Once, &|_, _| ()).expect("the pack is whole again");
}

#[test]
fn a_flipped_byte_is_found_by_the_program_before_a_number_is_printed() {
    let (folder, pack) = packed();
    let mut random = Random::new(7);
    for turn in 0..24 {
        flipped(&pack, &mut random, |_| {
            let arguments = match turn % 3 {
                0 => &["run", name(&pack), "--tokens", "1,2,3"][..],
                1 => &["run", name(&pack), "--tokens", "1,2,3", "--logits", "out.npy"],
                _ => &["verify", name(&pack)],
            };
            refused(folder.path(), arguments);
        });
    }
}

#[test]
fn a_flipped_byte_is_found_before_use_when_extents_are_always_checked() {
    let (folder, pack) = packed();
    // All experts of all layers are routed by 96 tokens, so every extent is used; embedding pages may not be.
    let ids = program::ids(&fixture::own().prompts[0].ids);
    let mut random = Random::new(99);
    let (mut found, mut tried) = (0, 0);
    for _ in 0..24 {
        flipped(&pack, &mut random, |place| {
            let mut command = program::estream();
            command
                .args(["run", name(&pack), "--tokens", &ids, "--verify", "always"])
                .current_dir(folder.path());
            let ended = program::finish(&mut command);
            let header = header(&pack);
            let embedding = header.embedding.file..header.embedding.file + header.embedding.bytes;
            if !embedding.contains(&place) {
                tried += 1;
                found += usize::from(ended.code == 3 && ended.stdout.is_empty());
            }
        });
    }
    assert!(tried > 10);
    assert_eq!(found, tried);
}

fn header(pack: &Path) -> estream_idl::pack::Header {
    use zerocopy::FromBytes;
    let mut bytes = [0; 4096];
    File::open(pack).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("a header can be read");
    estream_idl::pack::Header::read_from_bytes(&bytes).expect("a header is 4096 bytes")
}

/// Case O16 of the users' list.
#[test]
fn bad_tokens_are_refused_by_index_and_limit() {
    let (folder, pack) = packed();
    let run = |tokens: &str| refused(folder.path(), &["run", name(&pack), "--tokens", tokens]);
    for (tokens, parts) in [
        ("5,-1", &["1", "-1", "204"][..]),
        ("1,2,2048", &["2", "2048"]),
        ("2147483648", &["0", "2147483648"]),
        ("99999999999999999999", &["0", "99999999999999999999"]),
        ("1,x", &["1", "x"]),
        ("", &[]),
        (" ", &[]),
    ] {
        let message = run(tokens);
        assert!(parts.iter().all(|part| message.contains(part)), "{tokens:?}: {message}");
    }
    let too_many = vec!["1"; 4097].join(",");
    let message = run(&too_many);
    assert!(message.contains("4097") && message.contains("4096"), "{message}");
    std::fs::write(folder.path().join("empty.txt"), "\n").expect("a file can be written");
    refused(folder.path(), &["run", name(&pack), "--tokens-file", "empty.txt"]);
    refused(folder.path(), &["run", name(&pack), "--tokens-file", "missing.txt"]);
}

#[test]
fn errors_are_objects_where_json_is_asked_for() {
    let (folder, pack) = packed();
    let mut command = program::estream();
    command.args(["run", name(&pack), "--tokens", "1,4000", "--json"]).current_dir(folder.path());
    let ended = program::finish(&mut command);
    assert_eq!(ended.code, 3);
    let error: serde_json::Value = serde_json::from_str(&ended.stdout).expect("an object");
    let error = error["error"].as_object().expect("an error");
    assert_eq!(error.keys().collect::<BTreeSet<_>>().len(), 5);
    for key in ["code", "message", "file", "tensor", "offset"] {
        assert!(error.contains_key(key), "{key} is missing");
    }
}
