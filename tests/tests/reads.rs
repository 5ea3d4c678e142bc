//! What is really asked of the disk, as a preloaded shim saw it: O_DIRECT, straight into banks, each routed expert once,
//! and no mapping of the pack.
//!
//! Which experts are routed is told by the oracle and not by the product. The pack's tables are read with the contract
//! crate, since they are what is written in the file.

use estream_idl::pack::{Directory, Header, LayerEntry};
use estream_tests::oracle::Model;
use estream_tests::{fixture, program};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use zerocopy::FromBytes;

/// A line of the shim's log.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    flags: i32,
    offset: u64,
    length: u64,
    address: u64,
    result: i64,
}

impl Call {
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        let &[name, flags, offset, length, address, result] = words.as_slice() else {
            panic!("bad line {line:?}")
        };
        Self {
            name: name.into(),
            flags: flags.parse().expect("flags"),
            offset: offset.parse().expect("an offset"),
            length: length.parse().expect("a length"),
            address: address.parse().expect("an address"),
            result: result.parse().expect("a result"),
        }
    }

    fn meets(&self, begin: u64, end: u64) -> bool {
        self.offset < end && self.offset + self.length > begin
    }
}

/// The pack's layers, and for each the experts in storage order.
fn layers(pack: &Path) -> (Header, Vec<(LayerEntry, Vec<usize>)>) {
    let bytes = std::fs::read(pack).expect("the pack can be read");
    let header = Header::read_from_bytes(&bytes[..4096]).expect("a header is 4096 bytes");
    let at = header.directory.file as usize;
    let directory = Directory::read(&bytes[at..at + header.directory.bytes as usize]).expect("a directory");
    let layers = directory.layers.iter().map(|layer| {
        let positions = (0..layer.experts).map(|expert| {
            directory.permutations.get((layer.permutation + expert) as usize).expect("a storage position")
        });
        let mut stored = vec![0; layer.experts as usize];
        positions.enumerate().for_each(|(expert, position)| stored[usize::from(position)] = expert);
        (layer, stored)
    });
    (header, layers.collect())
}

/// Runs a prompt under the shim and returns its report and the calls on the pack's file.
fn traced(pack: &Path, ids: &[u32], folder: &Path, arguments: &[&str]) -> (Value, Vec<Call>) {
    let log = folder.join("reads.log");
    std::fs::write(&log, "").expect("the log can be made");
    let mut command = program::estream();
    command.arg("run").arg(pack).args(["--tokens", &program::ids(ids), "--verify", "never"]).args(arguments);
    command.env("LD_PRELOAD", program::shim()).env("ESTREAM_SHIM_FILE", pack).env("ESTREAM_SHIM_LOG", &log);
    let report = program::report(&mut command);
    let text = std::fs::read_to_string(&log).expect("the log can be read");
    let calls: Vec<_> = text.lines().map(Call::parse).collect();
    assert!(!calls.is_empty(), "the shim saw nothing: are the program's calls still libc's?");
    (report, calls)
}

fn direct_works(pack: &Path) -> bool {
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(pack).is_ok()
}

#[test]
fn experts_are_read_directly_into_banks_and_routed_ones_once() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let model = Model::open(&golden.gguf).expect("our own golden");
    let order = fixture::random_order(&model.experts(), 5);
    let pack = fixture::pack(&golden.gguf, folder.path(), Some(&order));
    let (header, layers) = layers(&pack);
    // Four tokens of four experts leave most of sixteen experts unrouted; the whole prompt leaves none.
    for (tokens, group, banks, depth) in
        [(4, 1, 3, 2), (4, 2, 2, 1), (96, 2, 3, 2), (96, 4, 2, 4), (96, 1, 1, 1)]
    {
        let ids = &golden.prompts[0].ids[..tokens];
        let routing = model.forward(ids).routing;
        let [g, b, q] = [group, banks, depth].map(|number: u64| number.to_string());
        let arguments = ["--group", &g, "--banks", &b, "--depth", &q];
        let (report, calls) = traced(&pack, ids, folder.path(), &arguments);
        let what = format!("{tokens} tokens, {arguments:?}");

        assert!(calls.iter().all(|call| call.name != "mmap"), "{what}: the pack is mapped");
        let (begin, end) = (header.experts.file, header.experts.file + header.experts.bytes);
        let reads: Vec<_> = calls.iter().filter(|call| call.meets(begin, end)).collect();
        assert!(reads.iter().all(|call| call.name == "preadv"), "{what}: {reads:?}");
        if direct_works(&pack) {
            assert_eq!(report["io"]["mode"], "direct", "{what}");
            assert!(reads.iter().all(|call| call.flags & libc::O_DIRECT != 0), "{what}: {reads:?}");
        } else {
            eprintln!("skipped: the check of O_DIRECT (the file system refuses it)");
        }

        // Every destination lies in one bank of one arena of the printed size.
        let arena = program::number(&report, "memory.arena_bytes");
        let bank = group * header.record_bytes;
        assert_eq!(arena, banks * bank, "{what}");
        let first = reads.iter().map(|call| call.address).min().expect("experts are read");
        for call in &reads {
            let into = call.address - first;
            assert!(into + call.length <= arena, "{what}: {call:?} leaves the arena at {first}");
            assert!(into % bank + call.length <= bank, "{what}: {call:?} crosses a bank");
            assert_eq!(call.result, call.length as i64, "{what}: a short read on a plain file");
        }

        let mut routed_pairs = 0;
        for (index, (layer, stored)) in layers.iter().enumerate() {
            let routed: BTreeSet<usize> =
                routing[index].iter().flat_map(|choice| choice.experts.clone()).collect();
            routed_pairs += routed.len() as u64;
            // At most B groups are read before the router has spoken, with or without routes.
            let mut speculative = 0;
            for (chunk, experts) in stored.chunks(group as usize).enumerate() {
                let times: Vec<_> = (0..experts.len())
                    .map(|place| {
                        let at = layer.file + (chunk as u64 * group + place as u64) * layer.record_bytes;
                        reads.iter().filter(|call| call.meets(at, at + layer.record_bytes)).count()
                    })
                    .collect();
                let wanted = experts.iter().any(|expert| routed.contains(expert));
                assert!(
                    times.iter().all(|&other| other == times[0]),
                    "{what}: a group is read in part: {times:?}"
                );
                assert!(times[0] <= 1, "{what}: layer {index}, group {chunk} is read {} times", times[0]);
                assert!(
                    times[0] == 1 || !wanted,
                    "{what}: layer {index}, group {chunk} is routed and never read"
                );
                speculative += u64::from(times[0] == 1 && !wanted);
            }
            assert!(speculative <= banks, "{what}: layer {index} reads {speculative} groups without routes");
        }
        assert_eq!(program::number(&report, "routing.pairs_routed"), routed_pairs, "{what}");
    }
}
