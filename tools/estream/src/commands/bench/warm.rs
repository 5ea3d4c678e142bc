//! Warm rows: passes of one open engine.

use super::{Warm, energy::Counter, median};
use crate::cli::Bench;
use crate::interrupt::Interrupt;
use crate::timeline::Busy;
use crate::tracks::{Overlap, Tracks};
use estream::{Device, Engine, Pass, ReadSpan, Request, Result};
use estream_idl::address::PAGE;

/// Runs the prompt once for warmth and then as often as asked.
pub fn measure(
    engine: &mut Engine,
    ids: &[u32],
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
    let passes = (0..arguments.runs).map(|_| pass(engine)).collect::<Result<Vec<Pass>>>()?;
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
    Ok(Some(Warm {
        runs: arguments.runs,
        tokens_per_second: speed,
        tokens_per_second_sd: (arguments.runs > 1).then(|| variance.sqrt()),
        prefill_ms: mean,
        io_wait_ms: passes.iter().map(|pass| pass.report.wait_ns as f64 / 1e6).sum::<f64>() / runs,
        overlap,
        read_bytes: typical.io.bytes,
        reads: typical.io.reads,
        read_bytes_per_second: in_flight.map(|ms| typical.io.bytes as f64 / (ms / 1e3)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::address::Segment;

    #[test]
    fn what_is_read_again_is_counted() {
        let read =
            |file, pages| ReadSpan { segment: Segment::Arena, page: 0, pages, file, begin_ns: 0, end_ns: 1 };
        assert_eq!(twice(&[read(4096, 1), read(8192, 2)]), 0);
        assert_eq!(twice(&[read(4096, 2), read(8192, 2)]), 4096);
    }
}
