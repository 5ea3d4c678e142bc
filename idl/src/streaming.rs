//! How weights are brought in: the choices that change when bytes move and never what is computed (law 1).
//!
//! They are part of the configuration, so that every ablation is the same engine with another word in it.

use serde::{Deserialize, Serialize};

/// When a group of experts may be read ahead of its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// When the executor stands before it and nothing else is in a bank: no read hides behind computing.
    OnDemand,
    /// Once the layer's routes are known: nothing is read in vain, and nothing hides behind mixer and router.
    AfterRouting,
    /// From the beginning of its layer on.
    Early,
    /// As soon as a bank is free, also for layers to come.
    #[default]
    CrossLayer,
    /// Once, before the first pass: there is a bank for every group, and banks keep what they hold.
    Resident,
}

impl Schedule {
    /// All of them, the least overlapped first.
    pub const ALL: [Self; 5] =
        [Self::OnDemand, Self::AfterRouting, Self::Early, Self::CrossLayer, Self::Resident];

    /// The name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::AfterRouting => "after-routing",
            Self::Early => "early",
            Self::CrossLayer => "cross-layer",
            Self::Resident => "resident",
        }
    }
}

/// Where the weights are that every token passes: mixers, routers, dense and shared units, the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DenseWeights {
    /// All of them in memory, loaded once.
    #[default]
    Resident,
    /// Streamed like the experts, a layer ahead of their use, through a window of two layers.
    Streamed,
}

impl DenseWeights {
    /// The name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Streamed => "stream",
        }
    }
}

/// When the scratchpad of an expert call is planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Planning {
    /// Once for each shape class, at `start`.
    #[default]
    Once,
    /// Anew for every call of every expert: what a graph for each expert costs.
    PerExpert,
}

/// The choices together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streaming {
    /// When groups are read.
    pub schedule: Schedule,
    /// Where dense weights are.
    pub dense: DenseWeights,
    /// When expert calls are planned.
    pub planning: Planning,
    /// Pages of records without routes that one read goes through; beyond it the read is cut in two, and what lies
    /// between stays unread. [`WHOLE_GROUPS`]: a group is always read whole.
    pub gap: u32,
}

/// A gap that no group has.
pub const WHOLE_GROUPS: u32 = u32::MAX;

impl Streaming {
    /// Everything overlapped, dense weights resident, groups whole.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            schedule: Schedule::CrossLayer,
            dense: DenseWeights::Resident,
            planning: Planning::Once,
            gap: WHOLE_GROUPS,
        }
    }
}

impl Default for Streaming {
    fn default() -> Self {
        Self::new()
    }
}
