//! The choice for a budget: (G, Q, B) and where the dense weights are.
//!
//! B_max(G) = min(K, ⌊(M_max − M_other(G)) / (G · W_e)⌋). A candidate is feasible with at least Q₀ banks. Among all feasible
//! (G, B) the least predicted time is taken; of equal ones the one with more banks, which has more slack for what no profile
//! foresees, and then the larger group, which asks for fewer reads. Streamed dense weights are tried beside resident ones:
//! they leave more of the budget to banks, and their reads are in the prediction.

use crate::depth::{gap_bytes, merge_bytes};
use crate::profile::{GroupProfile, Profile};
use serde::{Deserialize, Serialize};

/// The settings for a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The budget, in bytes.
    pub budget_bytes: u64,
    /// Experts a group, G.
    pub group: u32,
    /// Reads in flight, Q₀.
    pub depth: u32,
    /// Banks, B.
    pub banks: u32,
    /// The most banks that the budget holds.
    pub most_banks: u32,
    /// Whether dense weights are streamed.
    pub streamed: bool,
    /// Bytes of records without routes that one read goes through; `None`: groups are read whole.
    pub gap_bytes: Option<u64>,
    /// Bytes up to which adjacent loads share a request; `None` where it is not known.
    #[serde(default)]
    pub merge_bytes: Option<u64>,
    /// Memory that this takes, in bytes.
    pub memory_bytes: u64,
    /// Of that, the arena.
    pub arena_bytes: u64,
    /// Predicted nanoseconds of the profiled request.
    pub predicted_ns: u64,
}

/// A budget that no candidate fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// The least budget, in bytes.
    pub minimum_bytes: u64,
}

impl Profile {
    /// The settings for a budget.
    ///
    /// # Errors
    /// [`TooSmall`] with the least budget.
    pub fn choose(&self, budget: u64) -> Result<Choice, TooSmall> {
        let best = self.choices(budget).min_by_key(|choice| {
            let slack = std::cmp::Reverse((choice.banks, choice.group));
            (choice.predicted_ns, choice.streamed, slack)
        });
        best.ok_or_else(|| TooSmall { minimum_bytes: self.minimum() })
    }

    /// Every feasible (G, B) of a budget with its prediction.
    pub fn choices(&self, budget: u64) -> impl Iterator<Item = Choice> {
        let gap_bytes = gap_bytes(&self.rates, self.depth, self.record_bytes);
        let merge_bytes = merge_bytes(&self.rates, self.depth, self.record_bytes);
        let modes = self.groups.iter().flat_map(|profile| {
            let resident = (Some(profile.rest.resident), &profile.resident, false);
            [resident, (profile.rest.streamed, &profile.streamed, true)]
                .map(|(rest, curve, streamed)| (profile, rest, curve, streamed))
        });
        modes.flat_map(move |(profile, rest, curve, streamed)| {
            let bank = self.bank_bytes(profile);
            let room = rest.and_then(|rest| budget.checked_sub(rest)).unwrap_or(0);
            let most_banks = u32::try_from(room / bank).unwrap_or(u32::MAX).min(profile.most_groups());
            let banks = self.depth..=most_banks;
            banks.zip(curve).map(move |(banks, &predicted_ns)| {
                let arena_bytes = u64::from(banks) * bank;
                Choice {
                    budget_bytes: budget,
                    group: profile.group,
                    depth: self.depth,
                    banks,
                    most_banks,
                    streamed,
                    gap_bytes,
                    merge_bytes,
                    memory_bytes: rest.unwrap_or(0) + arena_bytes,
                    arena_bytes,
                    predicted_ns,
                }
            })
        })
    }

    /// The least budget that has a feasible candidate.
    #[must_use]
    pub fn minimum(&self) -> u64 {
        let least = |profile: &GroupProfile| {
            let rest = profile.rest.streamed.unwrap_or(u64::MAX).min(profile.rest.resident);
            rest.saturating_add(u64::from(self.depth) * self.bank_bytes(profile))
        };
        self.groups.iter().filter(|profile| profile.most_groups() >= self.depth).map(least).min().unwrap_or(0)
    }

    /// G · W_e.
    fn bank_bytes(&self, profile: &GroupProfile) -> u64 {
        (u64::from(profile.group) * self.record_bytes).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupTime, LayerTimes, Rest};

    /// A profile of one layer of 8 experts of 100 bytes, 1000 bytes besides the arena, 400 if dense weights are streamed.
    fn profile(streamed: Option<u64>) -> Profile {
        let group = |group: u32, curve: &[u64], slower: &[u64]| GroupProfile {
            group,
            rest: Rest { resident: 1000, streamed },
            layers: vec![LayerTimes {
                groups: vec![GroupTime::default(); 8 / group as usize],
                ..LayerTimes::default()
            }],
            outside_ns: 0,
            resident: curve.to_vec(),
            streamed: slower.to_vec(),
        };
        // From two banks on.
        let groups = vec![
            group(1, &[90, 80, 70, 70, 75, 76, 77], &[95, 85, 75, 75, 80, 81, 82]),
            group(2, &[60, 60, 55], &[65, 65, 60]),
            group(4, &[50], &[55]),
        ];
        Profile { record_bytes: 100, depth: 2, groups, ..Profile::default() }
    }

    fn chosen(profile: &Profile, budget: u64) -> (u32, u32, bool) {
        let choice = profile.choose(budget).expect("it fits");
        assert!(choice.memory_bytes <= budget, "{choice:?}");
        (choice.group, choice.banks, choice.streamed)
    }

    #[test]
    fn the_least_time_under_the_budget_is_taken() {
        let profile = profile(None);
        assert_eq!(chosen(&profile, 1200), (1, 2, false));
        assert_eq!(chosen(&profile, 1399), (1, 3, false));
        assert_eq!(chosen(&profile, 1400), (2, 2, false));
        // Three banks of two are no faster than two; more slack is taken, as there is room.
        assert_eq!(chosen(&profile, 1600), (2, 3, false));
        assert_eq!(chosen(&profile, 1800), (4, 2, false));
        assert_eq!(profile.choose(1199), Err(TooSmall { minimum_bytes: 1200 }));
    }

    #[test]
    fn more_banks_are_not_taken_where_they_are_slower() {
        let mut profile = profile(None);
        profile.groups.truncate(1);
        let choice = profile.choose(1 << 40).expect("it fits");
        assert_eq!((choice.banks, choice.most_banks, choice.predicted_ns), (5, 8, 70));
    }

    #[test]
    fn streamed_dense_weights_are_taken_where_they_leave_room_for_banks() {
        let profile = profile(Some(400));
        assert_eq!(chosen(&profile, 600), (1, 2, true));
        assert_eq!(profile.choose(599), Err(TooSmall { minimum_bytes: 600 }));
        // 1200 bytes hold two banks of one beside resident weights, and two of four beside streamed ones.
        assert_eq!(chosen(&profile, 1200), (4, 2, true));
        assert_eq!(chosen(&profile, 1800), (4, 2, false));
    }
}
