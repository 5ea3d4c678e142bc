//! The io segment: token ids and positions in, results and logits panels out. All tables are words (f32 as bits), so
//! that reading what a peer writes is never undefined; the layout follows from the configuration and the vocabulary.

use crate::address::PAGE;
use crate::call::Config;

/// Words of a request's entry: tokens, outputs, flags, then zeros. Requests and their outputs lie end to end, so no offset
/// is sent that could lie.
pub const REQUEST_WORDS: usize = 8;
/// Flag of a request: stream the logits of all its positions as panels.
pub const FLAG_ROWS: u32 = 1;
/// A target id that asks for nothing, and the id of an absent candidate.
pub const NO_TARGET: u32 = u32::MAX;
/// The largest panel.
pub const PANEL_BYTES: usize = 4 << 20;
/// Panels: one is filled while the other is taken.
pub const PANELS: usize = 2;
/// Buckets of the route histogram, by ⌊log2(routes)⌋.
pub const HIST_BUCKETS: usize = 24;

/// Words of the pass report.
pub const REPORT_WORDS: usize = 64;

/// Word offsets in the pass report.
pub mod report {
    /// (layer, expert) pairs of the model.
    pub const PAIRS_TOTAL: usize = 0;
    /// Pairs with at least one route.
    pub const PAIRS_ROUTED: usize = 1;
    /// Largest share of a layer's routes that one expert got, f32.
    pub const MAX_SHARE: usize = 2;
    /// Groups read before the router spoke that had no routes.
    pub const SPECULATIVE: usize = 3;
    /// Groups loaded.
    pub const GROUPS_LOADED: usize = 4;
    /// Groups skipped without a read.
    pub const GROUPS_SKIPPED: usize = 5;
    /// Nanoseconds that the firmware waited for loads, low and high word.
    pub const WAIT_NS: usize = 6;
    /// Nanoseconds of the whole pass, low and high word.
    pub const PASS_NS: usize = 8;
    /// Nanoseconds in mixers, routers and norms.
    pub const MIXER_NS: usize = 10;
    /// Nanoseconds in experts.
    pub const EXPERT_NS: usize = 12;
    /// Nanoseconds in the head.
    pub const HEAD_NS: usize = 14;
    /// Routes computed.
    pub const ROUTES: usize = 16;
    /// Events dropped because the host did not read them.
    pub const EVENTS_DROPPED: usize = 17;
    /// The route histogram, [`super::HIST_BUCKETS`] words.
    pub const HIST: usize = 32;
}
static_assertions::const_assert!(report::HIST + HIST_BUCKETS <= REPORT_WORDS);

/// Word offsets of the io segment's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLayout {
    /// `[max_requests][REQUEST_WORDS]`, written by the host.
    pub requests: usize,
    /// `[max_tokens]` token ids, written by the host.
    pub ids: usize,
    /// `[max_outputs]` positions inside their request, written by the host.
    pub positions: usize,
    /// `[max_outputs]` target ids or [`NO_TARGET`], written by the host.
    pub targets: usize,
    /// `[max_outputs]` log-probabilities of the targets, f32, written by the firmware.
    pub target_logprobs: usize,
    /// `[max_outputs][top_k]` of (id, logit, logprob), best first, written by the firmware; [`NO_TARGET`] as the id where
    /// the vocabulary has fewer entries.
    pub tops: usize,
    /// The pass report, written by the firmware.
    pub report: usize,
    /// First page of panel 0.
    pub panel_page: usize,
    /// Pages of a panel.
    pub panel_pages: usize,
    /// Pages of the segment.
    pub pages: usize,
}

/// Words of one candidate in `tops`.
pub const TOP_WORDS: usize = 3;

impl IoLayout {
    /// The layout for a configuration and a vocabulary, or `None` where it exceeds the address space.
    ///
    /// Tables that different sides write start on lines of their own.
    #[must_use]
    pub fn new(config: &Config, vocab: u32) -> Option<Self> {
        let size =
            |count: u32, words: usize| (count as usize).checked_mul(words)?.checked_next_multiple_of(32);
        let mut at = 0usize;
        let mut place = |words: usize| {
            let here = at;
            at = at.checked_add(words)?;
            Some(here)
        };
        let requests = place(size(config.max_requests, REQUEST_WORDS)?)?;
        let ids = place(size(config.max_tokens, 1)?)?;
        let positions = place(size(config.max_outputs, 1)?)?;
        let targets = place(size(config.max_outputs, 1)?)?;
        let target_logprobs = place(size(config.max_outputs, 1)?)?;
        let tops = place(size(config.max_outputs, (config.top_k as usize).checked_mul(TOP_WORDS)?)?)?;
        let report = place(REPORT_WORDS)?;
        let panel_page = at.checked_mul(4)?.div_ceil(PAGE);
        let rows = if config.rows { config.max_tokens.max(config.max_outputs) } else { config.max_outputs };
        let row_bytes = (vocab as usize).checked_next_multiple_of(32)?.checked_mul(4)?;
        let panel = row_bytes.checked_mul(rows as usize)?.min(PANEL_BYTES).max(rows as usize * 32 * 4);
        let panel_pages = panel.div_ceil(PAGE);
        let pages = panel_page.checked_add(panel_pages.checked_mul(PANELS)?)?;
        Some(Self {
            requests,
            ids,
            positions,
            targets,
            target_logprobs,
            tops,
            report,
            panel_page,
            panel_pages,
            pages,
        })
    }
}
