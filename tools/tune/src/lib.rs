//! The tuner: from a short profile to G, Q and B for a memory budget, without a sweep.
//!
//! Pure: what was observed goes in ([`Trace`]), a small table comes out ([`Profile`]), and any budget is answered from the
//! table ([`Profile::choose`]). Nothing here reads a file or a clock.
//!
//! The steps: one request for each candidate G gives the times of loads, groups and mixers ([`GroupProfile`]). Q₀ is the
//! smallest number of reads in flight that reaches 95 % of the storage's best rate for every G ([`smallest_depth`]). The
//! pass is then computed for every number of banks by a recurrence ([`pipe`]), and the best (G, B) under the budget is
//! taken. The recurrence is computed for each B and never searched: more banks can be slower, since they read more groups
//! before the router has spoken, some of them in vain.
#![forbid(unsafe_code)]

mod choose;
mod depth;
mod order;
mod profile;
mod recurrence;
mod trace;

pub use choose::{Choice, TooSmall};
pub use depth::{Rate, SHARE, gap_bytes, merge_bytes, smallest_depth};
pub use order::order;
pub use profile::{GroupProfile, Profile, Rest};
pub use recurrence::{GroupTime, LayerTimes, Pipeline, pipe};
pub use trace::{LayerTrace, Load, Run, Trace};
