//! What bounds a pass: its reads without its computing, and its computing without its reads.
//!
//! T_io alone is the very requests of a pass, in their order and as many in flight, into memory that nobody looks at.
//! T_exec is a pass of an engine that has all experts in memory. A pass that overlaps them well takes little more than the
//! longer of the two. The rate of T_exec stands beside it, in multiply-accumulates of weights a second (those of attention's
//! scores are left out): a slow kernel would flatter any overlap.

use super::median;
use crate::interrupt::Interrupt;
use estream::{Arena, Engine, Error, Exit, NoRows, Options, Pass, Request, Result, Schedule};
use estream_host::{FileRange, Pack, PageKind, time_reads};
use estream_idl::address::PAGE;
use estream_idl::pack::Role;
use estream_idl::recipe::{FeedForward, Recipe};
use serde::Serialize;
use std::path::Path;

/// How often the reads alone are timed, at most.
const REPEATS: u32 = 3;

/// A prompt with all experts in memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Resident {
    /// The median pass.
    pub prefill_ms: f64,
    /// Multiply-accumulates of weights a second in it.
    pub macs_per_second: f64,
}

/// Milliseconds that the requests of `pass` take alone, with `depth` in flight: the median of a few times.
pub fn reads_alone(pack: &Pack, pass: &Pass, depth: u32, runs: u32, interrupt: &Interrupt) -> Result<f64> {
    let requests = requests(pass);
    let time = |_| {
        interrupt.check()?;
        Ok(time_reads(pack, &requests, depth, PageKind::Huge)?.as_secs_f64() * 1e3)
    };
    let mut times = (0..runs.clamp(1, REPEATS)).map(time).collect::<Result<Vec<f64>>>()?;
    Ok(median(&mut times))
}

/// The requests of a pass in the order in which they were made: loads that one reader took at once are one.
fn requests(pass: &Pass) -> Vec<FileRange> {
    let mut reads: Vec<_> = pass.reads.iter().collect();
    reads.sort_by_key(|read| (read.begin_ns, read.reader, read.file));
    let mut requests: Vec<(FileRange, (u64, u32))> = Vec::new();
    for read in reads {
        let (bytes, taken) = (read.pages as usize * PAGE, (read.begin_ns, read.reader));
        match requests.last_mut() {
            Some(((file, length), same)) if *same == taken && *file + *length as u64 == read.file => {
                *length += bytes;
            }
            _ => requests.push(((read.file, bytes), taken)),
        }
    }
    requests.into_iter().map(|(range, _)| range).collect()
}

/// Runs each of `prompts` in an engine with all experts in memory.
pub fn resident(
    path: &Path,
    pack: &Pack,
    options: Options,
    group: u32,
    prompts: &[Vec<u32>],
    runs: u32,
    interrupt: &Interrupt,
) -> Result<Vec<Resident>> {
    let options = options.arena(Arena::Group(group, None)).schedule(Schedule::Resident);
    let mut engine = Engine::open(path, options)?;
    interrupt.gives_up(engine.canceller());
    let mut prompt = |ids: &Vec<u32>| {
        let mut pass = || {
            interrupt.check()?;
            let pass = engine.prefill_into(&[Request::next_token(ids.clone())], &mut NoRows)?;
            Ok(pass.wall_ns as f64 / 1e6)
        };
        pass()?;
        let mut times = (0..runs.max(1)).map(|_| pass()).collect::<Result<Vec<f64>>>()?;
        let prefill_ms = median(&mut times);
        let macs_per_second = macs(pack, ids.len() as u64)? as f64 / (prefill_ms / 1e3);
        Ok(Resident { prefill_ms, macs_per_second })
    };
    let measured = prompts.iter().map(&mut prompt).collect::<Result<Vec<_>>>()?;
    engine.close()?;
    Ok(measured)
}

/// Multiply-accumulates of weights in a pass over `tokens` with one output.
fn macs(pack: &Pack, tokens: u64) -> Result<u64> {
    let recipe = Recipe::decode(pack.recipe()).ok_or_else(|| {
        Error::new("bad-recipe", Exit::Input, "the recipe is damaged or made for another version")
    })?;
    let tables = pack.tables();
    let dense = tables.matrices.iter().map(|matrix| {
        let rows = if matrix.role == Role::Head as u16 { 1 } else { tokens };
        rows * u64::from(matrix.k) * u64::from(matrix.n)
    });
    let experts = tables.layers.iter().map(|layer| {
        let FeedForward::Experts(experts) = recipe.layer(layer.layer as usize).feed_forward else { return 0 };
        let parts = [layer.gate, layer.up, layer.down].map(|part| u64::from(part.k) * u64::from(part.n));
        tokens * u64::from(experts.chosen) * parts.iter().sum::<u64>()
    });
    Ok(dense.sum::<u64>() + experts.sum::<u64>())
}
