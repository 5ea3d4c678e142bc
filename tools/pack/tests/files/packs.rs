//! Packs: whole, sealed, in the order asked for, and nothing else in their folder.

use crate::fixtures::{find, gguf, pack, quiet, shared, small, string};
use estream_idl::pack::{Directory, Header};
use estream_pack::{Family, Options, Shape, Vocabulary, convert, inspect, verify};
use std::path::Path;
use zerocopy::FromBytes;

fn packed(folder: &Path, shape: Shape) -> std::path::PathBuf {
    let (input, output) = (folder.join("in.gguf"), folder.join("out.estream"));
    gguf(shape, &input);
    pack(&input, &output).unwrap();
    output
}

#[test]
fn any_flipped_byte_and_any_cut_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = packed(folder.path(), small());
    let good = std::fs::read(&path).unwrap();
    let verified = verify(&path, &quiet).unwrap();
    assert_eq!(verified.file_bytes, good.len() as u64);
    let bent = folder.path().join("bent.estream");
    let mut seed = 5u64;
    for round in 0..1000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The header and its tables get their share of the flips.
        let range = if round % 4 == 0 { 4096 } else { good.len() };
        let at = (seed >> 33) as usize % range;
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (seed >> 60 & 7);
        std::fs::write(&bent, bytes).unwrap();
        let error = verify(&bent, &quiet).expect_err("a flipped bit");
        assert!(
            error.is_input() && error.offset.is_some_and(|offset| offset <= at as u64),
            "byte {at}: {error}"
        );
    }
    for bytes in [0, 7, 4095, 4096, 20_000, good.len() - 4096, good.len() - 1] {
        std::fs::write(&bent, &good[..bytes]).unwrap();
        assert_eq!(verify(&bent, &quiet).expect_err("a cut").code, "truncated", "cut at {bytes}");
    }
    std::fs::write(&bent, [good.as_slice(), &[0; 4096]].concat()).unwrap();
    assert_eq!(verify(&bent, &quiet).unwrap_err().code, "damaged-pack");
}

#[test]
fn a_damaged_extent_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = packed(folder.path(), small());
    let mut bytes = std::fs::read(&path).unwrap();
    let header = Header::read_from_prefix(&bytes).unwrap().0;
    let flip = |bytes: &mut Vec<u8>, at: u64| {
        bytes[at as usize] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = verify(&path, &quiet).unwrap_err();
        bytes[at as usize] ^= 1;
        assert_eq!(error.code, "checksum");
        (error.message, error.offset)
    };
    let record = header.experts.file + 5 * header.record_bytes;
    let (message, offset) = flip(&mut bytes, record + 100);
    assert!(message.contains("expert 1 (position 1) of layer 1"), "{message}");
    assert_eq!(offset, Some(record));
    let (message, offset) = flip(&mut bytes, header.embedding.file + 4096 + 7);
    assert!(message.contains("page 1 of the embedding"), "{message}");
    assert_eq!(offset, Some(header.embedding.file + 4096));
    let (message, _) = flip(&mut bytes, header.dense.file + 3);
    assert!(message.contains("mixer norm of layer 0"), "{message}");
    let (message, _) = flip(&mut bytes, header.directory.file + 3);
    assert!(message.contains("directory"), "{message}");
}

/// The records of a pack as (layer, expert) → bytes.
fn records(bytes: &[u8]) -> std::collections::BTreeMap<(u32, u32), Vec<u8>> {
    let header = Header::read_from_prefix(bytes).unwrap().0;
    let at = header.directory.file as usize;
    let directory = Directory::read(&bytes[at..at + header.directory.bytes as usize]).unwrap();
    let mut records = std::collections::BTreeMap::new();
    for layer in directory.layers.iter() {
        for expert in 0..layer.experts {
            let position = directory.permutations.get((layer.permutation + expert) as usize).unwrap();
            let start = (layer.file + u64::from(position) * layer.record_bytes) as usize;
            records.insert((layer.layer, expert), bytes[start..start + layer.record_bytes as usize].to_vec());
        }
    }
    records
}

#[test]
fn an_order_moves_records_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let plain = packed(folder.path(), small());
    let (order, ordered) = (folder.path().join("order.json"), folder.path().join("ordered.estream"));
    std::fs::write(&order, "[[3,1,0,2],[0,1,2,3]]").unwrap();
    let options = Options { order: Some(order.clone()), progress: &quiet };
    convert(&folder.path().join("in.gguf"), &ordered, &options).unwrap();
    verify(&ordered, &quiet).unwrap();
    let (a, b) = (std::fs::read(&plain).unwrap(), std::fs::read(&ordered).unwrap());
    assert_eq!(records(&a), records(&b));
    let first = Header::read_from_prefix(&b).unwrap().0.experts.file as usize;
    assert_eq!(b[first..first + 4096], records(&a)[&(0, 3)][..4096]);
    let inspection = inspect(&ordered).unwrap();
    assert_eq!(inspection.sparse_layers[0].order.as_deref(), Some([3, 1, 0, 2].as_slice()));
    assert_eq!(inspection.sparse_layers[1].order, None);

    std::fs::write(&order, "[[3,1,0,2],[0,1,2,2]]").unwrap();
    let error = convert(&folder.path().join("in.gguf"), &ordered, &options).unwrap_err();
    assert_eq!((error.code, error.file.as_deref()), ("bad-order", Some(order.as_path())));
    assert_eq!(std::fs::read(&ordered).unwrap(), b, "the old file stays");
}

#[test]
fn a_tied_head_is_stored_twice_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.gguf");
    gguf(Shape { family: Family::Qwen3Moe, ..small() }, &path);
    // The head's record is the last one: it is taken off, and its data is nobody's.
    let mut bytes = std::fs::read(&path).unwrap();
    let at = find(&bytes, &string(b"output.weight"));
    let count = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    bytes[8..16].copy_from_slice(&(count - 1).to_le_bytes());
    let end = at + 8 + 13 + 4 + 16 + 4 + 8;
    let data = bytes.split_off(end.next_multiple_of(32));
    bytes.truncate(at);
    bytes.resize(at.next_multiple_of(32), 0);
    bytes.extend(data);
    std::fs::write(&path, bytes).unwrap();
    let output = folder.path().join("out.estream");
    assert!(pack(&path, &output).unwrap().tied_head);
    for file in [&path, &output] {
        let inspection = inspect(file).unwrap();
        assert_eq!(inspection.duplicates.len(), 1);
        assert!(inspection.to_string().contains("twice"), "{inspection}");
    }
}

#[test]
fn inspecting_the_pack_agrees_with_inspecting_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let pack = inspect(&packed(folder.path(), Shape::tiny())).unwrap();
    let gguf = inspect(&folder.path().join("in.gguf")).unwrap();
    assert_eq!((pack.kind, gguf.kind), ("pack", "gguf"));
    assert_eq!(pack.architecture, gguf.architecture);
    assert_eq!(pack.record_bytes, gguf.record_bytes);
    // Gate and up: 8 tiles × (512 + 64) bytes a strip, 4 strips; down: 4 tiles, 8 strips; W_e in whole pages.
    assert_eq!(pack.record_bytes, Some((8 * 576 * 4 * 2 + 4 * 576 * 8u64).next_multiple_of(4096)));
    assert_eq!(pack.groups.len(), 5);
    let types = |inspection: &estream_pack::Inspection| -> std::collections::BTreeMap<&str, String> {
        inspection.components.iter().map(|c| (c.component, c.types[0].r#type.clone())).collect()
    };
    assert_eq!(types(&pack), types(&gguf));
    assert_eq!(types(&pack)["head"], "Q6_K");
}

#[test]
fn every_golden_converts() {
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.estream");
    for set in ["random", "trained", "wild"] {
        for entry in std::fs::read_dir(shared.join("goldens").join(set)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ext| ext != "gguf") {
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let inspection = inspect(&path).unwrap();
            assert!(inspection.components.iter().any(|component| component.component == "experts"));
            assert_eq!(inspection.refusal, None, "{name}");
            let report = pack(&path, &output).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(verify(&output, &quiet).unwrap().file_bytes, report.file_bytes);
            let (ours, theirs) =
                (Vocabulary::from_pack(&output).unwrap(), Vocabulary::from_gguf(&path).unwrap());
            assert!(!ours.is_empty() && ours.len() == theirs.len(), "{name}");
            assert!((0..ours.len() as u32).all(|id| ours.text(id) == theirs.text(id)), "{name}");
        }
    }
}
