//! The long runs: whole grids in place of the pairwise cover, and a full-size model with its time and memory.
//!
//! The figures are printed as rows for `docs/measured.md`; whoever runs this on a quiet machine pastes them there with
//! the machine's name. Nothing is written into the tree.

use crate::steps::{Steps, cargo, number, output, run as command};
use crate::{hexagon, packets};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);
const TOKENS: usize = 512;
/// An eighth of a gigabyte of arena: the whole process is to stay below 0.9 GiB.
const ARENAS: [&str; 2] = ["128MiB", "256MiB"];

/// Runs everything.
pub(crate) fn run(root: &Path, directory: Option<PathBuf>) -> Result<(), String> {
    let mut steps = Steps::new();
    steps.step("grids", || {
        command(cargo(root).args(["test", "--release", "--workspace"]).env("ESTREAM_FULL", "1"))
    })?;
    let directory = directory.unwrap_or_else(|| root.join("target/full"));
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    // Building the kernels once more takes longer than a change should wait, hence here.
    steps.step("packets", || if hexagon::parts(root)? { packets::run(root, false) } else { Ok(()) })?;
    steps.step("full size", || full_size(root, &directory))?;
    steps.finish(LIMIT)
}

/// An OLMoE of full size, made once, run at several arenas and thread counts.
fn full_size(root: &Path, directory: &Path) -> Result<(), String> {
    command(cargo(root).args(["build", "--release", "--package", "estream"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let estream = target.join("release/estream");
    let pack = directory.join("olmoe-1b-7b.estream");
    if !pack.exists() {
        command(
            Command::new(&estream)
                .args(["synth", "--shape", "olmoe-1b-7b", "--seed", "1", "--format", "pack", "-o"])
                .arg(&pack),
        )?;
    }
    // Any ids will do; these are spread over the vocabulary and the same on every machine.
    let ids: Vec<_> = (0..TOKENS).map(|i| (i * 7919 % 50_000).to_string()).collect();
    let mut rows = Vec::new();
    for arena in ARENAS {
        for threads in ["1", "2"] {
            let begun = Instant::now();
            let json = output(
                Command::new(&estream).arg("run").arg(&pack).args(["--tokens", &ids.join(",")]).args([
                    "--arena",
                    arena,
                    "--threads",
                    threads,
                    "--json",
                ]),
            )?;
            println!("{}", json.trim());
            rows.push(row(&json, arena, threads, begun.elapsed())?);
        }
    }
    println!("\n| arena | threads | tokens | prefill s | process s | peak MiB | measured MiB | read MiB |");
    println!("|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

fn row(json: &str, arena: &str, threads: &str, process: Duration) -> Result<String, String> {
    let number = |key| number(json, key).ok_or_else(|| format!("the report has no number \"{key}\": {json}"));
    let mebibytes = |key| Ok::<_, String>(number(key)? / f64::from(1 << 20));
    Ok(format!(
        "| {arena} | {threads} | {TOKENS} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} |",
        number("prefill_ms")? / 1000.0,
        process.as_secs_f64(),
        mebibytes("peak_bytes")?,
        mebibytes("measured_peak_bytes")?,
        mebibytes("bytes")?,
    ))
}
