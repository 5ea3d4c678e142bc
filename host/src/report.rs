//! What a session and a pass tell about themselves.

use crate::arena::PageKind;
use estream_idl::address::Segment;
use estream_idl::io::{HIST_BUCKETS, REPORT_WORDS, report};
use estream_idl::message::Event;
use estream_idl::sync::{AtomicU32, Ordering};

/// Memory of a session by component, in bytes: fixed when it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// The banks.
    pub arena_bytes: u64,
    /// Resident weights and the head.
    pub dense_bytes: u64,
    /// Ids, results and panels.
    pub io_bytes: u64,
    /// Rings and heartbeat.
    pub control_bytes: u64,
    /// Staging for pages of the embedding.
    pub embed_bytes: u64,
    /// The firmware's own: tables, activations, K and V.
    pub private_bytes: u64,
    /// Stacks of the firmware's threads.
    pub stack_bytes: u64,
    /// The pages that carry the shared memory.
    pub page_kind: PageKind,
    /// Why not larger ones.
    pub reason: String,
}

impl MemoryReport {
    /// All components together.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.arena_bytes
            + self.dense_bytes
            + self.io_bytes
            + self.control_bytes
            + self.embed_bytes
            + self.private_bytes
            + self.stack_bytes
    }
}

/// A candidate for the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Top {
    /// Token id.
    pub id: u32,
    /// Logit.
    pub logit: f32,
    /// Natural logarithm of the probability.
    pub logprob: f32,
}

/// What a pass gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Candidates of each output, best first; outputs of all requests in order.
    pub tops: Vec<Vec<Top>>,
    /// Log-probability of each output's target, where it had one.
    pub target_logprobs: Vec<Option<f32>>,
    /// The firmware's report.
    pub report: Report,
    /// What was read.
    pub io: IoReport,
    /// The reads of the pass, in the order in which they ended.
    pub reads: Vec<ReadSpan>,
    /// The firmware's events.
    pub events: Vec<Event>,
    /// Nanoseconds from the request to the results.
    pub wall_ns: u64,
}

/// The firmware's report of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// (layer, expert) pairs of the model.
    pub pairs_total: u32,
    /// Pairs with at least one route.
    pub pairs_routed: u32,
    /// Largest share of a layer's routes that one expert got.
    pub max_share: f32,
    /// Groups read before the router spoke that had no routes.
    pub speculative: u32,
    /// Groups loaded.
    pub groups_loaded: u32,
    /// Groups skipped without a read.
    pub groups_skipped: u32,
    /// Nanoseconds that the firmware waited for loads.
    pub wait_ns: u64,
    /// Nanoseconds of the whole pass.
    pub pass_ns: u64,
    /// Nanoseconds in mixers, routers and norms.
    pub mixer_ns: u64,
    /// Nanoseconds in experts.
    pub expert_ns: u64,
    /// Nanoseconds in the head.
    pub head_ns: u64,
    /// Routes computed.
    pub routes: u32,
    /// Events that did not reach the host.
    pub events_dropped: u32,
    /// Pairs by ⌊log2(routes)⌋.
    pub routes_hist: [u32; HIST_BUCKETS],
}

impl Report {
    /// Reads the report's words.
    pub(crate) fn read(words: &[AtomicU32; REPORT_WORDS]) -> Self {
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        Self {
            pairs_total: word(report::PAIRS_TOTAL),
            pairs_routed: word(report::PAIRS_ROUTED),
            max_share: f32::from_bits(word(report::MAX_SHARE)),
            speculative: word(report::SPECULATIVE),
            groups_loaded: word(report::GROUPS_LOADED),
            groups_skipped: word(report::GROUPS_SKIPPED),
            wait_ns: wide(report::WAIT_NS),
            pass_ns: wide(report::PASS_NS),
            mixer_ns: wide(report::MIXER_NS),
            expert_ns: wide(report::EXPERT_NS),
            head_ns: wide(report::HEAD_NS),
            routes: word(report::ROUTES),
            events_dropped: word(report::EVENTS_DROPPED),
            routes_hist: std::array::from_fn(|bucket| word(report::HIST + bucket)),
        }
    }
}

/// What was read from the pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoReport {
    /// Bytes of the pass.
    pub bytes: u64,
    /// Loads of the pass.
    pub reads: u64,
    /// Requests that these were made to the system with: adjacent loads share one.
    pub requests: u64,
    /// Bytes since the session opened, the dense weights among them.
    pub session_bytes: u64,
    /// Loads since the session opened.
    pub session_reads: u64,
}

/// One load: what was read where, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSpan {
    /// Destination segment.
    pub segment: Segment,
    /// First page in it.
    pub page: u32,
    /// Pages.
    pub pages: u32,
    /// Byte offset in the pack.
    pub file: u64,
    /// The reader that brought it, from 0. Loads that it brought with one request have the same times.
    pub reader: u32,
    /// Nanoseconds of the monotonic clock when a reader took the load.
    pub begin_ns: u64,
    /// Nanoseconds of the monotonic clock when its bytes were in (and checked, where they are).
    pub end_ns: u64,
}
