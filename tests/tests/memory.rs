//! Law 6: peak memory is known at open, printed, and what the kernel measures; it is bounded by the arena and not by the
//! model.
//!
//! Each run is a child of this small process, so that the kernel's account of the child is its own.

use estream_tests::child::Ended;
use estream_tests::{fixture, program};
use serde_json::Value;
use std::path::Path;

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
