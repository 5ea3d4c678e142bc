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

#[cfg(test)]
mod tests {
    use super::*;

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
