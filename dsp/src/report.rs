//! The pass report: counters of one pass, written to the io segment as words.

use crate::residency::Counters;
use crate::routes::Spread;
use estream_idl::io::{HIST_BUCKETS, IoLayout, report};
use estream_idl::sync::{AtomicU32, Ordering};

/// What a pass counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassReport {
    /// Routing over all layers.
    pub spread: Spread,
    /// Groups over all layers.
    pub groups: Counters,
    /// Nanoseconds asleep on loads.
    pub wait_ns: u64,
    /// Nanoseconds of the pass.
    pub pass_ns: u64,
    /// Nanoseconds in embedding, norms, mixers and routers.
    pub mixer_ns: u64,
    /// Nanoseconds in experts, waits included.
    pub expert_ns: u64,
    /// Nanoseconds in the head.
    pub head_ns: u64,
    /// Events that the host did not read in time.
    pub events_dropped: u32,
}

impl PassReport {
    /// Writes the report.
    pub fn write(&self, io: &[AtomicU32], layout: &IoLayout) {
        let put = |word: usize, value: u32| {
            if let Some(place) = io.get(layout.report + word) {
                place.store(value, Ordering::Relaxed);
            }
        };
        let put64 = |word: usize, value: u64| {
            put(word, value as u32);
            put(word + 1, (value >> 32) as u32);
        };
        put(report::PAIRS_TOTAL, self.spread.pairs);
        put(report::PAIRS_ROUTED, self.spread.pairs_routed);
        put(report::MAX_SHARE, self.spread.max_share.to_bits());
        put(report::SPECULATIVE, self.groups.speculative);
        put(report::GROUPS_LOADED, self.groups.loaded);
        put(report::GROUPS_SKIPPED, self.groups.skipped);
        put64(report::WAIT_NS, self.wait_ns);
        put64(report::PASS_NS, self.pass_ns);
        put64(report::MIXER_NS, self.mixer_ns);
        put64(report::EXPERT_NS, self.expert_ns);
        put64(report::HEAD_NS, self.head_ns);
        put(report::ROUTES, self.spread.routes);
        put(report::EVENTS_DROPPED, self.events_dropped);
        for bucket in 0..HIST_BUCKETS {
            put(report::HIST + bucket, self.spread.histogram[bucket]);
        }
    }
}
