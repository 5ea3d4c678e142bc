//! The account of a run: one object for scripts, a summary for people, both from the same numbers.
//!
//! Every number is finite: the firmware fails a pass whose results are not. Times are milliseconds, sizes bytes. Names
//! never change their meaning; new ones may be added.

use crate::console::table;
use estream::memory::{Memory, measured_peak};
use estream::size::human;
use estream::{Engine, IoMode, Pass, Planning, Report, SkelReport, VerifyReport};
use estream_tune::Choice;
use serde::Serialize;
use std::time::Duration;

/// What `run --json` prints.
#[derive(Debug, Serialize)]
pub struct RunReport {
    device: &'static str,
    /// The Hexagon code that ran, where it was not this processor's own.
    skel: Option<Skel>,
    kernels: &'static str,
    /// What the products take of activations.
    activations: &'static str,
    threads: u32,
    /// Asked for beyond what the device has, as are the others with this ending; else null.
    threads_asked: Option<u32>,
    group: u32,
    group_asked: Option<u32>,
    banks: u32,
    banks_asked: Option<u32>,
    depth: u32,
    depth_asked: Option<u32>,
    /// The settings that `tune` found, where they were taken.
    tuned: Option<Choice>,
    schedule: &'static str,
    /// Where the weights are that every token passes.
    dense: &'static str,
    /// Whether every expert call was planned anew.
    planned_per_expert: bool,
    row_chunk: u32,
    scratch_bytes: u32,
    tokens: usize,
    /// Of the last position.
    top: Vec<Candidate>,
    time: Time,
    io: Io,
    memory: MemoryAccount,
    routing: Routing,
    verify: Verification,
}

/// The skel by its bytes.
#[derive(Debug, Serialize)]
struct Skel {
    path: String,
    sha256: String,
    arch: String,
}

impl Skel {
    fn new(skel: &SkelReport) -> Self {
        let path = skel.path.to_string_lossy().into_owned();
        Self { path, sha256: skel.sha256.clone(), arch: format!("v{:x}", skel.architecture) }
    }
}

/// A likely next token.
#[derive(Debug, Serialize)]
pub struct Candidate {
    /// The id.
    pub id: u32,
    /// Its text, where the pack has a vocabulary.
    pub text: Option<String>,
    /// The logit.
    pub logit: f32,
    /// The natural logarithm of its probability.
    pub logprob: f32,
}

#[derive(Debug, Serialize)]
struct Time {
    /// From the start to the first pass, without verification.
    open_ms: f64,
    prefill_ms: f64,
    total_ms: f64,
    /// What the firmware waited for loads.
    io_wait_ms: f64,
    mixer_ms: f64,
    expert_ms: f64,
    head_ms: f64,
}

#[derive(Debug, Serialize)]
struct Io {
    mode: &'static str,
    /// Why reads go through the page cache, where they do.
    reason: Option<String>,
    /// Of the pass; the dense weights are read at open.
    bytes: u64,
    reads: u64,
    /// What the reads were asked for with: adjacent ones share a request.
    requests: u64,
    pages: &'static str,
    pages_reason: String,
    groups_loaded: u32,
    groups_skipped: u32,
    /// Groups read before the router had spoken that had no routes.
    speculative: u32,
}

#[derive(Debug, Serialize)]
struct MemoryAccount {
    #[serde(flatten)]
    plan: Memory,
    /// VmHWM, where the system says.
    measured_peak_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Routing {
    pairs_total: u32,
    pairs_routed: u32,
    routes: u32,
    max_share: f32,
    /// (layer, expert) pairs by ⌊log2(routes)⌋.
    routes_hist: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Verification {
    policy: &'static str,
    /// Whether every byte was read and checked in this run.
    ran: bool,
    /// Whether an earlier check of this very file was remembered.
    remembered: bool,
    ms: u64,
    /// Why the check will be repeated at the next open.
    not_remembered: Option<String>,
}

impl RunReport {
    /// The account of the engine's pass over `tokens` ids. `open` and `total` are times since the program's start.
    #[must_use]
    pub fn new(engine: &Engine, pass: &Pass, tokens: usize, open: Duration, total: Duration) -> Self {
        let plan = engine.plan();
        let asked = engine.asked();
        let report = &pass.report;
        let streaming = engine.streaming();
        let (mode, reason) = match engine.io_mode() {
            IoMode::Direct => ("direct", None),
            IoMode::Buffered { reason } => ("buffered", Some(reason)),
        };
        let (pages, pages_reason) = engine.pages();
        let verify = verification(engine.verified());
        Self {
            device: engine.device().name(),
            skel: engine.skel().map(Skel::new),
            kernels: plan.kernels.name(),
            activations: plan.kernels.activations(),
            threads: plan.threads,
            threads_asked: asked.threads,
            group: plan.group,
            group_asked: asked.group,
            banks: plan.banks,
            banks_asked: asked.banks,
            depth: plan.depth,
            depth_asked: asked.depth,
            tuned: engine.tuned().copied(),
            schedule: streaming.schedule.name(),
            dense: streaming.dense.name(),
            planned_per_expert: streaming.planning == Planning::PerExpert,
            row_chunk: plan.row_chunk,
            scratch_bytes: plan.scratch_bytes,
            tokens,
            top: Vec::new(),
            time: Time {
                open_ms: (milliseconds(open) - verify.ms as f64).max(0.0),
                prefill_ms: from_ns(pass.wall_ns),
                total_ms: milliseconds(total),
                io_wait_ms: from_ns(report.wait_ns),
                mixer_ms: from_ns(report.mixer_ns),
                expert_ms: from_ns(report.expert_ns),
                head_ms: from_ns(report.head_ns),
            },
            io: Io {
                mode,
                reason,
                bytes: pass.io.bytes,
                reads: pass.io.reads,
                requests: pass.io.requests,
                pages: pages.name(),
                pages_reason,
                groups_loaded: report.groups_loaded,
                groups_skipped: report.groups_skipped,
                speculative: report.speculative,
            },
            memory: MemoryAccount { plan: *engine.memory(), measured_peak_bytes: None },
            routing: routing(report),
            verify,
        }
    }

    /// Bytes of a bank.
    #[must_use]
    pub const fn bank_bytes(&self) -> u64 {
        self.memory.plan.arena_bytes / if self.banks == 0 { 1 } else { self.banks as u64 }
    }

    /// Completes the account at the very end: the candidates with their texts, and the memory that was really taken.
    pub fn finish(&mut self, top: Vec<Candidate>, total: Duration) {
        self.top = top;
        self.time.total_ms = milliseconds(total);
        self.memory.measured_peak_bytes = measured_peak();
    }

    /// The summary for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let (time, io, routing) = (&self.time, &self.io, &self.routing);
        let speed = self.tokens as f64 / (time.prefill_ms / 1e3).max(1e-9);
        let rate = io.bytes as f64 / (time.prefill_ms / 1e3).max(1e-9);
        let asked = |asked: Option<u32>| asked.map(|asked| format!(" (asked: {asked})")).unwrap_or_default();
        let reason = io.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let skel = self.skel.as_ref().map(|skel| format!(", skel {} {}", skel.arch, skel.sha256));
        let skel = skel.unwrap_or_default();
        let lines = [
            (
                "device",
                format!(
                    "{}, {} kernels on {} activations, {} threads{}{skel}",
                    self.device,
                    self.kernels,
                    self.activations,
                    self.threads,
                    asked(self.threads_asked)
                ),
            ),
            (
                "arena",
                format!(
                    "{} = {} banks{} of {} experts{}, {} reads in flight{}, {} schedule",
                    human(self.memory.plan.arena_bytes),
                    self.banks,
                    asked(self.banks_asked),
                    self.group,
                    asked(self.group_asked),
                    self.depth,
                    asked(self.depth_asked),
                    self.schedule
                ) + &self
                    .tuned
                    .map(|choice| format!(", as tuned for {}", human(choice.budget_bytes)))
                    .unwrap_or_default(),
            ),
            ("prefill", format!("{} tokens in {:.1} ms, {speed:.1} tokens/s", self.tokens, time.prefill_ms)),
            (
                "time",
                format!(
                    "open {:.1} ms, waiting for reads {:.1} ms, mixers {:.1} ms, experts {:.1} ms, head {:.1} ms",
                    time.open_ms, time.io_wait_ms, time.mixer_ms, time.expert_ms, time.head_ms
                ),
            ),
            (
                "read",
                format!(
                    "{} in {} {} reads{reason}, {}/s, {} pages",
                    human(io.bytes),
                    io.reads,
                    io.mode,
                    human(rate as u64),
                    io.pages
                ),
            ),
            (
                "groups",
                format!(
                    "{} loaded, {} skipped, {} loaded in vain",
                    io.groups_loaded, io.groups_skipped, io.speculative
                ),
            ),
            (
                "routing",
                format!(
                    "{} of {} experts used, largest share {:.1} %",
                    routing.pairs_routed,
                    routing.pairs_total,
                    100.0 * routing.max_share
                ),
            ),
            ("verified", self.verify.line()),
        ];
        table(&lines) + "\n" + &self.memory_table() + "\n" + &self.top_table()
    }

    /// Memory by component.
    #[must_use]
    pub fn memory_table(&self) -> String {
        let plan = &self.memory.plan;
        let mut lines: Vec<_> = plan.components().map(|(name, bytes)| (name, human(bytes))).into();
        lines.push(("peak, planned", human(plan.peak_bytes)));
        if let Some(bytes) = self.memory.measured_peak_bytes {
            lines.push(("peak, measured", human(bytes)));
        }
        format!("memory\n{}", table(&lines))
    }

    /// The most likely next tokens.
    #[must_use]
    pub fn top_table(&self) -> String {
        let mut text = String::from("next token\n      id    logit   logprob  text\n");
        for Candidate { id, text: word, logit, logprob } in &self.top {
            let word = word.as_ref().map(|word| format!("{word:?}")).unwrap_or_default();
            text += &format!("{id:>8} {logit:>8.3} {logprob:>9.4}  {word}\n");
        }
        text
    }
}

impl Verification {
    fn line(&self) -> String {
        let what = match (self.ran, self.remembered) {
            (true, _) => format!("every byte, in {} ms", self.ms),
            (false, true) => "every byte, at an earlier open".to_owned(),
            (false, false) if self.policy == "always" => "every extent as it was read".to_owned(),
            (false, false) => "header and tables only".to_owned(),
        };
        let again = self.not_remembered.as_ref().map(|reason| format!("; will be repeated: {reason}"));
        format!("{what} (policy: {}){}", self.policy, again.unwrap_or_default())
    }
}

fn routing(report: &Report) -> Routing {
    let used = report.routes_hist.iter().rposition(|&pairs| pairs > 0).map_or(0, |last| last + 1);
    Routing {
        pairs_total: report.pairs_total,
        pairs_routed: report.pairs_routed,
        routes: report.routes,
        max_share: report.max_share,
        routes_hist: report.routes_hist[..used].to_vec(),
    }
}

fn verification(report: &VerifyReport) -> Verification {
    Verification {
        policy: report.policy.name(),
        ran: report.ran,
        remembered: report.remembered,
        ms: report.millis,
        not_remembered: report.not_remembered.clone(),
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn from_ns(ns: u64) -> f64 {
    ns as f64 / 1e6
}
