//! Residency: which group of experts is in which bank, as a state machine without I/O.
//!
//! Events go in (a load was issued, a load ended, the router has spoken, a bank is done with), commands come out (fill
//! this bank, run that one). The engine's loop around it is:
//!
//! ```text
//! while let Some(fill) = next_fill() and tickets are free: send its loads; issued(fill, tickets)
//! match next():  Run(ready) => compute; release(ready)     Wait => sleep until a load ends; loaded(bank) or failed(bank)
//!                LayerDone  => end_layer()
//! ```
//!
//! # The bank protocol
//! Available → Filling → Ready → in use → Available. A bank is written only while Filling, and read only through a
//! [`Ready`], which [`Residency::next`] alone makes, from a bank whose last load has ended, and [`Residency::release`]
//! consumes (law 5). A bank without routes goes back unread.
//!
//! # Order, and why nothing deadlocks
//! Groups are filled in storage order through all layers by one cursor that only moves forward, and run in storage
//! order. So the group that must run next is in a bank already, or is the very next to be filled; in the latter case the
//! banks hold only earlier groups of the same layer, which run or retire without it. A later layer is reached only when
//! the cursor has left the current one, that is when the current layer needs no more loads: a prefetch never holds
//! a bank that the current layer waits for. This is true of any number of banks, one included, and with a bank for every
//! group it amounts to prefetching everything. The road not taken is to read likely groups first: without storage order
//! a reserve of banks would have to be kept free for the group that must run next.
//!
//! # Schedules
//! How far the fill cursor may run ahead is a [`Schedule`]; nothing else depends on it. Every schedule lets the group
//! that must run next be filled once nothing is in its way, so the argument above holds for all of them. Under
//! [`Schedule::Resident`] a bank that was published stays so: release and retirement leave it Ready, and the next pass
//! finds its group there.
#![forbid(unsafe_code)]

mod protocol;
mod store;

pub use protocol::{Bank, Counters, Fill, Group, Loaded, Next, Ready, ResidencyError};
pub use store::{Issue, MAX_LOAD, Records, Store};

use estream_idl::streaming::Schedule;
use protocol::Phase;

/// A layer's place in the group table.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    layer: u32,
    group: u32,
    /// Entry of the layer's group 0.
    base: u32,
}

/// The machine, over tables that the caller keeps.
#[derive(Debug)]
pub struct Residency<'a> {
    banks: &'a mut [Bank],
    groups: &'a mut [Group],
    layer_experts: &'a [u32],
    group_size: u32,
    schedule: Schedule,
    /// The next group to run: the current layer.
    run: Cursor,
    /// The next group to fill. It may stand on groups that are done, and passes over them when it is asked.
    fill: Cursor,
    routed: bool,
    aborted: bool,
    /// Banks in phase Available.
    available: u32,
    /// Where the search for an available bank begins: one past the last that was filled.
    hand: u32,
    counters: Counters,
}

/// Groups of a layer of `experts`.
const fn groups_of(experts: u32, group_size: u32) -> u32 {
    experts.div_ceil(group_size)
}

impl<'a> Residency<'a> {
    /// Entries of the group table for these layers, or `None` where there are more than 2^32 or `group_size` is 0.
    #[must_use]
    pub fn group_entries(layer_experts: &[u32], group_size: u32) -> Option<u32> {
        if group_size == 0 {
            return None;
        }
        layer_experts.iter().try_fold(0u32, |sum, &experts| sum.checked_add(groups_of(experts, group_size)))
    }

    /// A machine at rest. `layer_experts` has the experts of each layer that has any, in order; `group_size` is G;
    /// `groups` has [`Self::group_entries`] entries.
    ///
    /// # Errors
    /// [`ResidencyError::Shape`].
    pub fn new(
        banks: &'a mut [Bank],
        groups: &'a mut [Group],
        layer_experts: &'a [u32],
        group_size: u32,
    ) -> Result<Self, ResidencyError> {
        let entries = Self::group_entries(layer_experts, group_size).ok_or(ResidencyError::Shape)?;
        let available = u32::try_from(banks.len()).map_err(|_| ResidencyError::Shape)?;
        if available == 0 || entries as usize != groups.len() {
            return Err(ResidencyError::Shape);
        }
        banks.fill(Bank::default());
        let end = Cursor { layer: layer_experts.len() as u32, ..Cursor::default() };
        Ok(Self {
            banks,
            groups,
            layer_experts,
            group_size,
            schedule: Schedule::CrossLayer,
            run: end,
            fill: end,
            routed: false,
            aborted: false,
            available,
            hand: 0,
            counters: Counters::default(),
        })
    }

    /// The same machine under another schedule than [`Schedule::CrossLayer`].
    #[must_use]
    pub const fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// The schedule.
    #[must_use]
    pub const fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Whether banks keep what they hold from pass to pass.
    const fn keeps(&self) -> bool {
        matches!(self.schedule, Schedule::Resident)
    }

    /// Begins a pass at the first layer. Unless the schedule keeps them resident, banks hold nothing from the pass before.
    ///
    /// # Errors
    /// [`ResidencyError::Busy`] unless the machine is idle.
    pub fn begin_pass(&mut self) -> Result<(), ResidencyError> {
        if !self.is_idle() {
            return Err(ResidencyError::Busy);
        }
        self.groups.fill(Group::Unread);
        for (bank, held) in (0..).zip(self.banks.iter()) {
            if held.phase == Phase::Ready {
                self.groups[held.entry as usize] = Group::Held { bank };
            }
        }
        (self.run, self.fill) = (Cursor::default(), Cursor::default());
        (self.routed, self.aborted, self.counters) = (false, false, Counters::default());
        Ok(())
    }

    /// The current layer, or `None` when the pass is over.
    #[must_use]
    pub const fn layer(&self) -> Option<u32> {
        if (self.run.layer as usize) < self.layer_experts.len() { Some(self.run.layer) } else { None }
    }

    /// Whether every bank is available, or kept where the schedule keeps banks: nothing is being loaded or read, and
    /// nothing is published that would be lost.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let at_rest =
            |bank: &Bank| bank.phase == Phase::Available || (self.keeps() && bank.phase == Phase::Ready);
        self.available as usize == self.banks.len() || self.banks.iter().all(at_rest)
    }

    /// What the pass has done so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The bank and group to fill next, while a bank is available and a group is worth reading. Asking changes nothing
    /// that can be seen: where no ticket is free the same question is asked again later.
    #[must_use]
    pub fn next_fill(&mut self) -> Option<Fill> {
        if self.aborted || self.available == 0 {
            return None;
        }
        while let Some(&experts) = self.layer_experts.get(self.fill.layer as usize) {
            let groups = groups_of(experts, self.group_size);
            if self.fill.group == groups {
                self.fill = Cursor { layer: self.fill.layer + 1, group: 0, base: self.fill.base + groups };
            } else if self.groups[(self.fill.base + self.fill.group) as usize] == Group::Unread {
                if !self.may_fill(self.fill.layer) {
                    return None;
                }
                let bank = self.available_bank()?;
                return Some(Fill { bank, layer: self.fill.layer, group: self.fill.group });
            } else {
                self.fill.group += 1;
            }
        }
        None
    }

    /// Whether the schedule lets the next unread group, which is of `layer`, be read now.
    fn may_fill(&self, layer: u32) -> bool {
        let current = layer == self.run.layer;
        match self.schedule {
            Schedule::CrossLayer | Schedule::Resident => true,
            Schedule::Early => current,
            Schedule::AfterRouting => current && self.routed,
            // Where no bank holds anything, every group before this one has run or will not.
            Schedule::OnDemand => current && self.routed && self.available as usize == self.banks.len(),
        }
    }

    /// The first available bank from the hand on.
    fn available_bank(&self) -> Option<u32> {
        let banks = self.banks.len() as u32;
        (self.hand..banks)
            .chain(0..self.hand)
            .find(|&bank| self.banks[bank as usize].phase == Phase::Available)
    }

    /// The loads of `fill` are on their way, `tickets` of them.
    ///
    /// # Errors
    /// [`ResidencyError::Fill`] when it is no longer what [`Self::next_fill`] would say, or `tickets` is 0.
    pub fn issued(&mut self, fill: Fill, tickets: u32) -> Result<(), ResidencyError> {
        if tickets == 0 || self.next_fill().as_ref() != Some(&fill) {
            return Err(ResidencyError::Fill);
        }
        let Fill { bank, layer, group } = fill;
        let entry = self.fill.base + group;
        let phase = Phase::Filling { tickets, unwanted: false };
        self.banks[bank as usize] = Bank { phase, layer, group, entry };
        self.groups[entry as usize] = Group::Held { bank };
        self.available -= 1;
        self.hand = (bank + 1) % self.banks.len() as u32;
        self.fill.group += 1;
        self.counters.loaded += 1;
        Ok(())
    }

    /// One load of `bank` has ended well; the last one publishes the bank.
    ///
    /// # Errors
    /// [`ResidencyError::Bank`] when the bank has no load outstanding.
    pub fn loaded(&mut self, bank: u32) -> Result<Loaded, ResidencyError> {
        let Some(Bank { phase: Phase::Filling { tickets, unwanted }, .. }) =
            self.banks.get_mut(bank as usize)
        else {
            return Err(ResidencyError::Bank { bank });
        };
        *tickets -= 1;
        if *tickets > 0 {
            return Ok(Loaded::Partial);
        }
        if *unwanted {
            self.vacate(bank);
            return Ok(Loaded::Retired);
        }
        self.banks[bank as usize].phase = Phase::Ready;
        Ok(Loaded::Ready)
    }

    /// One load of `bank` has failed: the pass is aborted, and the bank is never published.
    ///
    /// # Errors
    /// [`ResidencyError::Bank`] when the bank has no load outstanding.
    pub fn failed(&mut self, bank: u32) -> Result<Loaded, ResidencyError> {
        if !matches!(self.banks.get(bank as usize), Some(Bank { phase: Phase::Filling { .. }, .. })) {
            return Err(ResidencyError::Bank { bank });
        }
        self.abort();
        self.loaded(bank)
    }

    /// The router has spoken for the current layer: `has_routes` says which of its groups are wanted. Banks that hold
    /// others are retired, at once or when their loads end; unread ones will not be read.
    ///
    /// # Errors
    /// [`ResidencyError::Layer`] when the routes are known already or no layer is left, [`ResidencyError::Aborted`].
    pub fn routed(&mut self, has_routes: impl Fn(u32) -> bool) -> Result<(), ResidencyError> {
        let experts = self.current()?;
        if self.routed {
            return Err(ResidencyError::Layer);
        }
        self.routed = true;
        for group in (0..groups_of(experts, self.group_size)).filter(|&group| !has_routes(group)) {
            match core::mem::replace(&mut self.groups[(self.run.base + group) as usize], Group::Done) {
                Group::Held { .. } if self.keeps() => self.counters.skipped += 1,
                Group::Held { bank } => {
                    self.counters.speculative += 1;
                    self.retire(bank);
                }
                Group::Unread | Group::Done => self.counters.skipped += 1,
            }
        }
        Ok(())
    }

    /// What to do now in the current layer. Groups run strictly in storage order, whatever order they arrive in.
    ///
    /// # Errors
    /// [`ResidencyError::Layer`] before the router has spoken or after the last layer, [`ResidencyError::Aborted`].
    #[allow(clippy::should_implement_trait, reason = "a machine that waits and fails is no iterator")]
    pub fn next(&mut self) -> Result<Next, ResidencyError> {
        let groups = groups_of(self.current()?, self.group_size);
        if !self.routed {
            return Err(ResidencyError::Layer);
        }
        while self.run.group < groups {
            match self.groups[(self.run.base + self.run.group) as usize] {
                Group::Done => self.run.group += 1,
                Group::Unread => return Ok(Next::Wait),
                Group::Held { bank } => {
                    let Bank { phase, layer, group, .. } = &mut self.banks[bank as usize];
                    if *phase != Phase::Ready {
                        return Ok(Next::Wait);
                    }
                    *phase = Phase::InUse;
                    let ready = Ready { bank, layer: *layer, group: *group };
                    self.run.group += 1;
                    return Ok(Next::Run(ready));
                }
            }
        }
        Ok(Next::LayerDone)
    }

    /// The last use of a bank is over: it can be filled again. A machine takes back only what its own
    /// [`Self::next`] gave.
    pub fn release(&mut self, ready: Ready) {
        let bank = &self.banks[ready.bank as usize];
        debug_assert_eq!((bank.phase, bank.layer, bank.group), (Phase::InUse, ready.layer, ready.group));
        self.groups[bank.entry as usize] = Group::Done;
        if self.keeps() {
            self.banks[ready.bank as usize].phase = Phase::Ready;
        } else {
            self.vacate(ready.bank);
        }
    }

    /// Goes on to the next layer, once every routed group of this one has run and is released.
    ///
    /// # Errors
    /// [`ResidencyError::Layer`] otherwise, [`ResidencyError::Aborted`].
    pub fn end_layer(&mut self) -> Result<(), ResidencyError> {
        let groups = groups_of(self.current()?, self.group_size);
        let layer = self.run.base as usize..(self.run.base + groups) as usize;
        if !self.routed || self.groups[layer].iter().any(|&group| group != Group::Done) {
            return Err(ResidencyError::Layer);
        }
        self.run = Cursor { layer: self.run.layer + 1, group: 0, base: self.run.base + groups };
        self.routed = false;
        Ok(())
    }

    /// Gives the pass up: nothing is filled or run any more, published banks go back unread unless they are kept. Loads that are out must
    /// still end and readers still release; then [`Self::is_idle`] holds.
    pub fn abort(&mut self) {
        self.aborted = true;
        for bank in 0..self.banks.len() as u32 {
            self.retire(bank);
        }
    }

    /// Φ: the slot of the arena where the current layer's expert at storage position `position` can be read, or `None`
    /// while it is not published.
    #[must_use]
    pub fn slot(&self, position: u32) -> Option<u32> {
        let experts = *self.layer_experts.get(self.run.layer as usize)?;
        if position >= experts {
            return None;
        }
        let Group::Held { bank } = self.groups[(self.run.base + position / self.group_size) as usize] else {
            return None;
        };
        let published = matches!(self.banks[bank as usize].phase, Phase::Ready | Phase::InUse);
        published.then(|| bank * self.group_size + position % self.group_size)
    }

    /// Experts of the current layer of a pass that goes on.
    fn current(&self) -> Result<u32, ResidencyError> {
        if self.aborted {
            return Err(ResidencyError::Aborted);
        }
        self.layer_experts.get(self.run.layer as usize).copied().ok_or(ResidencyError::Layer)
    }

    /// Nobody will read what `bank` holds or is about to hold; a bank that is being read stays until its release.
    fn retire(&mut self, bank: u32) {
        let keeps = self.keeps();
        match &mut self.banks[bank as usize].phase {
            Phase::Filling { unwanted, .. } => *unwanted = true,
            Phase::Ready if !keeps => self.vacate(bank),
            Phase::Ready | Phase::Available | Phase::InUse => {}
        }
    }

    fn vacate(&mut self, bank: u32) {
        self.banks[bank as usize].phase = Phase::Available;
        self.available += 1;
    }
}
