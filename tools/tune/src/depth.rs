//! Q₀: how many reads must be in flight.
//!
//! More reads than the storage needs only share its bandwidth and hold banks. The rule: the smallest number of reads whose
//! rate is at least 95 % of the best one, for every group size at once, since one number of reader threads serves them all.

use serde::{Deserialize, Serialize};

/// What a rate must reach of the best one.
pub const SHARE: f64 = 0.95;

/// The rate of reads of one group size with so many of them in flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Experts a group.
    pub group: u32,
    /// Reads in flight.
    pub depth: u32,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// The smallest depth among those measured that serves every group size; `None` without any measurement.
#[must_use]
pub fn smallest_depth(rates: &[Rate]) -> Option<u32> {
    let best = |group: u32| {
        let of_group = rates.iter().filter(|rate| rate.group == group);
        of_group.map(|rate| rate.bytes_per_second).fold(0.0, f64::max)
    };
    let serves = |depth: u32| {
        let mut groups = rates.iter().map(|rate| rate.group);
        groups.all(|group| {
            let mut here = rates.iter().filter(|rate| rate.group == group && rate.depth == depth);
            here.any(|rate| rate.bytes_per_second >= SHARE * best(group))
        })
    };
    rates.iter().map(|rate| rate.depth).filter(|&depth| serves(depth)).min()
}

/// The bytes that the storage transfers in the time that one more read costs it: what may be read in vain to save a read.
/// With q readers a read of x bytes takes a + b·x; the line through the rates of all group sizes gives a / b. `None` where
/// a read costs nothing or nothing can be told.
#[must_use]
pub fn gap_bytes(rates: &[Rate], depth: u32, record_bytes: u64) -> Option<u64> {
    let point = |rate: &Rate| {
        let bytes = f64::from(rate.group) * record_bytes as f64;
        (bytes, f64::from(depth) * bytes / rate.bytes_per_second)
    };
    let points: Vec<_> =
        rates.iter().filter(|rate| rate.depth == depth && rate.bytes_per_second > 0.0).map(point).collect();
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>()
        / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    let bytes = (y - slope * x) / slope;
    (slope > 0.0 && bytes > 0.0).then_some(bytes as u64)
}

/// The bytes of the smallest group with which `depth` reads in flight reach 95 % of their best rate: what adjacent loads are
/// worth merging up to. `None` without a measurement at that depth.
#[must_use]
pub fn merge_bytes(rates: &[Rate], depth: u32, record_bytes: u64) -> Option<u64> {
    let here = || rates.iter().filter(|rate| rate.depth == depth);
    let best = here().map(|rate| rate.bytes_per_second).fold(0.0, f64::max);
    let enough = here().filter(|rate| rate.bytes_per_second >= SHARE * best).map(|rate| rate.group).min();
    enough.map(|group| u64::from(group).saturating_mul(record_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_what_flows_in_the_time_of_one_more_read() {
        // Each read takes 100 µs and then flows at 1 GB/s; two readers.
        let rate = |group: u32| {
            let bytes = f64::from(group) * 1e6;
            Rate { group, depth: 2, bytes_per_second: 2.0 * bytes / (100e-6 + bytes / 1e9) }
        };
        let rates = [1, 2, 4, 8].map(rate);
        let gap = gap_bytes(&rates, 2, 1_000_000).expect("a read costs something");
        assert!(gap.abs_diff(100_000) < 10, "{gap}");
        assert_eq!(gap_bytes(&rates, 4, 1_000_000), None, "never measured");
        assert_eq!(gap_bytes(&rates[..1], 2, 1_000_000), None, "one point is no line");
        let free = [1, 2].map(|group| Rate { group, depth: 1, bytes_per_second: 1e9 });
        assert_eq!(gap_bytes(&free, 1, 1 << 20), None, "reads that cost nothing");
    }

    #[test]
    fn loads_are_merged_up_to_the_smallest_group_that_is_fast_enough() {
        let rate = |group, depth, bytes_per_second| Rate { group, depth, bytes_per_second };
        let rates =
            [rate(1, 2, 60.0), rate(2, 2, 94.0), rate(4, 2, 95.0), rate(8, 2, 100.0), rate(1, 4, 200.0)];
        assert_eq!(merge_bytes(&rates, 2, 4096), Some(4 * 4096));
        assert_eq!(merge_bytes(&rates, 4, 4096), Some(4096), "single records are fast enough");
        assert_eq!(merge_bytes(&rates, 1, 4096), None, "never measured");
    }

    #[test]
    fn the_smallest_depth_serves_every_group() {
        let rate = |group, depth, bytes_per_second| Rate { group, depth, bytes_per_second };
        assert_eq!(smallest_depth(&[]), None);
        // Groups of 4 are content with two reads, single experts want four.
        let rates = [
            rate(1, 1, 40.0),
            rate(1, 2, 94.9),
            rate(1, 4, 99.0),
            rate(1, 8, 100.0),
            rate(4, 1, 70.0),
            rate(4, 2, 96.0),
            rate(4, 4, 97.0),
            rate(4, 8, 90.0),
        ];
        assert_eq!(smallest_depth(&rates), Some(4));
        assert_eq!(smallest_depth(&rates[4..]), Some(2));
        // At the very share it is enough.
        assert_eq!(smallest_depth(&[rate(1, 1, 95.0), rate(1, 2, 100.0)]), Some(1));
        // Where no measured depth serves all, there is none.
        assert_eq!(smallest_depth(&[rate(1, 1, 1.0), rate(2, 2, 1.0)]), None);
    }
}
