//! Bad GGUFs (cases O1–O3 and O8–O11 of the users' list): `pack` refuses each with a message of its own and exit 3, in
//! under a second and 64 MiB, and leaves nothing.

use estream_tests::child::Ended;
use estream_tests::gguf::{Bytes, F32};
use estream_tests::{fixture, program};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const TIME: Duration = Duration::from_secs(1);
const MEMORY: u64 = 64 << 20;

fn folder() -> TempDir {
    fixture::folder(env!("CARGO_TARGET_TMPDIR"))
}

fn golden() -> Vec<u8> {
    std::fs::read(fixture::own().gguf).expect("our own golden")
}

fn pack(folder: &Path, bytes: &[u8]) -> Ended {
    std::fs::write(folder.join("bad.gguf"), bytes).expect("a file can be written");
    let mut command = program::estream();
    program::finish(command.args(["pack", "bad.gguf", "-o", "out.estream"]).current_dir(folder))
}

/// Packs bytes, which must be refused, and returns the message.
fn refused(folder: &Path, bytes: &[u8], what: &str) -> String {
    let Ended { code, stdout, stderr, time, peak_bytes } = pack(folder, bytes);
    assert_eq!(code, 3, "{what}: {stdout}{stderr}");
    assert!(!stderr.contains("panicked") && stderr.trim_end().lines().count() == 1, "{what}: {stderr}");
    assert!(stderr.contains("bad.gguf"), "{what}: the file is not named: {stderr}");
    assert!(time < TIME, "{what} took {time:?}");
    assert!(peak_bytes < MEMORY, "{what} took {peak_bytes} bytes");
    let left: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["bad.gguf"], "{what} leaves something behind");
    stderr
}

fn contains(message: &str, parts: &[&str], what: &str) {
    let lower = message.to_lowercase();
    assert!(parts.iter().any(|part| lower.contains(part)), "{what}: none of {parts:?} in {message}");
}

/// O1.
#[test]
fn files_cut_anywhere_are_refused() {
    let (folder, golden) = (folder(), golden());
    let data = golden.len() / 2;
    let infos = find(&golden, b"output_norm.weight") + 10;
    for length in [0, 3, 23, 100, 700, 30_000, infos, data, golden.len() - 1] {
        let what = format!("cut at {length}");
        let message = refused(folder.path(), &golden[..length], &what);
        assert!(message.chars().any(|c| c.is_ascii_digit()), "{what}: no byte position in {message}");
    }
    let message = refused(folder.path(), &golden[..golden.len() - 1], "one byte short");
    contains(&message, &["tensor"], "one byte short");
}

/// O2.
#[test]
fn counts_and_lengths_beyond_the_file_are_refused() {
    let folder = folder();
    for huge in [1 << 63, u64::MAX, 1 << 40] {
        for (what, bytes) in [
            ("keys", Bytes::header(0, huge)),
            ("tensors", Bytes::header(huge, 0)),
            ("a key's length", Bytes::header(0, 1).u64(huge)),
            ("a string's length", Bytes::header(0, 1).text("general.name").u32(8).u64(huge)),
            ("an array's length", Bytes::header(0, 1).text("tokenizer.ggml.tokens").u32(9).u32(8).u64(huge)),
            ("a tensor name's length", Bytes::header(1, 0).u64(huge)),
        ] {
            refused(folder.path(), &bytes.0, &format!("{what} of {huge}"));
        }
    }
    let mut nested = Bytes::header(0, 1).text("general.name").u32(9);
    for _ in 0..1000 {
        nested = nested.u32(9).u64(1);
    }
    refused(folder.path(), &nested.u32(4).u64(1).u32(0).0, "arrays 1000 deep");
    let dimensions = olmoe(1).tensor("token_embd.weight", &[1; 9], F32, 0).data(32, 64);
    contains(&refused(folder.path(), &dimensions.0, "nine dimensions"), &["dimension"], "nine dimensions");
}

/// Keys of a small model, for files with `tensors` tensors.
fn olmoe(tensors: u64) -> Bytes {
    Bytes::header(tensors, 8)
        .text_key("general.architecture", "olmoe")
        .u32_key("olmoe.block_count", 1)
        .u32_key("olmoe.context_length", 64)
        .u32_key("olmoe.embedding_length", 64)
        .u32_key("olmoe.feed_forward_length", 64)
        .u32_key("olmoe.attention.head_count", 2)
        .u32_key("olmoe.expert_count", 4)
        .u32_key("olmoe.expert_used_count", 2)
}

/// O3.
#[test]
fn shapes_whose_product_overflows_are_refused() {
    let folder = folder();
    for shape in [&[1 << 33, 1 << 33][..], &[1 << 62], &[1 << 32, 1 << 32, 1], &[u64::MAX, 2]] {
        let bytes = olmoe(1).tensor("token_embd.weight", shape, F32, 0).data(32, 256);
        let message = refused(folder.path(), &bytes.0, &format!("{shape:?}"));
        contains(&message, &["overflow", "past", "beyond", "ends"], &format!("{shape:?}"));
    }
}

/// O8.
#[test]
fn unknown_and_removed_types_are_named_with_their_tensor() {
    let (folder, golden) = (folder(), golden());
    let name = b"blk.1.ffn_up_exps.weight";
    // The entry goes on with u32 dimensions and then the dimensions; the type comes after three of them.
    let at = find(&golden, name) + name.len() + 4 + 3 * 8;
    for kind in [36u32, 40, 999, u32::MAX] {
        let mut bytes = golden.clone();
        bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        let message = refused(folder.path(), &bytes, &format!("type {kind}"));
        contains(&message, &["blk.1.ffn_up_exps.weight"], &format!("type {kind}"));
        contains(&message, &[&kind.to_string(), "nvfp4"], &format!("type {kind}"));
    }
}

/// O9.
#[test]
fn a_tensor_named_twice_is_refused() {
    let (folder, mut golden) = (folder(), golden());
    let at = find(&golden, b"blk.0.attn_q.weight");
    golden[at..at + 19].copy_from_slice(b"blk.0.attn_k.weight");
    let message = refused(folder.path(), &golden, "a duplicate");
    contains(&message, &["blk.0.attn_k.weight"], "a duplicate");
}

/// O10.
#[test]
fn bad_alignments_and_byte_orders_are_refused() {
    let (folder, golden) = (folder(), golden());
    for alignment in [0, 3, 1 << 30, u32::MAX] {
        let bytes = with_key(&golden, &Bytes::default().u32_key("general.alignment", alignment));
        contains(
            &refused(folder.path(), &bytes, &format!("alignment {alignment}")),
            &["alignment"],
            "its name",
        );
    }
    let text = with_key(&golden, &Bytes::default().text_key("general.alignment", "64"));
    contains(&refused(folder.path(), &text, "a string"), &["alignment"], "its name");
    let mut big_endian = golden.clone();
    big_endian[4..8].copy_from_slice(&3u32.to_be_bytes());
    contains(&refused(folder.path(), &big_endian, "big-endian"), &["endian"], "big-endian");
    let mut version = golden.clone();
    version[4] = 1;
    contains(&refused(folder.path(), &version, "version 1"), &["version"], "version 1");
}

/// `golden` with one key more in front; the data moves to the next multiple of its alignment.
fn with_key(golden: &[u8], key: &Bytes) -> Vec<u8> {
    let mut bytes = golden[..16].to_vec();
    let keys = u64::from_le_bytes(golden[16..24].try_into().expect("eight bytes"));
    bytes.extend((keys + 1).to_le_bytes());
    bytes.extend(&key.0);
    bytes.extend(&golden[24..]);
    bytes
}

/// O11.
#[test]
fn files_that_are_no_moe_models_say_what_they_are() {
    let folder = folder();
    let imatrix = Bytes::header(2, 2)
        .text_key("general.type", "imatrix")
        .u32_key("imatrix.chunk_count", 1)
        .tensor("blk.0.attn_q.weight.in_sum2", &[64, 1], F32, 0)
        .tensor("blk.0.attn_q.weight.counts", &[1, 1], F32, 256)
        .data(32, 288);
    contains(&refused(folder.path(), &imatrix.0, "an imatrix"), &["imatrix", "not a"], "an imatrix");
    let vocabulary = Bytes::header(0, 2)
        .text_key("general.architecture", "olmoe")
        .text_key("tokenizer.ggml.model", "gpt2")
        .data(32, 0);
    contains(
        &refused(folder.path(), &vocabulary.0, "a vocabulary"),
        &["vocabulary", "tensor", "moe"],
        "a vocabulary",
    );
    let dense = Bytes::header(1, 4)
        .text_key("general.architecture", "llama")
        .u32_key("llama.block_count", 1)
        .u32_key("llama.embedding_length", 64)
        .u32_key("llama.attention.head_count", 2)
        .tensor("token_embd.weight", &[64, 4], F32, 0)
        .data(32, 1024);
    contains(&refused(folder.path(), &dense.0, "a dense model"), &["moe", "expert"], "a dense model");
}

#[test]
fn the_untouched_golden_is_taken_and_an_existing_pack_survives_a_refusal() {
    let (folder, golden) = (folder(), golden());
    assert_eq!(pack(folder.path(), &golden).code, 0);
    let good = std::fs::read(folder.path().join("out.estream")).expect("a pack");
    assert_eq!(pack(folder.path(), &golden[..golden.len() - 1]).code, 3);
    assert_eq!(std::fs::read(folder.path().join("out.estream")).expect("a pack"), good);
}

fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|window| window == needle).expect("the golden has it")
}
