//! Warm rows: passes of one open engine.

use super::expected::{self, Expected};
use super::limits::reads_alone;
use super::storage::Storage;
use super::{energy::Counter, median};
use crate::cli::Bench;
use crate::interrupt::Interrupt;
use crate::timeline::Busy;
use crate::tracks::{Overlap, Tracks};
use estream::{Device, Engine, Pass, ReadSpan, Request, Result};
use estream_host::Pack;
use estream_idl::address::PAGE;
use serde::Serialize;

/// Passes of one open engine.
#[derive(Debug, Serialize)]
pub struct Warm {
    /// Passes that count; one before them does not.
    pub runs: u32,
    /// Tokens a second.
    pub tokens_per_second: f64,
    /// Its standard deviation over the runs; null for one run.
    pub tokens_per_second_sd: Option<f64>,
    /// Mean milliseconds of a pass.
    pub prefill_ms: f64,
    /// The median pass.
    pub prefill_median_ms: f64,
    /// Mean milliseconds that the firmware waited for reads.
    pub io_wait_ms: f64,
    /// How reading and computing covered each other, in the median pass; null on a device with a clock of its own.
    pub overlap: Option<Overlap>,
    /// What the requests of the median pass take alone, as many in flight; null where nothing was read.
    pub reads_alone_ms: Option<f64>,
    /// Bytes read in a pass.
    pub read_bytes: u64,
    /// What the routes of that pass call for, which was checked in every pass; null where events were lost.
    pub read_bytes_expected: Option<Expected>,
    /// Bytes that the kernel fetched from storage for this process in a pass, where it says.
    pub read_bytes_of_kernel: Option<u64>,
    /// Reads of a pass.
    pub reads: u64,
    /// Requests that they were made with.
    pub requests: u64,
    /// Bytes read a second while a read was in flight.
    pub read_bytes_per_second: Option<f64>,
    /// That, as a share of the storage's best in the same run.
    pub share_of_best: Option<f64>,
    /// Bytes of the pack that were read more than once in a pass: zero, or something is wrong.
    pub read_twice_bytes: u64,
    /// Joules of a pass: the package counters of the processor.
    pub joules: Option<f64>,
}

/// Runs the prompt once for warmth and then as often as asked.
pub fn measure(
    engine: &mut Engine,
    pack: &Pack,
    ids: &[u32],
    storage: &Storage,
    arguments: &Bench,
    interrupt: &Interrupt,
) -> Result<Option<Warm>> {
    if arguments.runs == 0 {
        return Ok(None);
    }
    let pass = |engine: &mut Engine| {
        interrupt.check()?;
        engine.prefill_into(&[Request::next_token(ids.to_vec())], &mut estream::NoRows)
    };
    pass(engine)?;
    let counter = arguments.energy.then(Counter::start).flatten();
    let fetched_before = fetched();
    let passes = (0..arguments.runs).map(|_| pass(engine)).collect::<Result<Vec<Pass>>>()?;
    let fetched = fetched().zip(fetched_before).map(|(after, before)| after.saturating_sub(before));
    let joules = counter.and_then(|counter| counter.joules()).map(|all| all / f64::from(arguments.runs));
    let runs = f64::from(arguments.runs);
    let speeds: Vec<f64> = passes.iter().map(|pass| ids.len() as f64 / (pass.wall_ns as f64 / 1e9)).collect();
    let speed = speeds.iter().sum::<f64>() / runs;
    let variance = speeds.iter().map(|each| (each - speed).powi(2)).sum::<f64>() / (runs - 1.0);
    let mut times: Vec<f64> = passes.iter().map(|pass| pass.wall_ns as f64 / 1e6).collect();
    let mean = times.iter().sum::<f64>() / runs;
    let middle = median(&mut times);
    let typical = passes.iter().find(|pass| pass.wall_ns as f64 / 1e6 == middle).unwrap_or(&passes[0]);
    let overlap = matches!(engine.device(), Device::Native).then(|| Tracks::of(typical).overlap());
    let in_flight = overlap.map(|overlap: Overlap| overlap.reading_ms).filter(|&ms| ms > 0.0);
    let rate = in_flight.map(|ms| typical.io.bytes as f64 / (ms / 1e3));
    let plan = *engine.plan();
    let mut expected = None;
    for pass in &passes {
        expected = expected::check(pack, pass, ids, plan.group, engine.streaming())?;
    }
    let alone = (!typical.reads.is_empty())
        .then(|| reads_alone(pack, typical, plan.depth, arguments.runs, interrupt))
        .transpose()?;
    Ok(Some(Warm {
        runs: arguments.runs,
        tokens_per_second: speed,
        tokens_per_second_sd: (arguments.runs > 1).then(|| variance.sqrt()),
        prefill_ms: mean,
        prefill_median_ms: middle,
        io_wait_ms: passes.iter().map(|pass| pass.report.wait_ns as f64 / 1e6).sum::<f64>() / runs,
        overlap,
        reads_alone_ms: alone,
        read_bytes: typical.io.bytes,
        read_bytes_expected: expected,
        read_bytes_of_kernel: fetched.map(|bytes| bytes / u64::from(arguments.runs)),
        reads: typical.io.reads,
        requests: typical.io.requests,
        read_bytes_per_second: rate,
        share_of_best: rate.map(|rate| rate / storage.best_bytes_per_second),
        read_twice_bytes: twice(&typical.reads),
        joules,
    }))
}

/// Bytes of the pack that the pass read more than once: what was read less the union of the extents.
fn twice(reads: &[ReadSpan]) -> u64 {
    let extent = |read: &ReadSpan| read.file..read.file + u64::from(read.pages) * PAGE as u64;
    let all: u64 = reads.iter().map(|read| u64::from(read.pages) * PAGE as u64).sum();
    all - Busy::union(reads.iter().map(extent).collect()).total()
}

/// Bytes that the kernel has fetched from storage for this process, by its own account.
fn fetched() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::address::Segment;

    #[test]
    fn what_is_read_again_is_counted() {
        let read = |file, pages| ReadSpan {
            segment: Segment::Arena,
            page: 0,
            pages,
            file,
            reader: 0,
            begin_ns: 0,
            end_ns: 1,
        };
        assert_eq!(twice(&[read(4096, 1), read(8192, 2)]), 0);
        assert_eq!(twice(&[read(4096, 2), read(8192, 2)]), 4096);
    }
}
