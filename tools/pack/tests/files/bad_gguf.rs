//! Bad GGUFs, each refused with its own code, as an input error, quickly, and with nothing written.

use crate::fixtures::{Raw, find, gguf, pack, quiet, small, string};
use estream_pack::{Error, Options, convert};
use std::path::Path;
use std::time::{Duration, Instant};

/// Packs these bytes and expects a refusal.
fn refused(bytes: &[u8]) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.gguf");
    std::fs::write(&input, bytes).unwrap();
    refused_file(&input, folder.path())
}

fn refused_file(input: &Path, folder: &Path) -> Error {
    let before = names(folder);
    let began = Instant::now();
    let error = pack(input, &folder.join("out.estream")).expect_err("the file is bad");
    assert!(began.elapsed() < Duration::from_secs(1), "{error}");
    assert!(error.is_input(), "{error}");
    assert_eq!(error.file.as_deref(), Some(input), "{error}");
    assert_eq!(names(folder), before, "{error}");
    error
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

fn good() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("good.gguf");
    gguf(small(), &path);
    std::fs::read(path).unwrap()
}

/// The bytes with `old` replaced by `new` of the same length.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut bytes = bytes.to_vec();
    let at = find(&bytes, old);
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

// O1
#[test]
fn a_cut_file_is_refused_wherever_it_is_cut() {
    let good = good();
    let (keys, records) = (find(&good, b"tokenizer.ggml.merges"), find(&good, b"blk.0.attn_norm.weight"));
    let data = good.len() / 2;
    for (at, part) in [
        (0, "the header"),
        (3, "the header"),
        (23, "the header"),
        (keys + 5, "key"),
        (records + 5, "tensor record"),
        (records + 24, "tensor record"),
        (data, "its data is bytes"),
    ] {
        let error = refused(&good[..at]);
        assert_eq!(error.code, "truncated", "cut at {at}: {error}");
        assert!(error.message.contains(part), "cut at {at}: {error}");
        assert!(error.offset.is_some_and(|offset| offset <= at as u64), "cut at {at}: {error}");
    }
    // One byte before the end of the last tensor's data: the file ends in up to 31 bytes of padding.
    let last = 64 / 32 * 34 * 300u64;
    let padding = last.next_multiple_of(32) - last;
    let error = refused(&good[..good.len() - padding as usize - 1]);
    assert_eq!((error.code, error.tensor.as_deref()), ("truncated", Some("output.weight")));
}

// O2
#[test]
fn counts_and_lengths_are_not_believed() {
    for huge in [1 << 63, u64::MAX] {
        let tensors = Raw { tensor_count: Some(huge), ..Raw::new() };
        assert_eq!(refused(&tensors.bytes(32)).code, "truncated");
        let entries = Raw { entry_count: Some(huge), ..Raw::new() };
        assert_eq!(refused(&entries.bytes(32)).code, "truncated");
        let mut key = Raw { entry_count: Some(1), ..Raw::new() }.bytes(32);
        key.extend(huge.to_le_bytes());
        key.extend([0; 16]);
        assert_eq!(refused(&key).code, "truncated");
        let text = Raw::new().entry("a.b", 8, &huge.to_le_bytes());
        assert_eq!(refused(&text.bytes(32)).code, "truncated");
        for kind in [0u32, 4, 8, 12] {
            let array = [kind.to_le_bytes().as_slice(), &huge.to_le_bytes()].concat();
            let error = refused(&Raw::new().entry("a.b", 9, &array).bytes(32));
            assert_eq!(error.code, "truncated");
            assert!(error.message.contains("\"a.b\""), "{error}");
        }
    }
    // Arrays of arrays, a thousand deep.
    let nested = [9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()].concat().repeat(1000);
    assert_eq!(refused(&Raw::new().entry("a.b", 9, &nested).bytes(32)).code, "nested-array");
    let error = refused(&Raw::new().tensor("t", &[32; 9], 0, 0).bytes(32));
    assert_eq!((error.code, error.tensor.as_deref()), ("bad-shape", Some("t")));
    assert_eq!(refused(&Raw::new().tensor("t", &[32, 0], 0, 0).bytes(32)).code, "bad-shape");
    assert_eq!(refused(&Raw::new().entry("a.b", 13, &[]).bytes(32)).code, "bad-value-type");
}

// O3
#[test]
fn a_product_beyond_64_bits_is_an_overflow_and_not_a_small_tensor() {
    for (dims, kind) in [
        (vec![1 << 33, 1 << 33], 0),
        (vec![1 << 62], 0),
        (vec![1 << 32, 1 << 32, 1], 2),
        (vec![u64::MAX - 31, 1], 0),
        (vec![32, 1 << 58, 32], 8),
    ] {
        let error = refused(&Raw::new().tensor("big", &dims, kind, 0).bytes(32));
        assert_eq!(
            (error.code, error.tensor.as_deref()),
            ("size-overflow", Some("big")),
            "{dims:?}: {error}"
        );
        assert!(error.message.contains("size overflow"));
    }
    let far = Raw::new().tensor("far", &[32], 0, u64::MAX - 31);
    assert_eq!(refused(&far.bytes(32)).code, "size-overflow");
}

// O8
#[test]
fn types_are_named_or_at_least_numbered() {
    for (kind, code, words) in [
        (36, "removed-type", "36 (IQ4_NL_4_4)"),
        (4, "removed-type", "4 (Q4_2)"),
        (999, "unknown-type", "999"),
        (u32::MAX, "unknown-type", "4294967295"),
    ] {
        let error = refused(&Raw::new().tensor("odd", &[256], kind, 0).bytes(32));
        assert_eq!((error.code, error.tensor.as_deref()), (code, Some("odd")), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
    // Every tensor with such a type is named, readable ones between them are not.
    let many = Raw::new().tensor("a", &[256], 999, 0).tensor("b", &[32], 0, 0).tensor("c", &[256], 36, 0);
    let error = refused(&many.bytes(128));
    assert_eq!((error.code, error.tensor.as_deref()), ("unknown-type", Some("a")), "{error}");
    assert!(error.message.contains("c: type 36 (IQ4_NL_4_4)") && !error.message.contains("b:"), "{error}");
    // Known to ggml, without a codec here: every tensor that has one is named. Rows of 64 have as many bytes as Q4_0's, so
    // the data stays where it is.
    let record = |name: &str, kind: u32| {
        let dims = [64u64, 96, 4].iter().flat_map(|dim| dim.to_le_bytes()).collect::<Vec<u8>>();
        [string(name.as_bytes()), 3u32.to_le_bytes().to_vec(), dims, kind.to_le_bytes().to_vec()].concat()
    };
    let mut bytes = good();
    for layer in 0..2 {
        let name = format!("blk.{layer}.ffn_up_exps.weight");
        bytes = replaced(&bytes, &record(&name, 2), &record(&name, 40));
    }
    let error = refused(&bytes);
    assert_eq!(error.code, "unsupported-type");
    for layer in 0..2 {
        assert!(error.message.contains(&format!("blk.{layer}.ffn_up_exps.weight (NVFP4)")), "{error}");
    }
    // 40 has blocks of 64: the rows of 96 do not hold whole ones, which its shape tells first.
    let wide = Raw::new().tensor("wide", &[96], 40, 0);
    let error = refused(&wide.bytes(32));
    assert_eq!(error.code, "bad-shape");
    assert!(error.message.contains("NVFP4"), "{error}");
}

// O9
#[test]
fn a_name_or_key_stands_once() {
    let bytes = replaced(&good(), b"blk.1.attn_norm.weight", b"blk.0.attn_norm.weight");
    let error = refused(&bytes);
    assert_eq!((error.code, error.tensor.as_deref()), ("duplicate-tensor", Some("blk.0.attn_norm.weight")));
    let twice = Raw::new().number("a.b", 1).number("a.b", 2);
    assert_eq!(refused(&twice.bytes(32)).code, "duplicate-key");
}

#[test]
fn data_is_inside_the_file_aligned_and_not_shared() {
    let mut raw = Raw::new().tensor("a", &[32], 0, 0).tensor("b", &[32], 0, 64);
    raw.data = vec![0; 256];
    let error = refused(&raw.bytes(32));
    assert_eq!((error.code, error.tensor.as_deref()), ("overlap", Some("b")));
    let odd = Raw { data: vec![0; 256], ..Raw::new().tensor("a", &[8], 0, 8) };
    assert_eq!(refused(&odd.bytes(32)).code, "bad-offset");
}

// O10
#[test]
fn alignment_and_byte_order() {
    // The sound file again, at an alignment of 64: its metadata and data are moved apart by hand.
    let good = good();
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.gguf"), folder.path().join("out.estream"));
    std::fs::write(&input, &good).unwrap();
    pack(&input, &output).unwrap();
    let wanted = std::fs::read(&output).unwrap();
    std::fs::write(&input, realigned(&good)).unwrap();
    pack(&input, &output).unwrap();
    let aligned = std::fs::read(&output).unwrap();
    // The tokenizer extent carries the key; every weight is the same.
    let weights = |pack: &[u8]| pack[pack.len() - 100_000..].to_vec();
    assert_eq!(weights(&aligned), weights(&wanted));

    let with =
        |number: u32, value: &[u8]| refused(&Raw::new().entry("general.alignment", number, value).bytes(32));
    for value in [0u32, 3, 1 << 30] {
        let error = with(4, &value.to_le_bytes());
        assert_eq!(error.code, "bad-alignment");
        assert!(error.message.contains(&value.to_string()), "{error}");
    }
    assert_eq!(with(5, &64u32.to_le_bytes()).code, "bad-alignment");
    assert_eq!(with(10, &64u64.to_le_bytes()).code, "bad-alignment");
    assert_eq!(with(8, &string(b"64")).code, "bad-alignment");

    let big = [b"GGUF".as_slice(), &3u32.to_be_bytes(), &[0; 16]].concat();
    assert_eq!(refused(&big).code, "big-endian");
    assert_eq!(refused(&[b"FUGG".as_slice(), &[0; 20]].concat()).code, "big-endian");
    let version = |version| refused(&Raw { version, ..Raw::new() }.bytes(32)).code;
    assert_eq!((version(1), version(4)), ("unsupported-version", "unsupported-version"));
    assert_eq!(refused(b"lmgg and more").code, "old-format");
    assert_eq!(refused(b"PK\x03\x04 a zip file").code, "not-gguf");
}

/// Adds `general.alignment` = 64 and moves every tensor to a multiple of it.
fn realigned(good: &[u8]) -> Vec<u8> {
    let records = find(good, b"token_embd.weight") - 8;
    let word = |at: usize| u64::from_le_bytes(good[at..at + 8].try_into().unwrap());
    let mut bytes = good[..records].to_vec();
    bytes[16..24].copy_from_slice(&(word(16) + 1).to_le_bytes());
    bytes.extend(
        [string(b"general.alignment"), 4u32.to_le_bytes().to_vec(), 64u32.to_le_bytes().to_vec()].concat(),
    );
    let (mut at, mut offsets) = (records, Vec::new());
    for _ in 0..word(8) {
        let start = at;
        at += 8 + word(at) as usize;
        let dims = u32::from_le_bytes(good[at..at + 4].try_into().unwrap()) as usize;
        at += 4 + 8 * dims + 4;
        bytes.extend(&good[start..at]);
        // Twice the offset is a multiple of 64, and leaves room.
        bytes.extend((2 * word(at)).to_le_bytes());
        offsets.push(word(at) as usize);
        at += 8;
    }
    let old = &good[at.next_multiple_of(32)..];
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    let data = bytes.len();
    for (index, &offset) in offsets.iter().enumerate() {
        let end = offsets.get(index + 1).copied().unwrap_or(old.len());
        bytes.resize(data + 2 * offset, 0);
        bytes.extend(&old[offset..end]);
    }
    bytes
}

// O11
#[test]
fn what_is_no_moe_model_is_named() {
    let refusal = |raw: Raw| {
        let error = refused(&raw.bytes(32));
        assert_eq!(error.code, "not-moe", "{error}");
        assert!(error.message.contains("not a MoE model"), "{error}");
        error.message
    };
    let imatrix = Raw { data: vec![0; 128], ..Raw::new().tensor("blk.0.attn_q.weight.in_sum2", &[32], 0, 0) };
    assert!(refusal(imatrix).contains("imatrix"));
    assert!(refusal(Raw::new().text("general.type", "imatrix")).contains("imatrix"));
    let token = [8u32.to_le_bytes().as_slice(), &1u64.to_le_bytes(), &string(b"a")].concat();
    let vocabulary =
        Raw::new().text("general.architecture", "olmoe").entry("tokenizer.ggml.tokens", 9, &token);
    assert!(refusal(vocabulary).contains("only a vocabulary"));
    let dense = Raw { data: vec![0; 128], ..Raw::new().tensor("token_embd.weight", &[32], 0, 0) };
    assert!(refusal(dense.text("general.architecture", "qwen2")).contains("dense"));
    let adapter = Raw::new().text("general.type", "adapter");
    assert!(refusal(adapter).contains("LoRA"));
}

#[test]
fn other_models_and_layouts_are_refused_by_name() {
    let moe =
        |name: &str| Raw::new().text("general.architecture", name).number(&format!("{name}.expert_count"), 8);
    let error = refused(&moe("grok").bytes(32));
    assert_eq!(error.code, "unsupported-architecture");
    assert!(error.message.contains("grok") && error.message.contains("olmoe, qwen3moe, llama"), "{error}");
    let split =
        moe("olmoe").entry("split.count", 2, &3u16.to_le_bytes()).entry("split.no", 2, &0u16.to_le_bytes());
    let error = refused(&split.bytes(32));
    assert_eq!(error.code, "wrong-shard");
    assert!(error.message.contains("shard 1 of a model split into 3 files"), "{error}");

    let good = good();
    let unused = refused(&replaced(&good, b"blk.0.attn_q.weight", b"blk.0.attn_X.weight"));
    assert_eq!((unused.code, unused.tensor.as_deref()), ("missing-tensor", Some("blk.0.attn_q.weight")));
    let shape =
        refused(&replaced(&good, &key("olmoe.expert_used_count", 2), &key("olmoe.expert_used_count", 9)));
    assert_eq!(shape.code, "unsupported-shape");
    let width = refused(&replaced(
        &good,
        &key("olmoe.feed_forward_length", 96),
        &key("olmoe.feed_forward_length", 64),
    ));
    assert_eq!((width.code, width.tensor.as_deref()), ("bad-shape", Some("blk.0.ffn_gate_exps.weight")));
    assert!(width.message.contains("[64, 96, 4]") && width.message.contains("[64, 64, 4]"), "{width}");
    let missing = refused(&replaced(&good, b"olmoe.expert_used_count", b"olmoe.expert_used_XXXXX"));
    assert_eq!(missing.code, "missing-key");
    assert!(missing.message.contains("olmoe.expert_used_count"));
}

fn key(name: &str, value: u32) -> Vec<u8> {
    [name.as_bytes(), &4u32.to_le_bytes(), &value.to_le_bytes()].concat()
}

#[test]
fn paths_that_are_no_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(refused_file(&folder.path().join("none.gguf"), folder.path()).code, "not-found");
    assert_eq!(refused_file(folder.path(), folder.path()).code, "not-found");
    assert_eq!(refused_file(Path::new("/dev/zero"), folder.path()).code, "not-a-file");
    let input = folder.path().join("good.gguf");
    gguf(small(), &input);
    let error = convert(&input, &input, &Options { order: None, progress: &quiet }).unwrap_err();
    assert_eq!(error.code, "same-file");
    assert!(pack(&input, &folder.path().join("good.estream")).is_ok());
}

/// Any byte of the metadata may be anything: the answer is a pack or an error, never a panic.
#[test]
fn bent_metadata_never_panics() {
    let good = good();
    let data = find(&good, &string(b"output.weight")) + 64;
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.gguf"), folder.path().join("out.estream"));
    let mut seed = 99u64;
    for _ in 0..600 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes[(seed >> 33) as usize % data] = (seed >> 20) as u8;
        }
        std::fs::write(&input, bytes).unwrap();
        if let Err(error) = pack(&input, &output) {
            assert!(error.is_input(), "{error}");
        }
    }
}
