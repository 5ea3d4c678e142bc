//! What was observed of one pass: when each layer began and its routes were known, when each group was loaded and run.
//!
//! Times are nanoseconds of one clock. Layers are those with experts, counted in order; whatever runs between two of them
//! (a dense layer, the embedding before the first) belongs to the later one. A real pass and one in simulated time are
//! written down alike, so that the tuner cannot tell them apart.

use serde::{Deserialize, Serialize};

/// The observation of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// When the pass began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Layers with experts, in order.
    pub layers: Vec<LayerTrace>,
    /// Loads of groups, in the order in which they were taken by a reader.
    pub loads: Vec<Load>,
    /// Groups that were run, in order.
    pub runs: Vec<Run>,
}

/// A layer with experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTrace {
    /// When its mixer began.
    pub begin_ns: u64,
    /// When its routes were known.
    pub routed_ns: u64,
    /// When its experts could begin: after what all tokens pass besides.
    pub open_ns: u64,
    /// Its groups.
    pub groups: u32,
}

/// A load of (a part of) a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The layer.
    pub layer: u32,
    /// The group of the layer.
    pub group: u32,
    /// Bytes read.
    pub bytes: u64,
    /// When a reader took it.
    pub begin_ns: u64,
    /// When it was in.
    pub end_ns: u64,
}

/// A group at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The layer.
    pub layer: u32,
    /// The group of the layer.
    pub group: u32,
    /// When its experts began.
    pub begin_ns: u64,
    /// When it was released.
    pub end_ns: u64,
}

impl Trace {
    /// Nanoseconds of the whole pass.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Bytes of groups that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.loads.iter().map(|load| load.bytes).sum()
    }

    /// Nanoseconds with at least one load in flight: T_io.
    #[must_use]
    pub fn reading_ns(&self) -> u64 {
        union(self.loads.iter().map(|load| (load.begin_ns, load.end_ns)))
    }

    /// Nanoseconds with something being computed, as far as the trace tells: groups, and everything that is neither a
    /// group nor a wait for one. T_exec.
    #[must_use]
    pub fn computing_ns(&self) -> u64 {
        let between = self.layers.iter().enumerate().map(|(index, layer)| {
            let from = if index == 0 { self.begin_ns } else { layer.begin_ns };
            (from, layer.open_ns)
        });
        let last = self.runs.last().map_or(self.end_ns, |run| run.end_ns);
        let runs = self.runs.iter().map(|run| (run.begin_ns, run.end_ns));
        union(runs.chain(between).chain([(last, self.end_ns)]))
    }

    /// 1 − max(T_io, T_exec) / T_total.
    #[must_use]
    pub fn bubble_rate(&self) -> f64 {
        let longer = self.reading_ns().max(self.computing_ns());
        1.0 - longer as f64 / self.total_ns().max(1) as f64
    }
}

/// The length of a union of intervals.
fn union(spans: impl Iterator<Item = (u64, u64)>) -> u64 {
    let mut spans: Vec<_> = spans.filter(|(begin, end)| begin < end).collect();
    spans.sort_unstable();
    let (mut sum, mut covered) = (0, 0);
    for (begin, end) in spans {
        let begin = begin.max(covered);
        if end > begin {
            sum += end - begin;
            covered = end;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_count_what_overlaps_once() {
        assert_eq!(union([(0, 10), (5, 20), (30, 30), (40, 41)].into_iter()), 21);
        assert_eq!(union(std::iter::empty()), 0);
        assert_eq!(union([(5, 6), (0, 100), (7, 50)].into_iter()), 100);
    }

    #[test]
    fn a_pass_without_waits_has_no_bubble() {
        let layer = LayerTrace { begin_ns: 10, routed_ns: 20, open_ns: 25, groups: 1 };
        let load = Load { layer: 0, group: 0, bytes: 7, begin_ns: 11, end_ns: 24 };
        let run = |end_ns| Run { layer: 0, group: 0, begin_ns: 25, end_ns };
        let trace =
            Trace { begin_ns: 5, end_ns: 65, layers: vec![layer], loads: vec![load], runs: vec![run(60)] };
        assert_eq!((trace.total_ns(), trace.reading_ns(), trace.computing_ns()), (60, 13, 60));
        assert!(trace.bubble_rate().abs() < 1e-12);
        // The experts wait for 15 ns, which is a quarter of the pass.
        let late = Run { begin_ns: 40, ..run(60) };
        let trace = Trace { runs: vec![late], ..trace };
        assert!((trace.bubble_rate() - 0.25).abs() < 1e-12);
    }
}
