//! Split models and layouts of experts that are not whole or not what they say (cases O5, O9 and O6 of the users' list):
//! each is refused in one line that names the file, with exit 3, in under a second and 64 MiB, and leaves nothing.
//!
//! This process stays small, since the memory of a child counts from its parent's: the model is a tiny one.

use estream_tests::child::Ended;
use estream_tests::gguf::{F32, Parts, Piece};
use estream_tests::{codecs, fixture, program};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const TIME: Duration = Duration::from_secs(1);
const MEMORY: u64 = 64 << 20;

fn folder() -> TempDir {
    fixture::folder(env!("CARGO_TARGET_TMPDIR"))
}

/// One layer of width 32 with two experts, gate and up in Q4_0 and down plain.
fn small() -> Parts {
    let mut parts = codecs::model(&codecs::rows("Q4_0")[0].cycle(32), false);
    parts.set("olmoe.expert_count", 2);
    for name in ["gate", "up", "down"] {
        let piece = parts.tensor(&format!("blk.0.ffn_{name}_exps.weight"));
        piece.shape[2] = 2;
        piece.data.extend(piece.data.clone());
    }
    *parts.tensor("blk.0.ffn_gate_inp.weight") =
        Piece::new("blk.0.ffn_gate_inp.weight", &[32, 2], F32, vec![0; 4 * 64]);
    parts
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

fn pack(input: &Path, output: &Path) -> Ended {
    program::finish(program::estream().arg("pack").arg(input).arg("-o").arg(output))
}

/// Packs, which must be refused as every bad input is, and returns the message.
fn refused(input: &Path, what: &str) -> String {
    let beside = if input.is_dir() { input } else { input.parent().expect("a folder") };
    let before = names(beside);
    let Ended { code, stdout, stderr, time, peak_bytes } = pack(input, &beside.join("out.estream"));
    assert_eq!(code, 3, "{what}: {stdout}{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{what}: not one line: {stderr}");
    assert!(!stderr.contains("panicked"), "{what}: {stderr}");
    assert!(time < TIME, "{what} took {time:?}");
    assert!(peak_bytes < MEMORY, "{what} took {peak_bytes} bytes");
    assert_eq!(names(beside), before, "{what} leaves something behind");
    stderr
}

#[track_caller]
fn contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}

/// Writes a model in three: the first file has the keys alone.
fn split(folder: &Path) -> Vec<PathBuf> {
    let shards = small().split(&[0, 0, 9]);
    let write = |(index, shard): (usize, &Parts)| {
        let path = folder.join(shard_name(index + 1, shards.len()));
        std::fs::write(&path, shard.write(32)).expect("a shard can be written");
        path
    };
    shards.iter().enumerate().map(write).collect()
}

fn shard_name(number: usize, count: usize) -> String {
    format!("model-{number:05}-of-{count:05}.gguf")
}

/// O5.
#[test]
fn wrong_shards_are_refused_by_name() {
    let fresh = || {
        let folder = folder();
        let paths = split(folder.path());
        (folder, paths)
    };
    let (folder, paths) = fresh();
    std::fs::remove_file(&paths[1]).expect("it is there");
    for path in [paths[0].as_path(), &paths[2], folder.path()] {
        contains(&refused(path, "a missing shard"), &["model-00002-of-00003.gguf", "missing"]);
    }
    let (_folder, paths) = fresh();
    std::fs::copy(&paths[1], &paths[2]).expect("a copy");
    contains(&refused(&paths[0], "a repeated shard"), &["model-00003-of-00003.gguf", "shard 2"]);
    let (folder, paths) = fresh();
    std::fs::rename(&paths[2], folder.path().join(shard_name(4, 4))).expect("a new name");
    contains(&refused(&paths[0], "a renamed shard"), &["model-00003-of-00003.gguf", "missing"]);
    contains(&refused(&folder.path().join(shard_name(4, 4)), "it alone"), &["model-00001-of-00004.gguf"]);
    let (_folder, paths) = fresh();
    let mut other = small();
    other.tensors.pop();
    std::fs::write(&paths[2], other.split(&[0, 0, 9])[2].write(32)).expect("a shard");
    contains(&refused(&paths[0], "another model's shard"), &["model-00003-of-00003.gguf"]);
    let (_folder, paths) = fresh();
    let mut whole = small();
    whole.tensors.truncate(1);
    std::fs::write(&paths[1], whole.write(32)).expect("a whole model");
    contains(&refused(&paths[0], "a whole model"), &["model-00002-of-00003.gguf", "a whole model"]);
    let (folder, paths) = fresh();
    let alone = folder.path().join("alone.gguf");
    std::fs::rename(&paths[1], &alone).expect("a new name");
    contains(&refused(&alone, "a shard under another name"), &["alone.gguf", "shard 2", "3 files"]);
    let cut = folder.path().join("model.gguf.part1of2");
    std::fs::write(&cut, &small().write(32)[..3000]).expect("a piece");
    contains(&refused(&cut, "a piece"), &["model.gguf.part1of2", "join"]);
}

/// O9, the half with two shards.
#[test]
fn a_tensor_in_two_shards_is_refused() {
    let folder = folder();
    let paths = split(folder.path());
    let mut shards = small().split(&[0, 0, 9]);
    let twice = shards[1].tensors[3].clone();
    let name = twice.name.clone();
    shards[2].tensors[0] = twice;
    std::fs::write(&paths[2], shards[2].write(32)).expect("a shard");
    contains(&refused(&paths[0], "a tensor twice"), &["model-00003-of-00003.gguf", &name]);
}

#[test]
fn a_folder_has_one_model() {
    let folder = folder();
    contains(&refused(folder.path(), "an empty folder"), &["no GGUF"]);
    split(folder.path());
    std::fs::write(folder.path().join("best-of-breed.gguf"), small().write(32)).expect("a file");
    contains(&refused(folder.path(), "two models"), &["2 models", "best-of-breed.gguf", &shard_name(1, 3)]);
}

/// O6.
#[test]
fn experts_that_are_missing_or_unlike_are_named() {
    let folder = folder();
    let path = folder.path().join("model.gguf");
    let refusal = |parts: &Parts, what: &str| {
        std::fs::write(&path, parts.write(32)).expect("the model can be written");
        refused(&path, what)
    };
    let each = small().one_tensor_an_expert();
    let mut missing = each.clone();
    missing.tensors.retain(|piece| piece.name != "blk.0.ffn_up.1.weight");
    contains(&refusal(&missing, "an expert is missing"), &["blk.0.ffn_up.1.weight"]);
    let mut mixed = each.clone();
    let name = "blk.0.ffn_gate.1.weight";
    *mixed.tensor(name) = Piece::new(name, &[32, 32], 3, codecs::blocks("Q4_1", 32 * 32));
    contains(&refusal(&mixed, "two types"), &[name, "Q4_1", "Q4_0"]);
    let mut more = each.clone();
    let last = more.tensor("blk.0.ffn_down.1.weight").clone();
    more.tensors.push(Piece { name: "blk.0.ffn_down.2.weight".to_owned(), ..last });
    contains(&refusal(&more, "one expert too many"), &["blk.0.ffn_down.2.weight"]);
    let mut half = small().fused_gate_and_up();
    let name = "blk.0.ffn_gate_up_exps.weight";
    let data = half.tensor(name).data[..32 * 32 * 2 / 32 * 18].to_vec();
    *half.tensor(name) = Piece::new(name, &[32, 32, 2], 2, data);
    contains(&refusal(&half, "half a fused tensor"), &[name, "[32, 64, 2]"]);
    std::fs::write(&path, each.write(32)).expect("the model can be written");
    assert_eq!(pack(&path, &folder.path().join("out.estream")).code, 0, "the sound one is taken");
}
