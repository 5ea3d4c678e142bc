//! `tune --check`: the chosen settings against a sweep that does without the tuner, on this machine.
//!
//! The sweep runs the profiled request once for many (G, B) that the budget holds, whatever was predicted for them: B in
//! doublings from Q₀ to the most, with the dense weights where they fit best, and the most banks with them where they fit
//! otherwise. Its fastest point other than the choice is the rival. One run of a point proves little on a machine that
//! does other things, and the fastest of many is fast by luck as well; so choice and rival are then run in pairs, one right
//! after the other and the first of them by turns, and the median of the pairs' ratios is told. What a sweep of all points
//! would have taken is their number times the mean of those measured.

use crate::console::Console;
use crate::interrupt::Interrupt;
use estream::size::human;
use estream::{Engine, NoRows, Options, Request, Result};
use estream_tune::{Choice, Profile};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Pairs of passes.
const PAIRS: usize = 7;

/// What `tune --check` found.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Settings that the budget holds.
    feasible: usize,
    /// Those of them that were run.
    points: Vec<Point>,
    /// What these runs took, opening and closing included.
    sweep_ms: f64,
    /// What a sweep of all feasible settings would take at this pace.
    whole_sweep_ms: f64,
    /// That, in times of the profile; null where an earlier profile served.
    whole_sweep_over_profile: Option<f64>,
    /// The sweep's best but for the choice; null where the budget holds nothing else.
    rival: Option<Point>,
    /// Time of the choice over that of the rival, pair by pair.
    ratios: Vec<f64>,
    /// By how much the choice is slower in the median pair; 0 where it is not.
    regret: f64,
}

/// A setting and its time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    group: u32,
    banks: u32,
    streamed: bool,
    predicted_ms: f64,
    measured_ms: f64,
}

/// The machinery of a check.
pub struct Checker<'a> {
    /// The pack.
    pub pack: &'a Path,
    /// How it is run, apart from the settings.
    pub options: &'a Options,
    /// What the tuner knows.
    pub profile: &'a Profile,
    /// How long it took to know, where it was measured now.
    pub profile_ms: Option<f64>,
    /// Signals.
    pub interrupt: &'a Interrupt,
}

impl Checker<'_> {
    /// Measures `choice` against the sweep of its budget.
    pub fn check(&self, choice: &Choice, console: &Console) -> Result<Check> {
        let all: Vec<_> = self.profile.choices(choice.budget_bytes).collect();
        let sample = sample(&all, choice);
        let bar = console.steps_bar("checking");
        let steps = (sample.len() + PAIRS) as u64;
        let began = Instant::now();
        let mut points = Vec::new();
        for (done, point) in (1..).zip(&sample) {
            let mut engine = self.open(point)?;
            points.push((self.run(&mut engine)?, *point));
            engine.close()?;
            bar.show(done, steps);
        }
        let sweep_ms = began.elapsed().as_secs_f64() * 1e3;
        let whole_sweep_ms = sweep_ms / points.len().max(1) as f64 * all.len() as f64;
        let others = points.iter().filter(|(_, point)| !same(point, choice));
        let rival = others.min_by(|a, b| a.0.total_cmp(&b.0)).copied();
        let mut ratios = Vec::new();
        if let Some((_, rival)) = &rival {
            let mut engines = [self.open(choice)?, self.open(rival)?];
            for pair in 0..PAIRS {
                let mut times = [0.0; 2];
                for turn in 0..2 {
                    let which = (pair + turn) % 2;
                    times[which] = self.run(&mut engines[which])?;
                }
                ratios.push(times[0] / times[1]);
                bar.show((sample.len() + pair + 1) as u64, steps);
            }
            engines.into_iter().try_for_each(Engine::close)?;
        }
        Ok(Check {
            feasible: all.len(),
            sweep_ms,
            whole_sweep_ms,
            whole_sweep_over_profile: self.profile_ms.map(|profile| whole_sweep_ms / profile),
            points: points.iter().map(Point::of).collect(),
            rival: rival.as_ref().map(Point::of),
            regret: median(&ratios).map_or(0.0, |ratio| (ratio - 1.0).max(0.0)),
            ratios,
        })
    }

    fn open(&self, choice: &Choice) -> Result<Engine> {
        let options = self.options.clone().max_tokens(self.profile.tokens).max_requests(1).max_outputs(1);
        Engine::open(self.pack, options.taking(choice))
    }

    /// Milliseconds of a pass over as many tokens as were profiled.
    fn run(&self, engine: &mut Engine) -> Result<f64> {
        self.interrupt.check()?;
        self.interrupt.gives_up(engine.canceller());
        let vocab = engine.model().vocab;
        let ids: Vec<u32> = (0..self.profile.tokens).map(|position| (position * 7919 + 13) % vocab).collect();
        Ok(engine.prefill_into(&[Request::next_token(ids)], &mut NoRows)?.wall_ns as f64 / 1e6)
    }
}

/// The points of the sweep, the choice among them.
fn sample(all: &[Choice], choice: &Choice) -> Vec<Choice> {
    let wanted = |point: &&Choice| {
        let fits_resident = all.iter().any(|other| other.group == point.group && !other.streamed);
        let main = point.streamed != fits_resident;
        let doubling = point.banks.is_multiple_of(point.depth.max(1))
            && (point.banks / point.depth.max(1)).is_power_of_two();
        same(point, choice) || point.banks == point.most_banks || main && doubling
    };
    all.iter().filter(wanted).copied().collect()
}

fn same(a: &Choice, b: &Choice) -> bool {
    (a.group, a.banks, a.streamed) == (b.group, b.banks, b.streamed)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl Point {
    fn of((measured_ms, choice): &(f64, Choice)) -> Self {
        Self {
            group: choice.group,
            banks: choice.banks,
            streamed: choice.streamed,
            predicted_ms: choice.predicted_ns as f64 / 1e6,
            measured_ms: *measured_ms,
        }
    }
}

impl Check {
    /// The account for people.
    #[must_use]
    pub fn summary(&self, choice: &Choice) -> String {
        let mut text = format!(
            "\nchecked for a budget of {}: {} of {} settings in {:.1} s, all of them would take {:.0} s",
            human(choice.budget_bytes),
            self.points.len(),
            self.feasible,
            self.sweep_ms / 1e3,
            self.whole_sweep_ms / 1e3
        );
        if let Some(times) = self.whole_sweep_over_profile {
            text += &format!(", {times:.1} × the profile");
        }
        text += "\n   G    B  dense      measured    predicted\n";
        for point in &self.points {
            text += &format!(
                "{:>4} {:>4}  {:8} {:>8.1} ms {:>8.1} ms\n",
                point.group,
                point.banks,
                if point.streamed { "stream" } else { "resident" },
                point.measured_ms,
                point.predicted_ms
            );
        }
        if let (Some(rival), Some(ratio)) = (&self.rival, median(&self.ratios)) {
            text += &format!(
                "against G {} B {}, the fastest of the others: {ratio:.4} × its time in the median of {} pairs, regret {:.2} %\n",
                rival.group,
                rival.banks,
                self.ratios.len(),
                100.0 * self.regret
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_has_doublings_the_most_banks_and_the_choice() {
        let point = |group, banks, most_banks, streamed| Choice {
            budget_bytes: 0,
            group,
            depth: 2,
            banks,
            most_banks,
            streamed,
            gap_bytes: None,
            merge_bytes: None,
            memory_bytes: 0,
            arena_bytes: 0,
            predicted_ns: 0,
        };
        // Groups of 1 fit beside resident weights with up to 11 banks, groups of 4 only beside streamed ones.
        let mut all: Vec<_> = (2..=11).map(|banks| point(1, banks, 11, false)).collect();
        all.extend((2..=13).map(|banks| point(1, banks, 13, true)));
        all.extend((2..=5).map(|banks| point(4, banks, 5, true)));
        let sampled: Vec<_> = sample(&all, &point(1, 7, 11, false))
            .iter()
            .map(|point| (point.group, point.banks, point.streamed))
            .collect();
        let resident = [2, 4, 7, 8, 11].map(|banks| (1, banks, false));
        let streamed = [(1, 13, true), (4, 2, true), (4, 4, true), (4, 5, true)];
        assert_eq!(sampled, [&resident[..], &streamed[..]].concat());
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    }
}
