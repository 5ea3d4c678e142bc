//! The profile: what the tuner knows of one device, storage and number of threads, and keeps beside the pack.
//!
//! From each trace it takes L and X of every group of the candidate G, and T^ne of every layer. T^ne does not depend on G,
//! so the median over all traces is taken: a pass that was disturbed spoils only itself. The pass is then computed for
//! every number of banks, once; a budget is answered from that curve in microseconds.

use crate::choose::Choice;
use crate::depth::Rate;
use crate::recurrence::{GroupTime, LayerTimes, Pipeline, pipe};
use crate::trace::Trace;
use serde::{Deserialize, Serialize};

/// Memory besides the arena: M_other(G), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// With the dense weights resident.
    pub resident: u64,
    /// With them streamed; `None` where that is not possible.
    pub streamed: Option<u64>,
}

/// What one request showed of one group size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupProfile {
    /// Experts a group, G.
    pub group: u32,
    /// Memory besides the arena.
    pub rest: Rest,
    /// The layers' times.
    pub layers: Vec<LayerTimes>,
    /// Nanoseconds of the pass before its first layer and after its last group: embedding and head.
    pub outside_ns: u64,
    /// Predicted nanoseconds of the pass for Q₀, Q₀ + 1, … banks with the dense weights resident.
    pub resident: Vec<u64>,
    /// The same with the dense weights streamed.
    pub streamed: Vec<u64>,
}

/// All that a budget is answered from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Tokens of the profiled requests.
    pub tokens: u32,
    /// W_e: bytes of the largest expert record.
    pub record_bytes: u64,
    /// Bytes of the dense weights of each layer with experts, those of dense layers before it included.
    pub dense_bytes: Vec<u64>,
    /// What the storage did.
    pub rates: Vec<Rate>,
    /// Q₀.
    pub depth: u32,
    /// The candidates, by ascending G.
    pub groups: Vec<GroupProfile>,
}

impl GroupProfile {
    /// What `trace`, of a pass with groups of `group`, tells.
    #[must_use]
    pub fn observe(group: u32, rest: Rest, trace: &Trace) -> Self {
        let mut last = trace.layers.first().map_or(trace.end_ns, |layer| layer.begin_ns);
        let lead = last.saturating_sub(trace.begin_ns);
        let mut layers = Vec::with_capacity(trace.layers.len());
        for (index, layer) in (0u32..).zip(&trace.layers) {
            let loads: Vec<_> = trace.loads.iter().filter(|load| load.layer == index).collect();
            let runs: Vec<_> = trace.runs.iter().filter(|run| run.layer == index).collect();
            let time = |load: &&crate::Load| load.end_ns.saturating_sub(load.begin_ns);
            // A group that was not read would have taken as long as the others of its layer.
            let usual = loads.iter().map(time).sum::<u64>() / (loads.len() as u64).max(1);
            let groups = (0..layer.groups).map(|number| {
                let load: u64 = loads.iter().filter(|load| load.group == number).map(time).sum();
                let run = runs.iter().find(|run| run.group == number);
                GroupTime {
                    load_ns: if load == 0 { usual } else { load },
                    run_ns: run.map(|run| run.end_ns.saturating_sub(run.begin_ns)),
                }
            });
            layers.push(LayerTimes {
                routed_ns: layer.routed_ns.saturating_sub(last),
                open_ns: layer.open_ns.saturating_sub(last),
                dense_ns: 0,
                groups: groups.collect(),
            });
            last = runs.last().map_or(layer.open_ns, |run| run.end_ns);
        }
        let outside_ns = lead + trace.end_ns.saturating_sub(last);
        Self { group, rest, layers, outside_ns, resident: Vec::new(), streamed: Vec::new() }
    }

    /// Most groups of a layer, K.
    #[must_use]
    pub fn most_groups(&self) -> u32 {
        self.layers.iter().map(|layer| layer.groups.len() as u32).max().unwrap_or(0)
    }
}

impl Profile {
    /// Pools what does not depend on G, and computes the pass for every number of banks.
    pub fn complete(&mut self) {
        self.pool();
        let slowest = self.dense_rate();
        for profile in &mut self.groups {
            let mut layers = profile.layers.clone();
            let (most, outside) = (profile.most_groups(), profile.outside_ns);
            let curve = |layers: &[LayerTimes]| {
                let time = |banks| pipe(layers, Pipeline { depth: self.depth, banks }) + outside;
                (self.depth.max(1)..=most).map(time).collect()
            };
            profile.resident = curve(&layers);
            profile.streamed = Vec::new();
            if profile.rest.streamed.is_some() {
                for (layer, &bytes) in layers.iter_mut().zip(&self.dense_bytes) {
                    layer.dense_ns = (bytes as f64 / slowest * 1e9) as u64;
                }
                profile.streamed = curve(&layers);
            }
        }
    }

    /// The work of each storage position of each layer, from the candidate of single experts; nothing without it.
    #[must_use]
    pub fn work(&self) -> Vec<Vec<u64>> {
        let single = self.groups.iter().find(|profile| profile.group == 1);
        let layers = single.map_or(&[][..], |profile| &profile.layers);
        let layer = |layer: &LayerTimes| layer.groups.iter().map(|group| group.run_ns.unwrap_or(0)).collect();
        layers.iter().map(layer).collect()
    }

    /// What storing the experts by falling work would gain under `choice`, as a share of the pass: both orders are
    /// computed from the times of single experts. `None` where those are not known.
    #[must_use]
    pub fn gain_of_order(&self, choice: &Choice) -> Option<f64> {
        let single = self.groups.iter().find(|profile| profile.group == 1)?;
        let grouped = self.groups.iter().find(|profile| profile.group == choice.group)?;
        let time = |sorted: bool| {
            let layers = single.layers.iter().zip(&grouped.layers).map(|(single, grouped)| {
                let mut experts = single.groups.clone();
                if sorted {
                    experts.sort_by_key(|expert| std::cmp::Reverse(expert.run_ns));
                }
                let load_ns = median(grouped.groups.iter().map(|group| group.load_ns).collect());
                let group = |experts: &[GroupTime]| {
                    let run = experts.iter().filter_map(|expert| expert.run_ns).reduce(|sum, run| sum + run);
                    GroupTime { load_ns, run_ns: run }
                };
                let groups = experts.chunks(choice.group.max(1) as usize).map(group).collect();
                LayerTimes { groups, ..grouped.clone() }
            });
            let layers: Vec<_> = layers.collect();
            pipe(&layers, Pipeline { depth: choice.depth, banks: choice.banks }) + grouped.outside_ns
        };
        let (before, after) = (time(false), time(true));
        Some(before.saturating_sub(after) as f64 / before.max(1) as f64)
    }

    /// Bytes a second that one of Q₀ readers gets: a layer's dense weights are one read among others.
    fn dense_rate(&self) -> f64 {
        let at_depth = self.rates.iter().filter(|rate| rate.depth == self.depth);
        let best = at_depth.map(|rate| rate.bytes_per_second).fold(0.0, f64::max);
        (best / f64::from(self.depth.max(1))).max(1.0)
    }

    fn pool(&mut self) {
        let layers = self.groups.iter().map(|profile| profile.layers.len()).min().unwrap_or(0);
        for index in 0..layers {
            let of = |time: fn(&LayerTimes) -> u64| {
                median(self.groups.iter().map(|profile| time(&profile.layers[index])).collect())
            };
            let (routed, open) = (of(|layer| layer.routed_ns), of(|layer| layer.open_ns));
            for profile in &mut self.groups {
                profile.layers[index].routed_ns = routed;
                profile.layers[index].open_ns = open;
            }
        }
        let outside = median(self.groups.iter().map(|profile| profile.outside_ns).collect());
        self.groups.iter_mut().for_each(|profile| profile.outside_ns = outside);
    }
}

/// The lower median; 0 of nothing.
fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LayerTrace, Load, Run};

    #[test]
    fn a_trace_becomes_the_times_of_its_layers() {
        let load = |group, begin_ns, end_ns| Load { layer: 0, group, bytes: 1, begin_ns, end_ns };
        let trace = Trace {
            begin_ns: 100,
            end_ns: 1000,
            layers: vec![
                LayerTrace { begin_ns: 110, routed_ns: 150, open_ns: 160, groups: 3 },
                LayerTrace { begin_ns: 510, routed_ns: 550, open_ns: 570, groups: 1 },
            ],
            loads: vec![load(0, 110, 140), load(2, 140, 150), Load { layer: 1, ..load(0, 500, 560) }],
            runs: vec![
                Run { layer: 0, group: 0, begin_ns: 160, end_ns: 300 },
                Run { layer: 0, group: 2, begin_ns: 300, end_ns: 500 },
                Run { layer: 1, group: 0, begin_ns: 570, end_ns: 900 },
            ],
        };
        let profile = GroupProfile::observe(4, Rest::default(), &trace);
        let time = |load_ns, run_ns| GroupTime { load_ns, run_ns };
        // Group 1 was not read: it would have taken the mean of 30 and 10.
        let groups = vec![time(30, Some(140)), time(20, None), time(10, Some(200))];
        assert_eq!(profile.layers[0], LayerTimes { routed_ns: 40, open_ns: 50, dense_ns: 0, groups });
        // The 10 between the layers belong to the second one.
        let groups = vec![time(60, Some(330))];
        assert_eq!(profile.layers[1], LayerTimes { routed_ns: 50, open_ns: 70, dense_ns: 0, groups });
        assert_eq!(profile.outside_ns, 10 + 100);
        assert_eq!(profile.most_groups(), 3);
    }

    #[test]
    fn mixers_are_pooled_by_the_median() {
        let profile = |group, open_ns| GroupProfile {
            group,
            rest: Rest::default(),
            layers: vec![LayerTimes { routed_ns: open_ns, open_ns, dense_ns: 0, groups: vec![] }],
            outside_ns: open_ns,
            resident: vec![],
            streamed: vec![],
        };
        let groups = vec![profile(1, 50), profile(2, 9000), profile(4, 40)];
        let mut all = Profile { depth: 1, groups, ..Profile::default() };
        all.complete();
        assert!(all.groups.iter().all(|profile| profile.layers[0].open_ns == 50 && profile.outside_ns == 50));
    }
}
