//! The words of the bank protocol: what the machine keeps of banks and groups, what it asks for, and what it answers.
//!
//! Fields are open to the machine alone: nobody else makes a [`Fill`] or a [`Ready`].
#![forbid(unsafe_code)]

/// A bank's state. Make as many as there are banks; the machine keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bank {
    pub(super) phase: Phase,
    pub(super) layer: u32,
    pub(super) group: u32,
    /// The group's number in the group table.
    pub(super) entry: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not read, not written.
    #[default]
    Available,
    /// Being written.
    Filling {
        /// Loads that have not ended, at least 1.
        tickets: u32,
        /// Whether nobody wants it any more.
        unwanted: bool,
    },
    /// Published.
    Ready,
    /// Lent out as a [`Ready`].
    InUse,
}

/// What has become of a group in this pass. Make one for each group of every layer; the machine keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// Not asked for yet.
    #[default]
    Unread,
    /// In a bank, in any phase but Available.
    Held {
        /// The bank.
        bank: u32,
    },
    /// Without routes, or done with.
    Done,
}

/// A command: fill a bank with a group. Answered by [`Residency::issued`] once its loads are on their way.
#[derive(Debug, PartialEq, Eq)]
pub struct Fill {
    pub(super) bank: u32,
    pub(super) layer: u32,
    pub(super) group: u32,
}

impl Fill {
    /// The bank to write.
    #[must_use]
    pub const fn bank(&self) -> u32 {
        self.bank
    }

    /// The layer, counted among those with experts.
    #[must_use]
    pub const fn layer(&self) -> u32 {
        self.layer
    }

    /// The group of the layer.
    #[must_use]
    pub const fn group(&self) -> u32 {
        self.group
    }
}

/// The right to read a bank: there is one per published bank, it cannot be copied, and release consumes it.
///
/// Dropping it keeps the bank in use, so that a pass cannot begin again over a bank that somebody may still read.
///
/// ```
/// # use estream_dsp::residency::{Bank, Group, Next, Residency};
/// # let (mut banks, mut groups) = ([Bank::default()], [Group::default()]);
/// # let mut residency = Residency::new(&mut banks, &mut groups, &[1], 1).unwrap();
/// # residency.begin_pass().unwrap();
/// # let fill = residency.next_fill().unwrap();
/// # residency.issued(fill, 1).unwrap();
/// # residency.loaded(0).unwrap();
/// # residency.routed(|_| true).unwrap();
/// let Ok(Next::Run(ready)) = residency.next() else { panic!() };
/// residency.release(ready);
/// ```
///
/// A second release is not a program:
///
/// ```compile_fail,E0382
/// # use estream_dsp::residency::{Bank, Group, Next, Residency};
/// # let (mut banks, mut groups) = ([Bank::default()], [Group::default()]);
/// # let mut residency = Residency::new(&mut banks, &mut groups, &[1], 1).unwrap();
/// # residency.begin_pass().unwrap();
/// # let fill = residency.next_fill().unwrap();
/// # residency.issued(fill, 1).unwrap();
/// # residency.loaded(0).unwrap();
/// # residency.routed(|_| true).unwrap();
/// let Ok(Next::Run(ready)) = residency.next() else { panic!() };
/// residency.release(ready);
/// residency.release(ready);
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a bank that is not released is lost to the pass"]
pub struct Ready {
    pub(super) bank: u32,
    pub(super) layer: u32,
    pub(super) group: u32,
}

impl Ready {
    /// The bank to read.
    #[must_use]
    pub const fn bank(&self) -> u32 {
        self.bank
    }

    /// The layer whose experts it holds, counted among those with experts.
    #[must_use]
    pub const fn layer(&self) -> u32 {
        self.layer
    }

    /// The group of the layer.
    #[must_use]
    pub const fn group(&self) -> u32 {
        self.group
    }
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Compute this bank's experts, then release it.
    Run(Ready),
    /// The next group is not in yet: sleep until a load ends.
    Wait,
    /// Every routed group of the layer has run.
    LayerDone,
}

/// What the end of a load meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// Other loads of the bank are outstanding.
    Partial,
    /// The bank is published.
    Ready,
    /// Nobody wants the bank's group: it is available again.
    Retired,
}

/// An event that does not fit the state: a breach of the protocol by the peer, or a bug of the caller. The state is
/// unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidencyError {
    /// No banks, no experts per group, or a group table of another length than the layers need.
    Shape,
    /// A pass begins while a bank is not available.
    Busy,
    /// A fill that is not the next one, or has no loads.
    Fill,
    /// A load ended for a bank that is not being filled.
    Bank {
        /// The bank.
        bank: u32,
    },
    /// The routes of the layer are not known yet, known already, or the pass has no layer left.
    Layer,
    /// The pass was aborted.
    Aborted,
}

/// What a pass did with its groups. After a pass that was not aborted `loaded + skipped` is the number of all groups,
/// and `loaded − speculative` have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Groups whose loads were issued.
    pub loaded: u32,
    /// Groups without routes that were not read.
    pub skipped: u32,
    /// Groups that were read before the router spoke, and had no routes.
    pub speculative: u32,
}
