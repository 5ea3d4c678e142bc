//! `estream tune`: settings for memory budgets, from a short profile that is kept beside the pack.

mod check;

use crate::cli::Tune;
use crate::commands::distinct::distinct;
use crate::commands::plot::front;
use crate::console::{Console, table};
use crate::interrupt::{Interrupt, interruptible};
use check::{Check, Checker};
use estream::profiler::{Watch, profile, too_small};
use estream::size::human;
use estream::tuned::{self, Tuning};
use estream::{Error, Options, Result, Verify};
use estream_host::Pack;
use estream_tune::{Choice, Profile, Rate, order};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What `tune --json` prints.
#[derive(Serialize)]
struct TuneReport {
    /// Whether the machine was measured in this run; otherwise an earlier profile served.
    profiled: bool,
    /// Requests that were run for it.
    requests: usize,
    /// Tokens of each.
    tokens: u32,
    profile_ms: Option<f64>,
    /// All budgets together, from the profile.
    choose_ms: f64,
    /// Reads in flight, Q₀.
    depth: u32,
    rates: Vec<Rate>,
    /// One a budget; the first is what runs take.
    choices: Vec<Choice>,
    /// Where it is kept.
    kept: String,
    order: Option<Order>,
    /// The first choice against a sweep, where that was asked for.
    check: Option<Check>,
}

#[derive(Serialize)]
struct Order {
    file: String,
    /// The predicted gain for the first budget, as a share of the pass; null where it is below one percent.
    predicted_gain: Option<f64>,
}

/// Runs the command.
pub fn run(arguments: &Tune, console: &Console) -> Result<()> {
    for output in arguments.order.iter().chain(&arguments.plot) {
        distinct(output, [arguments.pack.as_path()])?;
    }
    interruptible(|interrupt| tune(arguments, console, interrupt))
}

fn tune(arguments: &Tune, console: &Console, interrupt: &Interrupt) -> Result<()> {
    let mut options = Options::new().kernels(arguments.kernels.into()).verify(arguments.verify.into());
    if let Some(threads) = arguments.threads {
        options = options.threads(threads);
    }
    let pack = Pack::open(&arguments.pack, Verify::Never, &|_, _| ())?;
    let key = options.key(&pack);
    let largest = arguments.budget.iter().copied().max().unwrap_or(0);
    let kept = tuned::load(&arguments.pack, &key).map(|tuning| tuning.profile);
    let kept =
        kept.filter(|profile| !arguments.again && covers(profile, largest, pack.header().experts_per_layer));
    let began = Instant::now();
    let profiled = kept.is_none();
    let profile = match kept {
        Some(profile) => profile,
        None => {
            let bar = console.bytes_bar("profiling");
            let progress = |done, total| {
                interrupt.unwind();
                bar.show(done, total);
            };
            let running = |engine: &estream::Engine| interrupt.gives_up(engine.canceller());
            profile(&arguments.pack, &options, largest, &Watch { progress: &progress, running: &running })?
        }
    };
    let profile_ms = profiled.then(|| began.elapsed().as_secs_f64() * 1e3);
    interrupt.check()?;
    let began = Instant::now();
    let choices: Vec<_> =
        arguments.budget.iter().map(|&budget| choose(&profile, budget)).collect::<Result<_>>()?;
    let choose_ms = began.elapsed().as_secs_f64() * 1e3;
    let Some(&choice) = choices.first() else { return Ok(()) };
    let order =
        arguments.order.as_ref().map(|file| write_order(file, &pack, &profile, choice)).transpose()?;
    if let Some(file) = &arguments.plot {
        let picture = front(&profile, &choices);
        std::fs::write(file, picture).map_err(|error| Error::unwritable(file, &error))?;
    }
    let checker =
        Checker { pack: &arguments.pack, options: &options, profile: &profile, profile_ms, interrupt };
    let check = arguments.check.then(|| checker.check(&choice, console)).transpose()?;
    let report = TuneReport {
        profiled,
        requests: if profiled { profile.groups.len() } else { 0 },
        tokens: profile.tokens,
        profile_ms,
        choose_ms,
        depth: profile.depth,
        rates: profile.rates.clone(),
        choices,
        kept: tuned::beside(&arguments.pack).display().to_string(),
        order,
        check,
    };
    tuned::store(&arguments.pack, Tuning { key, choice, profile })?;
    console.answer(&report, || report.summary())
}

fn choose(profile: &Profile, budget: u64) -> Result<Choice> {
    profile.choose(budget).map_err(|least| too_small(budget, least.minimum_bytes))
}

/// Whether an earlier profile has every candidate that a budget could hold, of a model with `experts` a layer.
fn covers(profile: &Profile, budget: u64, experts: u32) -> bool {
    let Some(last) = profile.groups.last() else { return false };
    let next = 2 * last.group;
    let rest = last.rest.streamed.unwrap_or(u64::MAX).min(last.rest.resident);
    next > experts || rest + u64::from(next * profile.depth) * profile.record_bytes > budget
}

/// Writes the storage order that the profile of single experts suggests, and predicts what it would gain.
fn write_order(file: &Path, pack: &Pack, profile: &Profile, choice: Choice) -> Result<Order> {
    let tables = pack.tables();
    let stored: Vec<Vec<usize>> = tables
        .layers
        .iter()
        .map(|layer| {
            let mut stored = vec![0; layer.experts as usize];
            for expert in 0..layer.experts {
                let position =
                    tables.permutations.get((layer.permutation + expert) as usize).map(usize::from);
                if let Some(place) = position.and_then(|position| stored.get_mut(position)) {
                    *place = expert as usize;
                }
            }
            stored
        })
        .collect();
    let work = profile.work();
    let lists = order(&work, &stored);
    let text = serde_json::to_string(&lists).map_err(|error| Error::unwritable(file, &error.into()))?;
    std::fs::write(file, text).map_err(|error| Error::unwritable(file, &error))?;
    let gain = profile.gain_of_order(&choice).filter(|&gain| gain >= 0.01);
    Ok(Order { file: file.display().to_string(), predicted_gain: gain })
}

impl TuneReport {
    fn summary(&self) -> String {
        let profile = match self.profile_ms {
            Some(ms) => format!("{} requests of {} tokens, {:.1} s", self.requests, self.tokens, ms / 1e3),
            None => "an earlier one of this pack, device, storage and number of threads".to_owned(),
        };
        let best = self.rates.iter().map(|rate| rate.bytes_per_second).fold(0.0, f64::max);
        let mut lines = vec![
            ("profile", profile),
            (
                "storage",
                format!("{}/s at best, {} reads in flight are enough", human(best as u64), self.depth),
            ),
            ("budgets", format!("answered in {:.3} ms", self.choose_ms)),
            ("kept in", format!("{}; runs take the first budget's settings", self.kept)),
        ];
        if let Some(order) = &self.order {
            let gain =
                order.predicted_gain.map_or("none".to_owned(), |gain| format!("{:.1} %", 100.0 * gain));
            lines.push(("order", format!("{}, predicted gain: {gain}", order.file)));
        }
        let mut text = table(&lines);
        text += "\n      budget      memory       arena    G    B  of    Q  dense     predicted\n";
        for choice in &self.choices {
            text += &format!(
                "{:>12} {:>11} {:>11} {:>4} {:>4} {:>3} {:>4}  {:8} {:>8.1} ms\n",
                human(choice.budget_bytes),
                human(choice.memory_bytes),
                human(choice.arena_bytes),
                choice.group,
                choice.banks,
                choice.most_banks,
                choice.depth,
                if choice.streamed { "stream" } else { "resident" },
                choice.predicted_ns as f64 / 1e6,
            );
        }
        if let (Some(check), Some(choice)) = (&self.check, self.choices.first()) {
            text += &check.summary(choice);
        }
        text
    }
}
