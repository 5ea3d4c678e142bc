//! Law 6: peak memory is known at open, printed, and what the kernel measures; it is bounded by the arena and not by the
//! model.
//!
//! Each run is a child of this small process, so that the kernel's account of the child is its own.

use estream_pack::{Family, Shape, SynthFormat, SynthOptions, synth};
use estream_tests::child::Ended;
use estream_tests::{fixture, program};
use serde_json::Value;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Runs a prompt and checks the printed peak against the measured one.
fn peak(pack: &Path, tokens: usize, vocabulary: usize, arguments: &[&str]) -> (u64, Value) {
    let ids: Vec<u32> = (0..tokens).map(|i| (i * 7919 % vocabulary) as u32).collect();
    let mut command = program::estream();
    command.arg("run").arg(pack).args(["--tokens", &program::ids(&ids), "--json"]).args(arguments);
    let Ended { code, stdout, stderr, peak_bytes, .. } = program::finish(&mut command);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("a report");
    let printed = program::number(&report, "memory.peak_bytes");
    let tolerance = printed / 20 + 8 * MIB;
    println!("{arguments:?}: printed {} MiB, measured {} MiB", printed / MIB, peak_bytes / MIB);
    assert!(printed.abs_diff(peak_bytes) <= tolerance, "printed {printed}, measured {peak_bytes}");
    (peak_bytes, report)
}

#[test]
fn the_printed_peak_is_the_measured_one() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    for arguments in
        [&["--group", "1", "--banks", "1"][..], &["--group", "16", "--banks", "all"], &["--threads", "1"]]
    {
        peak(&pack, 96, 2048, arguments);
    }
}

/// A model of 4 layers with so many experts of 216 KiB.
fn synthetic(folder: &Path, experts: u32) -> PathBuf {
    let output = folder.join(format!("{experts}.estream"));
    let shape = Shape {
        name: format!("synthetic-{experts}"),
        family: Family::Olmoe,
        layers: 4,
        width: 512,
        heads: 8,
        kv_heads: 8,
        head_width: 64,
        dense_width: 0,
        expert_width: 256,
        experts,
        chosen: 4,
        vocab: 2048,
        context: 512,
        theta: 10_000.0,
    };
    let options = SynthOptions {
        shape,
        layers: None,
        seed: 3,
        skew: 0.0,
        format: SynthFormat::Pack,
        output: output.clone(),
        progress: &|_, _| (),
    };
    synth(&options).expect("a synthetic pack can be written");
    output
}

#[test]
fn the_peak_does_not_grow_with_the_experts() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let arguments = ["--group", "2", "--banks", "4", "--threads", "2"];
    let [few, many] = [8, 128].map(|experts| {
        let pack = synthetic(folder.path(), experts);
        let bytes = std::fs::metadata(&pack).expect("the pack is there").len();
        (bytes, peak(&pack, 64, 2048, &arguments))
    });
    assert!(many.0 - few.0 > 90 * MIB, "the packs do not differ enough to show anything");
    // Routers and their scores grow with the experts, their weights alone by 120 · 512 · 4 bytes a layer.
    assert!(many.1.0 < few.1.0 + 6 * MIB, "{} bytes against {}", many.1.0, few.1.0);
    let arena = |report| program::number(report, "memory.arena_bytes");
    assert_eq!(arena(&few.1.1), arena(&many.1.1));
    // Where the tolerance is small beside the whole: everything resident, and rows of logits that add nothing.
    let pack = folder.path().join("128.estream");
    let resident = peak(&pack, 64, 2048, &["--group", "8", "--banks", "all"]).0;
    assert!(resident > many.1.0 + 80 * MIB, "{resident} bytes do not hold all experts");
    let npy = folder.path().join("logits.npy").to_string_lossy().into_owned();
    let rows = peak(&pack, 512, 2048, &[&arguments[..], &["--logits", &npy]].concat()).0;
    let none = peak(&pack, 512, 2048, &arguments).0;
    assert!(rows < none + 9 * MIB, "rows take {rows}, without them {none}: more than two panels");
}
