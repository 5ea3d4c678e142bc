//! `estream bench`: how fast a pack runs here, warm and cold, and what bounds it.
//!
//! A warm row is one open engine that runs the same prompt again and again. A cold row is the median of fresh processes,
//! each started after the pack (and where this user may, everything else) was dropped from the page cache; its first
//! token is timed from before the process exists. What was not measured is null, never zero.

mod ablations;
mod cold;
mod energy;
mod expected;
mod kernels;
mod limits;
mod storage;
mod table;
mod warm;

use crate::cli::{Bench, BenchFormat};
use crate::commands::run::options;
use crate::console::Console;
use crate::interrupt::{Interrupt, interruptible};
use crate::tracks::Overlap;
use estream::memory::Memory;
use estream::{Error, Exit, Model, Result, Verify};
use estream_host::Pack;
use limits::Resident;
use serde::Serialize;
use storage::Storage;
use warm::Warm;

/// What `bench --json` prints.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pack: String,
    device: &'static str,
    kernels: &'static str,
    threads: u32,
    group: u32,
    banks: u32,
    depth: u32,
    schedule: &'static str,
    read_mode: &'static str,
    pages: &'static str,
    page_cache: Option<&'static str>,
    memory: Memory,
    storage: Storage,
    rows: Vec<Row>,
    /// Where the reading time falls below the computing time, between two rows.
    io_bound_below_tokens: Option<f64>,
}

/// One prompt length.
#[derive(Debug, Default, Serialize)]
pub struct Row {
    /// `pp` and the tokens, as llama-bench writes it.
    pub test: String,
    /// Tokens of the prompt.
    pub tokens: u32,
    /// One engine, again and again.
    pub warm: Option<Warm>,
    /// The same with all experts in memory.
    pub resident: Option<Resident>,
    /// The median warm pass over the longer of its reads alone and the resident pass.
    pub total_over_longer: Option<f64>,
    /// Fresh processes.
    pub cold: Option<Cold>,
}

impl Row {
    /// How reading and computing covered each other.
    fn overlap(&self) -> Option<Overlap> {
        self.warm.as_ref()?.overlap
    }

    fn total_over_longer(&self) -> Option<f64> {
        let warm = self.warm.as_ref()?;
        Some(warm.prefill_median_ms / warm.reads_alone_ms?.max(self.resident?.prefill_ms))
    }
}

/// Fresh processes with nothing in the page cache; medians.
#[derive(Debug, Serialize)]
pub struct Cold {
    /// Processes.
    pub runs: u32,
    /// From before the process was made to its end, the answer printed.
    pub first_token_ms: f64,
    /// Until the first pass, verification apart.
    pub open_ms: f64,
    /// The pass.
    pub prefill_ms: f64,
    /// What the firmware waited for reads.
    pub io_wait_ms: f64,
    /// The most that was ever resident (VmHWM).
    pub peak_resident_bytes: Option<u64>,
    /// By how much the memory available to the machine fell.
    pub peak_available_drop_bytes: Option<u64>,
    /// The larger of the two.
    pub peak_bytes: Option<u64>,
}

/// Runs the command.
pub fn run(arguments: &Bench, console: &Console) -> Result<()> {
    if arguments.roofline {
        return kernels::run(arguments, console);
    }
    if arguments.ablations {
        return ablations::run(arguments, console);
    }
    let report = interruptible(|interrupt| measure(arguments, console, interrupt))?;
    match arguments.output {
        BenchFormat::Csv if !console.is_json() => console.say(&table::csv(&report)),
        _ => console.answer(&report, || table::markdown(&report)),
    }
}

fn measure(arguments: &Bench, console: &Console, interrupt: &Interrupt) -> Result<BenchReport> {
    let model = Model::read(&arguments.pack)?;
    let longest = longest(arguments, &model)?;
    if arguments.energy && !energy::available() {
        let message = "this machine shows no energy counters (powercap, RAPL) to this user";
        return Err(Error::new("no-energy", Exit::Device, message));
    }
    let options = options(&arguments.machine)?.max_requests(1).max_outputs(1).max_tokens(longest);
    let prompts: Vec<_> = arguments.prompts.iter().map(|&tokens| prompt(tokens, model.vocab)).collect();
    let bar = console.steps_bar("measuring");
    let steps = 2 * prompts.len() as u64 + 2;
    let mut done = 0;
    let mut step = || {
        done += 1;
        bar.show(done, steps);
    };
    let mut rows = Vec::new();
    // Cold first: a warm engine's memory would stand beside the fresh process's.
    let mut cache = None;
    for ids in &prompts {
        let cold = match arguments.cold_runs {
            0 => None,
            runs => {
                let (cold, how) = cold::measure(arguments, ids, runs, interrupt)?;
                cache = Some(how.name());
                Some(cold)
            }
        };
        rows.push(Row { test: format!("pp{}", ids.len()), tokens: ids.len() as u32, cold, ..Row::default() });
        step();
    }
    let mut engine = estream::Engine::open(&arguments.pack, options.clone())?;
    interrupt.gives_up(engine.canceller());
    // A second look at the pack: the engine has taken its own with it.
    let pack = Pack::open(&arguments.pack, Verify::Never, &|_, _| ())?;
    let storage = storage::measure(&pack, interrupt)?;
    step();
    for (row, ids) in rows.iter_mut().zip(&prompts) {
        row.warm = warm::measure(&mut engine, &pack, ids, &storage, arguments, interrupt)?;
        step();
    }
    let plan = *engine.plan();
    let mut report = BenchReport {
        pack: arguments.pack.display().to_string(),
        device: engine.device().name(),
        kernels: plan.kernels.name(),
        threads: plan.threads,
        group: plan.group,
        banks: plan.banks,
        depth: plan.depth,
        schedule: arguments.machine.schedule.schedule().name(),
        read_mode: if engine.io_mode() == estream::IoMode::Direct { "direct" } else { "buffered" },
        pages: engine.pages().0.name(),
        page_cache: cache,
        memory: *engine.memory(),
        storage,
        io_bound_below_tokens: crossing(&rows),
        rows,
    };
    engine.close()?;
    if arguments.resident {
        let (path, runs) = (&arguments.pack, arguments.runs);
        let measured = limits::resident(path, &pack, options, plan.group, &prompts, runs, interrupt)?;
        for (row, resident) in report.rows.iter_mut().zip(measured) {
            row.resident = Some(resident);
            row.total_over_longer = row.total_over_longer();
        }
    }
    Ok(report)
}

/// The longest prompt, which the model must have been made for.
fn longest(arguments: &Bench, model: &Model) -> Result<u32> {
    let longest = arguments.prompts.iter().copied().max().unwrap_or(0);
    if longest > model.context {
        Err(estream::too_many(longest as usize, model.context))
    } else {
        Ok(longest)
    }
}

/// `count` ids without a pattern, the same in every run and on every machine (a Weyl sequence).
fn prompt(count: u32, vocab: u32) -> Vec<u32> {
    (1..=count).map(|i| ((u64::from(i.wrapping_mul(0x9e37_79b9)) * u64::from(vocab)) >> 32) as u32).collect()
}

/// Where reading stops being the longer of the two, on a line through the logarithms of two neighbouring rows.
fn crossing(rows: &[Row]) -> Option<f64> {
    let mut points: Vec<(f64, f64)> = rows
        .iter()
        .filter_map(|row| {
            let overlap = row.overlap()?;
            let sound = overlap.reading_ms > 0.0 && overlap.computing_ms > 0.0;
            sound.then(|| (f64::from(row.tokens).ln(), (overlap.reading_ms / overlap.computing_ms).ln()))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.windows(2).find_map(|pair| {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        (y0 > 0.0 && y1 <= 0.0).then(|| (x0 + (x1 - x0) * y0 / (y0 - y1)).exp())
    })
}

/// The median of the runs; the lower one of two in the middle, so that it is one of them.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tokens: u32, reading_ms: f64, computing_ms: f64) -> Row {
        let overlap = Overlap { total_ms: 1.0, reading_ms, computing_ms, bubble_rate: 0.0 };
        let warm = Warm {
            runs: 1,
            tokens_per_second: 1.0,
            tokens_per_second_sd: None,
            prefill_ms: 1.0,
            prefill_median_ms: 600.0,
            io_wait_ms: 0.0,
            overlap: Some(overlap),
            reads_alone_ms: Some(reading_ms),
            read_bytes: 0,
            read_bytes_expected: None,
            read_bytes_of_kernel: None,
            reads: 0,
            requests: 0,
            read_bytes_per_second: None,
            share_of_best: None,
            read_twice_bytes: 0,
            joules: None,
        };
        let resident = Some(Resident { prefill_ms: computing_ms, macs_per_second: 1.0 });
        Row { test: format!("pp{tokens}"), tokens, warm: Some(warm), resident, ..Row::default() }
    }

    #[test]
    fn a_pass_is_held_against_the_longer_of_its_two_sides() {
        assert_eq!(row(1, 500.0, 400.0).total_over_longer(), Some(1.2));
        assert_eq!(row(1, 300.0, 480.0).total_over_longer(), Some(1.25));
        let row = Row { resident: None, ..row(1, 300.0, 480.0) };
        assert_eq!(row.total_over_longer(), None, "what computing alone takes was not measured");
    }

    #[test]
    fn the_crossing_lies_where_both_take_the_same_time() {
        // Reading takes 100 ms whatever the length, computing 1 ms a token: they meet at 100 tokens.
        let rows = [row(400, 100.0, 400.0), row(25, 100.0, 25.0)];
        assert!((crossing(&rows).expect("a crossing") - 100.0).abs() < 1e-9);
        assert_eq!(crossing(&rows[..1]), None);
        assert_eq!(crossing(&[row(200, 1.0, 2.0), row(400, 1.0, 4.0)]), None);
    }

    #[test]
    fn prompts_are_ids_of_the_vocabulary_and_spread_over_it() {
        let ids = prompt(1000, 50);
        assert!(ids.iter().all(|&id| id < 50));
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 50);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0]), 1.0);
    }
}
