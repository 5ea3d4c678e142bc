//! Cold rows: fresh processes of this program, after the page cache has given the pack up.

use super::{Cold, median};
use crate::cli::{Bench, Machine};
use crate::interrupt::Interrupt;
use estream::memory::available;
use estream::{Error, Exit, Result};
use serde::Deserialize;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// How the page cache was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// All of it: the kernel's own switch.
    Dropped,
    /// The pack's pages, by advice: this user may not throw the switch.
    Advised,
}

impl Emptied {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Advised => "advised",
        }
    }
}

/// Runs the prompt in `runs` fresh processes.
pub fn measure(arguments: &Bench, ids: &[u32], runs: u32, interrupt: &Interrupt) -> Result<(Cold, Emptied)> {
    let file = ids_file(ids)?;
    let mut emptied = Emptied::Dropped;
    let mut outcomes = Vec::new();
    for _ in 0..runs {
        interrupt.check()?;
        emptied = empty(&arguments.pack)?;
        outcomes.push(one(&arguments.pack, &arguments.machine, file.path(), interrupt)?);
    }
    let middle = |value: fn(&Outcome) -> f64| median(&mut outcomes.iter().map(value).collect::<Vec<_>>());
    let most = |value: fn(&Outcome) -> Option<u64>| outcomes.iter().filter_map(value).max();
    let (resident, drop) = (most(|outcome| outcome.resident), most(|outcome| outcome.available_drop));
    let cold = Cold {
        runs,
        first_token_ms: middle(|outcome| outcome.first_token_ms),
        open_ms: middle(|outcome| outcome.time.open_ms),
        prefill_ms: middle(|outcome| outcome.time.prefill_ms),
        io_wait_ms: middle(|outcome| outcome.time.io_wait_ms),
        peak_resident_bytes: resident,
        peak_available_drop_bytes: drop,
        peak_bytes: resident.max(drop),
    };
    Ok((cold, emptied))
}

/// A file of ids for processes to read, gone with the value.
pub fn ids_file(ids: &[u32]) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new().map_err(|error| Error::unwritable(&std::env::temp_dir(), &error))?;
    let text: Vec<String> = ids.iter().map(u32::to_string).collect();
    file.write_all(text.join(",").as_bytes()).map_err(|error| Error::unwritable(file.path(), &error))?;
    Ok(file)
}

/// Empties the page cache, of everything or at least of the pack.
pub fn empty(pack: &Path) -> Result<Emptied> {
    rustix::fs::sync();
    let dropped = File::options().write(true).open("/proc/sys/vm/drop_caches");
    if dropped.and_then(|mut switch| switch.write_all(b"3")).is_ok() {
        return Ok(Emptied::Dropped);
    }
    let file = File::open(pack).map_err(|error| Error::unreadable(pack, &error))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|error| Error::unreadable(pack, &error.into()))?;
    Ok(Emptied::Advised)
}

/// What one process said and took.
pub struct Outcome {
    first_token_ms: f64,
    /// Its account of time.
    pub time: Time,
    /// Its account of reads.
    pub io: Io,
    /// Its candidates.
    pub top: serde_json::Value,
    /// The most that was ever resident.
    pub resident: Option<u64>,
    available_drop: Option<u64>,
}

/// The part of `run --json` that is used here.
#[derive(Deserialize)]
struct Report {
    time: Time,
    io: Io,
    top: serde_json::Value,
    memory: MemoryAccount,
}

/// Milliseconds of a run.
#[derive(Deserialize)]
pub struct Time {
    /// Until the first pass, verification apart.
    pub open_ms: f64,
    /// The pass.
    pub prefill_ms: f64,
    /// What the firmware waited for reads in it.
    pub io_wait_ms: f64,
}

/// Reads of a run's pass.
#[derive(Deserialize)]
pub struct Io {
    /// Bytes.
    pub bytes: u64,
    /// Requests to the system.
    pub requests: u64,
}

#[derive(Deserialize)]
struct MemoryAccount {
    measured_peak_bytes: Option<u64>,
}

/// Runs the ids of a file in a fresh process.
pub fn one(pack: &Path, machine: &Machine, ids: &Path, interrupt: &Interrupt) -> Result<Outcome> {
    let failed = |message: String| Error::new("bench-run", Exit::Runtime, message);
    let program = std::env::current_exe().map_err(|error| failed(format!("this program: {error}")))?;
    let before = available();
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(["--json", "run"])
        .arg(pack)
        .arg("--tokens-file")
        .arg(ids)
        .args(machine.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("a process of this program: {error}")))?;
    let least = lowest_available(&mut child, before, interrupt);
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text).map_err(|error| failed(format!("its answer: {error}")))?;
    }
    let status = child.wait().map_err(|error| failed(format!("its end: {error}")))?;
    let first_token_ms = start.elapsed().as_secs_f64() * 1e3;
    interrupt.check()?;
    if !status.success() {
        return Err(failed(format!("a cold run ended with {status}: {}", text.trim())));
    }
    let Report { time, io, top, memory } =
        serde_json::from_str(&text).map_err(|error| failed(format!("a cold run's answer: {error}")))?;
    let available_drop = before.zip(least).map(|(before, least)| before.saturating_sub(least));
    Ok(Outcome { first_token_ms, time, io, top, resident: memory.measured_peak_bytes, available_drop })
}

/// Looks at the machine's available memory until the process has ended (its answer fits a pipe), and returns the least.
fn lowest_available(child: &mut Child, before: Option<u64>, interrupt: &Interrupt) -> Option<u64> {
    const PAUSE: Duration = Duration::from_millis(5);
    let mut least = before?;
    while matches!(child.try_wait(), Ok(None)) {
        least = least.min(available()?);
        if interrupt.check().is_err() {
            // The process got the signal too where it shares the terminal; elsewhere it must not be left behind.
            let _ = child.kill();
        }
        std::thread::sleep(PAUSE);
    }
    Some(least)
}
