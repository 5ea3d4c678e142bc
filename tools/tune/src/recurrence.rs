//! The recurrence: how long a pass takes with q reads in flight and b banks.
//!
//! Per layer w and groups k = 1…K the design has a_k = max(d_{k−q}, f_{k−b}), d_k = a_k + L_k, s_k = max(d_k, open_w,
//! f_{k−1}), f_k = s_k + X_k, with d and f carried over between layers. It is a max-plus recurrence: every time is a
//! maximum of sums of earlier ones.
//!
//! Two things happen that it does not say, and both are here. A group without routes is read only if its turn comes before
//! the router has spoken; then it holds a bank until its load has ended and the router has spoken, and the read was in
//! vain; otherwise it costs nothing. So "k − b" counts groups that were read, and the bank that comes free first need not
//! be the oldest. And where dense weights are streamed, the next layer's are read before this layer's groups and take a
//! reader. With all groups routed and dense weights resident the result is the design's recurrence exactly.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A group's two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTime {
    /// L: nanoseconds of its load.
    pub load_ns: u64,
    /// X: nanoseconds of its experts; `None` where nothing is routed to it.
    pub run_ns: Option<u64>,
}

/// A layer's times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTimes {
    /// From the layer's beginning to the router's word.
    pub routed_ns: u64,
    /// From the layer's beginning until its experts may run: T^ne.
    pub open_ns: u64,
    /// The load of its dense weights, where they are streamed; else 0.
    pub dense_ns: u64,
    /// Its groups, in storage order.
    pub groups: Vec<GroupTime>,
}

/// What is compared: how deep, how many banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Reads in flight, at least 1.
    pub depth: u32,
    /// Banks, at least 1.
    pub banks: u32,
}

/// Nanoseconds of the layers.
#[must_use]
pub fn pipe(layers: &[LayerTimes], pipeline: Pipeline) -> u64 {
    let Pipeline { depth, banks } = pipeline;
    // When each reader, and each bank, comes free; the earliest on top.
    let mut readers: BinaryHeap<_> = (0..depth.clamp(1, banks.max(1))).map(|_| Reverse(0)).collect();
    let mut free: BinaryHeap<_> = (0..banks.max(1)).map(|_| Reverse(0)).collect();
    // The last group's end, and the last issue: the fill cursor only moves forward.
    let (mut finished, mut issued) = (0, 0);
    let mut read = |issued: u64, load: u64| {
        let Reverse(reader) = readers.pop().unwrap_or_default();
        let end = reader.max(issued) + load;
        readers.push(Reverse(end));
        end
    };
    // The window of streamed dense weights: this layer's are on their way since the layer before began.
    let mut dense = layers.first().map_or(0, |layer| read(0, layer.dense_ns));
    for (index, layer) in layers.iter().enumerate() {
        let begin = finished.max(dense);
        dense = layers.get(index + 1).map_or(0, |next| match next.dense_ns {
            0 => 0,
            load => read(begin, load),
        });
        let (routed, open) = (begin + layer.routed_ns, begin + layer.open_ns);
        finished = open;
        for group in &layer.groups {
            let Reverse(bank) = *free.peek().unwrap_or(&Reverse(0));
            let issue = issued.max(bank);
            let end = match group.run_ns {
                None if issue >= routed => continue,
                None => read(issue, group.load_ns).max(routed),
                Some(run) => {
                    finished = finished.max(read(issue, group.load_ns)) + run;
                    finished
                }
            };
            issued = issue;
            free.pop();
            free.push(Reverse(end));
        }
    }
    finished
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The design's recurrence, literally: all groups routed, indices below 1 are time 0.
    fn literal(layers: &[LayerTimes], q: usize, b: usize) -> u64 {
        let q = q.min(b);
        let (mut d, mut f) = (Vec::<u64>::new(), Vec::<u64>::new());
        let before = |times: &[u64], k: usize, back: usize| {
            if k >= back { times[k - back] } else { 0 }
        };
        for layer in layers {
            let begin = f.last().copied().unwrap_or(0);
            let open = begin + layer.open_ns;
            for group in &layer.groups {
                let k = d.len();
                let a = before(&d, k, q).max(before(&f, k, b));
                d.push(a + group.load_ns);
                let s = d[k].max(open).max(before(&f, k, 1));
                f.push(s + group.run_ns.unwrap_or(0));
            }
        }
        f.last().copied().unwrap_or(0)
    }

    /// Layers whose loads are equal, so that reads end in order: the literal recurrence assumes it.
    fn layers() -> impl Strategy<Value = Vec<LayerTimes>> {
        let layer = (0..50u64, 0..50u64, proptest::collection::vec(1..40u64, 1..12));
        (1..40u64, proptest::collection::vec(layer, 1..5)).prop_map(|(load_ns, layers)| {
            let times = |(routed_ns, more, runs): (u64, u64, Vec<u64>)| LayerTimes {
                routed_ns,
                open_ns: routed_ns + more,
                dense_ns: 0,
                groups: runs.iter().map(|&run| GroupTime { load_ns, run_ns: Some(run) }).collect(),
            };
            layers.into_iter().map(times).collect()
        })
    }

    proptest! {
        #[test]
        fn with_every_group_routed_it_is_the_designs(layers in layers(), q in 1..6u32, b in 1..9u32) {
            let expected = literal(&layers, q as usize, b as usize);
            prop_assert_eq!(pipe(&layers, Pipeline { depth: q, banks: b }), expected);
        }
    }

    fn layer(routed_ns: u64, groups: &[(u64, Option<u64>)]) -> LayerTimes {
        let groups = groups.iter().map(|&(load_ns, run_ns)| GroupTime { load_ns, run_ns }).collect();
        LayerTimes { routed_ns, open_ns: routed_ns, dense_ns: 0, groups }
    }

    #[test]
    fn one_bank_takes_turns_and_two_overlap() {
        // Load 10, run 10, three times; the first load hides behind the mixer of 10.
        let layers = [layer(10, &[(10, Some(10)); 3])];
        assert_eq!(pipe(&layers, Pipeline { depth: 1, banks: 1 }), 10 + 10 + 2 * 20);
        assert_eq!(pipe(&layers, Pipeline { depth: 1, banks: 2 }), 10 + 3 * 10);
    }

    #[test]
    fn more_banks_can_be_slower() {
        // The router speaks at 5. Group 0 and 1 have no routes, group 2 has some. With one bank only group 0 is read in
        // vain; with two banks group 1 is read as well, and the one reader comes to group 2 later.
        let layers = [layer(5, &[(10, None), (10, None), (10, Some(1))])];
        assert_eq!(pipe(&layers, Pipeline { depth: 1, banks: 1 }), 10 + 10 + 1);
        assert_eq!(pipe(&layers, Pipeline { depth: 1, banks: 2 }), 10 + 10 + 10 + 1);
    }

    #[test]
    fn streamed_dense_weights_take_a_reader_and_hold_their_layer_back() {
        let mut layers = [layer(1, &[(4, Some(2))]), layer(1, &[(4, Some(2))])];
        assert_eq!(pipe(&layers, Pipeline { depth: 1, banks: 2 }), 4 + 2 + 2 + 2);
        // Dense 10 each: layer 0 begins at 10 and asks for the next 10 (until 20) before its group (until 24), which runs
        // until 26; layer 1 begins then, its group came at 28, and runs until 30.
        layers.iter_mut().for_each(|layer| layer.dense_ns = 10);
        assert_eq!(pipe(&layers, Pipeline { depth: 1, banks: 2 }), 30);
    }
}
