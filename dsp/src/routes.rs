//! The route map: which tokens go to which expert, as compressed sparse rows over storage positions.
//!
//! The router speaks token by token; the engine works bank by bank. One stable counting sort per layer turns the one
//! into the other in O(E + R): after it the routes of a storage position, and of any group of neighbouring positions,
//! are one contiguous range, so that a bank that is published finds its rows with O(G) offsets and no second sort.
//! Sorting per bank instead would read all R choices once for every group.
//!
//! Invariants after [`RouteMap::build`]: `offsets` ascends from 0 to R; the routes of a position ascend strictly by
//! token. Their order is therefore a function of the router's choices alone, never of arrival (law 1 d).
#![forbid(unsafe_code)]

use core::ops::Range;
use estream_idl::io::HIST_BUCKETS;

/// One row of work: a token that an expert computes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Route {
    /// Row of the layer's activations.
    pub token: u32,
    /// What the expert's output is multiplied by before it is added.
    pub weight: f32,
}

/// Why choices cannot be sorted. Each is a bug of the caller or a damaged permutation, found before a number is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// `chosen` and `weights` differ in length, or are not a whole number of tokens.
    Lengths,
    /// The caller's tables hold fewer experts or routes than the layer has.
    Capacity {
        /// Experts of the layer.
        experts: usize,
        /// Routes of the layer.
        routes: usize,
    },
    /// The storage positions are not a permutation: `expert`'s is out of range or taken.
    Permutation {
        /// The first expert without a place of its own.
        expert: usize,
    },
    /// A token chose an expert that the layer does not have.
    Expert {
        /// The token.
        token: u32,
        /// Its choice.
        expert: u16,
    },
    /// A token chose one expert twice.
    Duplicate {
        /// The token.
        token: u32,
        /// The storage position of the expert.
        position: usize,
    },
}

/// Routes of one layer by storage position, in tables that the caller keeps from layer to layer.
#[derive(Debug)]
pub struct RouteMap<'a> {
    offsets: &'a mut [u32],
    records: &'a mut [Route],
    experts: usize,
}

impl<'a> RouteMap<'a> {
    /// An empty map over tables for up to `offsets.len() − 1` experts and `records.len()` routes.
    #[must_use]
    pub const fn new(offsets: &'a mut [u32], records: &'a mut [Route]) -> Self {
        Self { offsets, records, experts: 0 }
    }

    /// Sorts a layer's choices: `chosen` and `weights` are `[tokens][per_token]`, and `positions[e]` is the storage
    /// position of expert e, so that its length is the layer's number of experts.
    ///
    /// # Errors
    /// [`RouteError`]; the map is then empty.
    pub fn build(
        &mut self,
        chosen: &[u16],
        weights: &[f32],
        per_token: usize,
        positions: &[u16],
    ) -> Result<(), RouteError> {
        self.experts = 0;
        let (experts, routes) = (positions.len(), chosen.len());
        if weights.len() != routes || per_token == 0 || !routes.is_multiple_of(per_token) {
            return Err(RouteError::Lengths);
        }
        if self.offsets.len() <= experts || self.records.len() < routes || u32::try_from(routes).is_err() {
            return Err(RouteError::Capacity { experts, routes });
        }
        let offsets = &mut self.offsets[..=experts];
        check_permutation(positions, &mut offsets[..experts])?;

        // Count, then turn counts into the first index of each position.
        offsets.fill(0);
        for (route, &expert) in chosen.iter().enumerate() {
            let Some(&position) = positions.get(usize::from(expert)) else {
                return Err(RouteError::Expert { token: (route / per_token) as u32, expert });
            };
            offsets[usize::from(position)] += 1;
        }
        let mut first = 0;
        for offset in offsets.iter_mut() {
            first += core::mem::replace(offset, first);
        }
        // Place in token order; each cursor ends where the next position begins, so one shift restores the offsets.
        for (route, (&expert, &weight)) in chosen.iter().zip(weights).enumerate() {
            let cursor = &mut offsets[usize::from(positions[usize::from(expert)])];
            self.records[*cursor as usize] = Route { token: (route / per_token) as u32, weight };
            *cursor += 1;
        }
        offsets.copy_within(..experts, 1);
        offsets[0] = 0;

        self.experts = experts;
        let duplicate = (0..experts).find_map(|position| {
            let twice = self.position(position).windows(2).find(|pair| pair[0].token == pair[1].token)?;
            Some(RouteError::Duplicate { token: twice[0].token, position })
        });
        if let Some(error) = duplicate {
            self.experts = 0;
            return Err(error);
        }
        Ok(())
    }

    /// Experts of the layer that was built last.
    #[must_use]
    pub const fn experts(&self) -> usize {
        self.experts
    }

    /// Routes of the layer, R.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range(0..self.experts).len()
    }

    /// Whether nothing is routed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The routes of storage position `position`, ascending by token; none past the last expert.
    #[must_use]
    pub fn position(&self, position: usize) -> &[Route] {
        &self.records[self.range(position..position.saturating_add(1))]
    }

    /// The routes of group `group` of `size` experts, over the places of a bank. O(1): the range is already sorted.
    #[must_use]
    pub fn group(&self, group: usize, size: usize) -> Csr<'_> {
        let positions = self.members(group, size);
        let records = &self.records[self.range(positions.clone())];
        let offsets = if positions.is_empty() { &[] } else { &self.offsets[positions.start..=positions.end] };
        Csr { offsets, records }
    }

    /// Routes of group `group` of `size` experts.
    #[must_use]
    pub fn group_len(&self, group: usize, size: usize) -> usize {
        self.range(self.members(group, size)).len()
    }

    /// Storage positions of a group, cut at the layer's last expert.
    fn members(&self, group: usize, size: usize) -> Range<usize> {
        let first = group.saturating_mul(size).min(self.experts);
        first..first.saturating_add(size).min(self.experts)
    }

    /// The records of a range of positions; empty outside the layer.
    fn range(&self, positions: Range<usize>) -> Range<usize> {
        if positions.start >= self.experts {
            return 0..0;
        }
        let end = positions.end.min(self.experts);
        self.offsets[positions.start] as usize..self.offsets[end] as usize
    }
}

/// Every expert has a storage position of its own. `seen` has one word per expert and is overwritten.
fn check_permutation(positions: &[u16], seen: &mut [u32]) -> Result<(), RouteError> {
    seen.fill(0);
    for (expert, &position) in positions.iter().enumerate() {
        match seen.get_mut(usize::from(position)) {
            Some(taken) if *taken == 0 => *taken = 1,
            _ => return Err(RouteError::Permutation { expert }),
        }
    }
    Ok(())
}

/// The routes of one group: compressed sparse rows over the places r of its bank.
#[derive(Clone, Copy, Debug)]
pub struct Csr<'a> {
    offsets: &'a [u32],
    records: &'a [Route],
}

impl<'a> Csr<'a> {
    /// Experts of the group: G, or fewer in the layer's last one.
    #[must_use]
    pub const fn places(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Routes of the group.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether the group has no routes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The routes of place `place`, ascending by token; none past the last place.
    #[must_use]
    pub fn place(&self, place: usize) -> &'a [Route] {
        if place >= self.places() {
            return &[];
        }
        let base = self.offsets[0];
        &self.records[(self.offsets[place] - base) as usize..(self.offsets[place + 1] - base) as usize]
    }
}

/// How evenly a pass was routed, summed over its layers: what the pass report says about routing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// (layer, expert) pairs.
    pub pairs: u32,
    /// Pairs with at least one route.
    pub pairs_routed: u32,
    /// Routes.
    pub routes: u32,
    /// The largest share of a layer's routes that one expert got.
    pub max_share: f32,
    /// Routed pairs by ⌊log2(routes)⌋; the last bucket takes all that is larger.
    pub histogram: [u32; HIST_BUCKETS],
}

impl Spread {
    /// Adds a layer. Counts stop at their largest value.
    pub fn add(&mut self, map: &RouteMap<'_>) {
        let total = map.len();
        self.pairs = self.pairs.saturating_add(map.experts() as u32);
        self.routes = self.routes.saturating_add(total as u32);
        for position in 0..map.experts() {
            let routes = map.position(position).len();
            if let Some(log) = routes.checked_ilog2() {
                let bucket = &mut self.histogram[(log as usize).min(HIST_BUCKETS - 1)];
                *bucket = bucket.saturating_add(1);
                self.pairs_routed = self.pairs_routed.saturating_add(1);
                self.max_share = self.max_share.max(routes as f32 / total as f32);
            }
        }
    }
}
