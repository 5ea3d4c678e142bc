//! `bench --ablations`: what each part of the streaming buys, as modes of the same engine.
//!
//! Every mode runs every prompt in fresh processes, so that its memory is its own. Those that do not cut the arena
//! themselves share one cut, said aloud: settings that the tuner found for one schedule must not be compared with the
//! defaults of another. The candidates of all modes are held against each other: an ablation changes no result (law 1).

use super::cold::{self, Outcome};
use super::{longest, median, prompt};
use crate::cli::{Bench, BenchFormat, DenseName, Machine, ScheduleName, TopologyName};
use crate::commands::run::options;
use crate::console::Console;
use crate::interrupt::{Interrupt, interruptible};
use estream::size::human;
use estream::{DenseWeights, Engine, Error, Exit, Model, Result, WHOLE_GROUPS};
use estream_idl::address::PAGE;
use serde::Serialize;

/// Modes by name, the least overlapped first.
const MODES: [(&str, ScheduleName, TopologyName); 9] = [
    ("on-demand", ScheduleName::OnDemand, TopologyName::Fixed),
    ("after-routing", ScheduleName::AfterRouting, TopologyName::Fixed),
    ("early", ScheduleName::Early, TopologyName::Fixed),
    ("cross-layer", ScheduleName::CrossLayer, TopologyName::Fixed),
    ("per-expert", ScheduleName::CrossLayer, TopologyName::PerExpert),
    ("naive", ScheduleName::Naive, TopologyName::Fixed),
    ("layer-2", ScheduleName::Layer2, TopologyName::Fixed),
    ("layer-all", ScheduleName::LayerAll, TopologyName::Fixed),
    ("resident", ScheduleName::Resident, TopologyName::Fixed),
];

/// What `bench --ablations --json` prints.
#[derive(Debug, Serialize)]
struct AblationReport {
    pack: String,
    kernels: &'static str,
    threads: u32,
    /// Of the modes that do not cut the arena themselves, as are the next two.
    group: u32,
    banks: u32,
    depth: u32,
    /// Processes a row; times are medians.
    runs: u32,
    rows: Vec<AblationRow>,
}

/// A mode at a prompt length.
#[derive(Debug, Serialize)]
struct AblationRow {
    mode: &'static str,
    tokens: u32,
    open_ms: f64,
    prefill_ms: f64,
    /// What the firmware waited for reads in the pass.
    io_wait_ms: f64,
    /// The pass over that of `cross-layer`.
    over_cross_layer: Option<f64>,
    peak_bytes: Option<u64>,
    /// Bytes read in the pass.
    read_bytes: u64,
    requests: u64,
}

/// Runs the command.
pub fn run(arguments: &Bench, console: &Console) -> Result<()> {
    let report = interruptible(|interrupt| measure(arguments, console, interrupt))?;
    match arguments.output {
        BenchFormat::Csv if !console.is_json() => console.say(&report.csv()),
        _ => console.answer(&report, || report.markdown()),
    }
}

fn measure(arguments: &Bench, console: &Console, interrupt: &Interrupt) -> Result<AblationReport> {
    let model = Model::read(&arguments.pack)?;
    let longest = longest(arguments, &model)?;
    let options = options(&arguments.machine)?.max_requests(1).max_outputs(1).max_tokens(longest);
    let engine = Engine::open(&arguments.pack, options)?;
    let (plan, streaming) = (*engine.plan(), engine.streaming());
    engine.close()?;
    let shared = Machine {
        arena: None,
        group: Some(plan.group),
        banks: Some(estream::Banks::Count(plan.banks)),
        depth: Some(plan.depth),
        gap: (streaming.gap != WHOLE_GROUPS).then(|| u64::from(streaming.gap) * PAGE as u64),
        dense: match streaming.dense {
            DenseWeights::Resident => DenseName::Resident,
            DenseWeights::Streamed => DenseName::Stream,
        },
        ..arguments.machine.clone()
    };
    let runs = arguments.cold_runs.max(1);
    let bar = console.steps_bar("comparing");
    let total = (arguments.prompts.len() * MODES.len()) as u64 * u64::from(runs);
    let mut done = 0;
    let mut rows = Vec::new();
    for &tokens in &arguments.prompts {
        let ids = cold::ids_file(&prompt(tokens, model.vocab))?;
        let mut answer = None;
        let first = rows.len();
        for (mode, schedule, topology) in MODES {
            let machine = of_mode(&shared, schedule, topology);
            let mut outcomes = Vec::new();
            for _ in 0..runs {
                interrupt.check()?;
                cold::empty(&arguments.pack)?;
                let outcome = cold::one(&arguments.pack, &machine, ids.path(), interrupt)?;
                let expected = answer.get_or_insert_with(|| outcome.top.clone());
                if *expected != outcome.top {
                    let what =
                        format!("{mode} gives other candidates for {tokens} tokens than {}", MODES[0].0);
                    return Err(Error::new("results-differ", Exit::Runtime, what));
                }
                outcomes.push(outcome);
                done += 1;
                bar.show(done, total);
            }
            rows.push(AblationRow::new(mode, tokens, &outcomes));
        }
        compare(&mut rows[first..]);
    }
    Ok(AblationReport {
        pack: arguments.pack.display().to_string(),
        kernels: plan.kernels.name(),
        threads: plan.threads,
        group: plan.group,
        banks: plan.banks,
        depth: plan.depth,
        runs,
        rows,
    })
}

/// The shared settings for a mode, without those that it chooses itself.
fn of_mode(shared: &Machine, schedule: ScheduleName, topology: TopologyName) -> Machine {
    let mut machine = Machine { schedule, topology, ..shared.clone() };
    if schedule.cut().is_some() {
        (machine.group, machine.banks, machine.depth) = (None, None, None);
    }
    machine
}

/// Holds the rows of a prompt against the one that is everybody's default.
fn compare(rows: &mut [AblationRow]) {
    let default = rows.iter().find(|row| row.mode == "cross-layer").map(|row| row.prefill_ms);
    for row in rows {
        row.over_cross_layer = default.map(|default| row.prefill_ms / default);
    }
}

impl AblationRow {
    fn new(mode: &'static str, tokens: u32, outcomes: &[Outcome]) -> Self {
        let middle = |value: fn(&Outcome) -> f64| median(&mut outcomes.iter().map(value).collect::<Vec<_>>());
        Self {
            mode,
            tokens,
            open_ms: middle(|outcome| outcome.time.open_ms),
            prefill_ms: middle(|outcome| outcome.time.prefill_ms),
            io_wait_ms: middle(|outcome| outcome.time.io_wait_ms),
            over_cross_layer: None,
            peak_bytes: outcomes.iter().filter_map(|outcome| outcome.resident).max(),
            read_bytes: outcomes.iter().map(|outcome| outcome.io.bytes).max().unwrap_or(0),
            requests: outcomes.iter().map(|outcome| outcome.io.requests).max().unwrap_or(0),
        }
    }
}

impl AblationReport {
    fn markdown(&self) -> String {
        let Self { pack, kernels, threads, group, banks, depth, runs, rows } = self;
        let mut text = format!(
            "{pack}: {kernels} kernels, {threads} threads, {banks} banks of {group} experts and {depth} reads in flight \
             where the mode does not choose them, {runs} fresh processes a row\n\n\
             | mode | tokens | open | prefill | of cross-layer | waiting | peak | read | requests |\n\
             |---|---|---|---|---|---|---|---|---|\n"
        );
        for row in rows {
            text += &format!(
                "| {} | {} | {:.0} ms | {:.0} ms | {} | {:.0} ms | {} | {} | {} |\n",
                row.mode,
                row.tokens,
                row.open_ms,
                row.prefill_ms,
                row.over_cross_layer.map_or("–".to_owned(), |share| format!("{share:.2} ×")),
                row.io_wait_ms,
                row.peak_bytes.map_or("–".to_owned(), human),
                human(row.read_bytes),
                row.requests
            );
        }
        text + "\nall modes gave the same candidates\n"
    }

    fn csv(&self) -> String {
        let mut text = String::from(
            "mode,tokens,open_ms,prefill_ms,over_cross_layer,io_wait_ms,peak_bytes,read_bytes,requests\n",
        );
        for row in &self.rows {
            text += &format!(
                "{},{},{:.3},{:.3},{},{:.3},{},{},{}\n",
                row.mode,
                row.tokens,
                row.open_ms,
                row.prefill_ms,
                row.over_cross_layer.map(|share| format!("{share:.4}")).unwrap_or_default(),
                row.io_wait_ms,
                row.peak_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
                row.read_bytes,
                row.requests
            );
        }
        text
    }
}
