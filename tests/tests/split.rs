//! Models in other files than one GGUF of today's layout (cases O4, O6, O7, O10 and O19 of the users' list): split, with
//! one tensor an expert, gate and up fused, realigned, unpadded, beyond 4 and 8 GiB. They become the same bytes as the
//! plain file. What is refused is in `shards.rs`.

use estream_host::{Pack, Verify};
use estream_idl::address::PAGE;
use estream_idl::pack::{Checksums, Directory, Header};
use estream_tests::child::Ended;
use estream_tests::compare::{compare, read_npy};
use estream_tests::gguf::{Parts, Piece};
use estream_tests::oracle::{Gguf, Model};
use estream_tests::{codecs, fixture, program};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zerocopy::{FromBytes, IntoBytes};

const GIB: u64 = 1 << 30;

fn folder() -> TempDir {
    fixture::folder(env!("CARGO_TARGET_TMPDIR"))
}

/// Our own golden, in pieces.
fn golden() -> Parts {
    Parts::read(&std::fs::read(fixture::own().gguf).expect("our own golden"))
}

fn pack(input: &Path, output: &Path) -> Ended {
    program::finish(program::estream().arg("pack").arg(input).arg("-o").arg(output))
}

/// Packs, which must succeed, and returns the pack's bytes.
fn packed(input: &Path) -> Vec<u8> {
    let folder = folder();
    let output = folder.path().join("out.estream");
    let ended = pack(input, &output);
    assert_eq!(ended.code, 0, "{}: {}{}", input.display(), ended.stdout, ended.stderr);
    std::fs::read(output).expect("the pack")
}

fn packed_parts(parts: &Parts) -> Vec<u8> {
    let folder = folder();
    let input = folder.path().join("model.gguf");
    std::fs::write(&input, parts.write(32)).expect("the model can be written");
    packed(&input)
}

fn shard_name(number: usize, count: usize) -> String {
    format!("model-{number:05}-of-{count:05}.gguf")
}

/// Writes a model in three: the first file has the keys alone.
fn split(folder: &Path) -> Vec<PathBuf> {
    let shards = golden().split(&[0, 0, 11]);
    let write = |(index, shard): (usize, &Parts)| {
        let path = folder.join(shard_name(index + 1, shards.len()));
        std::fs::write(&path, shard.write(32)).expect("a shard can be written");
        path
    };
    shards.iter().enumerate().map(write).collect()
}

/// O4.
#[test]
fn a_split_model_is_the_whole_one_from_any_shard_or_its_folder() {
    let whole = packed(&fixture::own().gguf);
    let folder = folder();
    let paths = split(folder.path());
    for path in paths.iter().map(PathBuf::as_path).chain([folder.path()]) {
        assert!(packed(path) == whole, "{} gives another pack", path.display());
    }
    let report = program::report(program::estream().arg("inspect").arg(&paths[1]));
    assert_eq!(report["refusal"], serde_json::Value::Null);
    assert_eq!(report["record_bytes"], 4096 * 11);

    // One of one is a whole model, and so is a file whose name only looks like a shard's.
    let one = folder.path().join("one-00001-of-00001.gguf");
    std::fs::write(&one, golden().split(&[0])[0].write(32)).expect("a file can be written");
    assert!(packed(&one) == whole);
    let odd = folder.path().join("best-of-breed.gguf");
    std::fs::copy(fixture::own().gguf, &odd).expect("a copy");
    assert!(packed(&odd) == whole);
}

/// O6, and the fused layout.
#[test]
fn other_layouts_of_experts_become_the_same_pack() {
    let golden = golden();
    let whole = packed_parts(&golden);
    assert!(packed_parts(&golden.one_tensor_an_expert()) == whole, "one tensor an expert");
    assert!(packed_parts(&golden.fused_gate_and_up()) == whole, "gate and up fused");
}

/// O7: several types in one file, whatever its label says.
#[test]
fn each_tensor_keeps_its_own_type() {
    let mut parts = golden();
    for (name, type_name) in [
        ("blk.0.ffn_down_exps.weight", "Q4_1"),
        ("blk.1.ffn_down_exps.weight", "Q5_0"),
        ("blk.2.ffn_gate_exps.weight", "Q6_K"),
        ("blk.2.ffn_up_exps.weight", "Q2_K"),
        ("blk.3.ffn_down_exps.weight", "Q8_0"),
        ("blk.3.ffn_up_exps.weight", "BF16"),
        ("blk.1.attn_q.weight", "MXFP4"),
    ] {
        let piece = parts.tensor(name);
        let elements = piece.shape.iter().product::<u64>() as usize;
        let (_, kind) = codecs::TYPES.into_iter().find(|(known, _)| *known == type_name).expect("a type");
        let mut data = codecs::blocks(type_name, elements);
        // The fixture's values, scaled to what weights are.
        match type_name {
            "BF16" => data.chunks_exact_mut(2).for_each(|value| value[1] = value[1] & 0x80 | 0x3C),
            "MXFP4" => data.chunks_exact_mut(17).for_each(|block| block[0] = 120 + block[0] % 3),
            _ => {}
        }
        *piece = Piece::new(name, &piece.shape.clone(), kind, data);
    }
    let folder = folder();
    let (input, npy) = (folder.path().join("mixed.gguf"), folder.path().join("logits.npy"));
    std::fs::write(&input, parts.write(32)).expect("the model can be written");
    let output = folder.path().join("mixed.estream");
    assert_eq!(pack(&input, &output).code, 0);
    let ids = &fixture::own().prompts[0].ids;
    let oracle = Model::load(&Gguf::parse(parts.write(32)).expect("a GGUF")).expect("a model").forward(ids);
    for (kernels, bound) in [("scalar", 1e-7), ("auto", 1e-6)] {
        let mut command = program::estream();
        command.args(["run", "--kernels", kernels, "--tokens", &program::ids(ids)]).arg(&output);
        let _ = program::report(command.arg("--logits").arg(&npy));
        let logits = read_npy(&npy).expect("the logits");
        let agreement = compare(oracle.logits.view(), logits.view());
        println!("{kernels}: {agreement:?}");
        assert!(agreement.kl_mean <= bound, "{kernels}: {agreement:?}");
    }
    let report = program::report(program::estream().arg("inspect").arg(&output));
    let down = |layer: usize| report["sparse_layers"][layer]["down"].as_str().map(str::to_owned);
    assert_eq!([down(0), down(1), down(3)].map(Option::unwrap_or_default), ["Q4_1", "Q5_0", "Q8_0"]);
}

/// O10: other alignments, and files without padding or with more bytes than they need.
#[test]
fn padding_changes_nothing() {
    let golden = golden();
    let weights = |pack: &[u8]| {
        let header = Header::read_from_prefix(pack).expect("a header").0;
        pack[header.dense.file as usize..].to_vec()
    };
    let whole = weights(&packed_parts(&golden));
    let folder = folder();
    let path = folder.path().join("model.gguf");
    for alignment in [8, 64, 4096] {
        let mut parts = golden.clone();
        parts.set("general.alignment", alignment as u32);
        std::fs::write(&path, parts.write(alignment)).expect("the model can be written");
        assert!(weights(&packed(&path)) == whole, "alignment {alignment}");
    }
    let file = golden.write(32);
    for tail in [0, 1, 31, 5000] {
        let longer = [file.as_slice(), &vec![0xEE; tail]].concat();
        std::fs::write(&path, longer).expect("the model can be written");
        assert!(weights(&packed(&path)) == whole, "{tail} bytes more");
    }
    // Nothing follows the last tensor's data, which here ends off the alignment.
    let mut odd = golden.clone();
    let last = odd.tensors.len() - 1;
    let vector = odd.tensors.iter().position(|piece| piece.shape.len() == 1).expect("a norm");
    odd.tensors.swap(vector, last);
    odd.set("general.alignment", 4096);
    let file = odd.write(4096);
    assert!(!file.len().is_multiple_of(4096));
    std::fs::write(&path, file).expect("the model can be written");
    assert!(weights(&packed(&path)) == whole, "an unpadded tail");
}

/// O19, the half of the GGUF.
#[test]
fn experts_beyond_8_gib_of_a_gguf_are_packed() {
    let golden = golden();
    let whole = packed_parts(&golden);
    let folder = folder();
    let path = folder.path().join("far.gguf");
    // The golden has more than forty tensors.
    golden.write_sparse(&path, 300 << 20).expect("a file with holes can be written");
    assert!(std::fs::metadata(&path).expect("the file").len() > 9 * GIB);
    assert!(packed(&path) == whole);
}

/// Moves the experts of a pack `gap` bytes on, behind a hole in the embedding's range, and seals it again.
fn move_experts(pack: &[u8], gap: u64, path: &Path) {
    let old = Header::read_from_prefix(pack).expect("a header").0;
    let mut header = old;
    let at = |extent: estream_idl::pack::Extent| &pack[extent.file as usize..][..extent.bytes as usize];
    let (directory, sums) = (
        Directory::read(at(old.directory)).expect("a directory"),
        Checksums::read(at(old.checksums)).expect("sums"),
    );
    let hole = std::iter::repeat_n(crc32c(&[0; PAGE]), (gap / PAGE as u64) as usize);
    let pages: Vec<u32> = sums.embedding_pages.iter().chain(hole).collect();

    // The longer checksum table moves everything behind it.
    let extents = sums.extents.len();
    let padded = |bytes: usize| bytes.next_multiple_of(PAGE) as u64;
    let more = padded(8 + extents * 24 + pages.len() * 4) - padded(old.checksums.bytes as usize);
    header.tokenizer.file += more;
    header.dense.file += more;
    header.embedding.file += more;
    header.embedding.bytes += gap;
    header.experts.file += more + gap;
    header.file_bytes += more + gap;
    let moved = |file: u64| if file >= old.experts.file { file + more + gap } else { file + more };

    let mut head = directory.header;
    (head.dense, head.embedding) = (header.dense, header.embedding);
    let mut bytes = head.as_bytes().to_vec();
    for mut layer in directory.layers.iter() {
        layer.file = moved(layer.file);
        bytes.extend(layer.as_bytes());
    }
    for mut matrix in directory.matrices.iter() {
        matrix.file = moved(matrix.file);
        bytes.extend(matrix.as_bytes());
    }
    directory.permutations.iter().for_each(|position| bytes.extend(position.to_le_bytes()));
    let mut table = [(extents as u32).to_le_bytes(), (pages.len() as u32).to_le_bytes()].concat();
    for mut sum in sums.extents.iter() {
        sum.file = moved(sum.file);
        table.extend(sum.as_bytes());
    }
    table.extend(pages.as_bytes());
    header.checksums.bytes = table.len() as u32;

    let file = File::create(path).expect("a file");
    file.set_len(header.file_bytes).expect("a hole");
    let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).expect("it can be written");
    for (extent, mut bytes) in [(&mut header.directory, bytes), (&mut header.checksums, table)] {
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        extent.crc = crc32c(&bytes);
        write(extent.file, &bytes);
    }
    write(header.recipe.file, at(old.recipe));
    write(header.tokenizer.file, at(old.tokenizer));
    let weights = &pack[old.dense.file as usize..old.experts.file as usize];
    write(header.dense.file, weights);
    write(header.experts.file, &pack[old.experts.file as usize..]);
    header.crc = 0;
    header.crc = crc32c(header.as_bytes());
    write(0, header.as_bytes());
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
    })
}

/// O19, the half of the pack: the same logits as of the small file.
#[test]
fn experts_beyond_4_and_8_gib_of_a_pack_are_read() {
    let folder = folder();
    let near = folder.path().join("near.estream");
    assert_eq!(pack(&fixture::own().gguf, &near).code, 0);
    let bytes = std::fs::read(&near).expect("the pack");
    let ids = program::ids(&fixture::own().prompts[0].ids);
    let logits = |pack: &Path| {
        let npy = folder.path().join("logits.npy");
        let mut command = program::estream();
        command.args(["run", "--verify", "never", "--group", "2", "--banks", "3", "--tokens", &ids]);
        let _ = program::report(command.arg(pack).arg("--logits").arg(&npy));
        std::fs::read(npy).expect("the logits")
    };
    let wanted = logits(&near);
    for gib in [4, 8] {
        let far = folder.path().join("far.estream");
        move_experts(&bytes, gib * GIB, &far);
        let pack = Pack::open(&far, Verify::Never, &|_, _| ()).expect("a sound pack");
        assert!(pack.header().experts.file > gib * GIB);
        assert!(logits(&far) == wanted, "experts beyond {gib} GiB");
    }
}
