//! Choices and limits of an engine, with defaults for one prompt on this machine.

use crate::arena::{Arena, Banks};
use crate::model::Model;
use crate::tuned::{self, Key};
use estream_host::transport::Simulator;
use estream_host::{Pack, Verify};
use estream_idl::address::PAGE;
use estream_idl::call::KernelSet;
use estream_idl::streaming::{DenseWeights, Planning, Schedule, Streaming, WHOLE_GROUPS};
use estream_tune::Choice;
use std::path::Path;
use std::thread;

/// Tokens of one pass unless the caller says otherwise.
pub const MAX_TOKENS: u32 = 512;
/// Requests of one pass unless the caller says otherwise.
pub const MAX_REQUESTS: u32 = 16;
/// Positions with results of one pass unless the caller says otherwise.
pub const MAX_OUTPUTS: u32 = 64;
/// Candidates per position unless the caller says otherwise.
pub const TOP_K: u32 = 5;

/// Where the firmware runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// In this process, with this processor's kernels.
    #[default]
    Native,
    /// As the skel that ships, in a simulated protection domain.
    Sim(Simulator),
}

impl Device {
    /// The name that users write.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Sim(_) => "sim",
        }
    }
}

/// How [`crate::Engine::open`] opens a pack. Limits fix the memory: a pass beyond them is refused with the bytes that it
/// would need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) device: Device,
    pub(crate) arena: Arena,
    pub(crate) depth: Option<u32>,
    pub(crate) threads: Option<u32>,
    pub(crate) kernels: KernelSet,
    pub(crate) verify: Verify,
    pub(crate) top_k: u32,
    pub(crate) max_tokens: u32,
    pub(crate) max_requests: u32,
    pub(crate) max_outputs: u32,
    pub(crate) rows: bool,
    pub(crate) scratch: u32,
    pub(crate) row_chunk: u32,
    pub(crate) streaming: Streaming,
    pub(crate) dense: Option<DenseWeights>,
    pub(crate) merge_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: Device::Native,
            arena: Arena::Default,
            depth: None,
            threads: None,
            kernels: KernelSet::empty(),
            verify: Verify::Once,
            top_k: TOP_K,
            max_tokens: MAX_TOKENS,
            max_requests: MAX_REQUESTS,
            max_outputs: MAX_OUTPUTS,
            rows: false,
            scratch: 0,
            row_chunk: 0,
            streaming: Streaming::default(),
            dense: None,
            merge_bytes: None,
        }
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the firmware runs.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// How large the arena is, as a size or as a group and banks.
    #[must_use]
    pub fn arena(mut self, arena: Arena) -> Self {
        self.arena = arena;
        self
    }

    /// Reads in flight, Q, clamped to the banks; the default is [`crate::arena::DEPTH`].
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Self {
        self.depth = Some(depth);
        self
    }

    /// Threads that compute; the default is one for each processor this process may use.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = Some(threads);
        self
    }

    /// The kernels to choose among; empty = the device's best.
    #[must_use]
    pub fn kernels(mut self, kernels: KernelSet) -> Self {
        self.kernels = kernels;
        self
    }

    /// When checksums are checked.
    #[must_use]
    pub fn verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// Candidates per position with results; more than the vocabulary has are not to be had.
    #[must_use]
    pub fn top_k(mut self, top_k: u32) -> Self {
        self.top_k = top_k;
        self
    }

    /// Tokens of one pass, all requests together.
    #[must_use]
    pub fn max_tokens(mut self, max_tokens: u32) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// Requests of one pass.
    #[must_use]
    pub fn max_requests(mut self, max_requests: u32) -> Self {
        self.max_requests = max_requests;
        self
    }

    /// Positions with results of one pass.
    #[must_use]
    pub fn max_outputs(mut self, max_outputs: u32) -> Self {
        self.max_outputs = max_outputs;
        self
    }

    /// Whether passes may stream the logits of all positions to a [`crate::RowSink`].
    #[must_use]
    pub fn rows(mut self, rows: bool) -> Self {
        self.rows = rows;
        self
    }

    /// Scratchpad bytes that the fused operator may use; 0 = the device's own.
    #[must_use]
    pub fn scratch(mut self, bytes: u32) -> Self {
        self.scratch = bytes;
        self
    }

    /// Rows of a chunk, a multiple of 32; 0 = as many as the scratchpad holds. Results do not depend on it.
    #[must_use]
    pub fn row_chunk(mut self, rows: u32) -> Self {
        self.row_chunk = rows;
        self
    }

    /// When groups of experts are read. Results do not depend on it, nor on the three that follow.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.streaming.schedule = schedule;
        self
    }

    /// Where the weights are that every token passes. Unless this is said, they are where the tuner found it best, else
    /// streamed where they are larger than the arena that was asked for in bytes.
    #[must_use]
    pub fn dense(mut self, dense: DenseWeights) -> Self {
        self.dense = Some(dense);
        self
    }

    /// When expert calls are planned.
    #[must_use]
    pub fn planning(mut self, planning: Planning) -> Self {
        self.streaming.planning = planning;
        self
    }

    /// Pages of records without routes that one read goes through; beyond it they are left out and stay unread.
    #[must_use]
    pub fn gap(mut self, pages: u32) -> Self {
        self.streaming.gap = pages;
        self
    }

    /// Bytes up to which adjacent loads share a request to the storage; 0 keeps each its own. Unless this is said, it is
    /// what the tuner found, else [`estream_host::MERGE_BYTES`].
    #[must_use]
    pub fn merge(mut self, bytes: u64) -> Self {
        self.merge_bytes = Some(bytes);
        self
    }

    /// Threads that compute.
    pub(crate) fn thread_count(&self) -> u32 {
        let available = || thread::available_parallelism().map_or(1, |count| count.get());
        self.threads.unwrap_or_else(|| u32::try_from(available()).unwrap_or(u32::MAX))
    }

    /// What a tuning of `pack` would be kept under.
    #[must_use]
    pub fn key(&self, pack: &Pack) -> Key {
        Key::of(pack, self.device.name(), self.kernels.name(), self.thread_count())
    }

    /// These options with the settings of `choice`, but for what was said about gaps, merging and dense weights.
    #[must_use]
    pub fn taking(mut self, choice: &Choice) -> Self {
        self.arena = Arena::Group(choice.group, Some(Banks::Count(choice.banks)));
        self.depth = Some(choice.depth);
        if let (WHOLE_GROUPS, Some(bytes)) = (self.streaming.gap, choice.gap_bytes) {
            self.streaming.gap = u32::try_from(bytes / PAGE as u64).unwrap_or(WHOLE_GROUPS);
        }
        self.merge_bytes = self.merge_bytes.or(choice.merge_bytes);
        let dense = if choice.streamed { DenseWeights::Streamed } else { DenseWeights::Resident };
        self.dense = self.dense.or(Some(dense));
        self
    }

    /// These options resolved: where dense weights are, and what the tuner found for the pack at `path`, where nothing was
    /// said about arena, reads in flight or schedule and something was found.
    pub(crate) fn resolved(&self, path: &Path, model: &Model) -> (Self, Option<Choice>) {
        let untouched = self.arena == Arena::Default
            && self.depth.is_none()
            && self.streaming.schedule == Schedule::CrossLayer;
        let pack = Pack::open(path, Verify::Never, &|_, _| ()).ok().filter(|_| untouched);
        let tuning = pack.and_then(|pack| tuned::load(path, &self.key(&pack)));
        let choice = tuning.map(|tuning| tuning.choice).filter(|choice| choice.group <= model.experts);
        let mut options = choice.as_ref().map_or_else(|| self.clone(), |choice| self.clone().taking(choice));
        let suggested = match self.arena {
            Arena::Bytes(arena) if model.dense_bytes > arena => DenseWeights::Streamed,
            _ => DenseWeights::Resident,
        };
        options.streaming.dense = options.dense.unwrap_or(suggested);
        (options, choice)
    }
}
