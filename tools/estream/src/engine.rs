//! The engine: a pack, a device and the memory between them, opened once and asked many times.
//!
//! All that can be refused is refused before a byte of the experts is read: the model's tables are read first, the arena
//! is cut by them, and only then the pack is verified and the session made. A pass beyond the limits is refused with the
//! bytes that it would need.

use crate::arena::{self, Cut};
use crate::errors::{Error, Exit, Result};
use crate::memory::{self, Memory};
use crate::model::{self, Model};
use crate::options::{Device, Options};
use crate::request::{Answer, Request, Response};
use estream_host::transport::{Native, Sim, SkelReport};
use estream_host::{
    Canceller, IoMode, IoReport, Pack, PageKind, ReadSpan, Report, RowSink, Session, Transport, Verify,
    VerifyReport,
};
use estream_idl::call::{self, Config, Plan, Prepare, Reply};
use estream_idl::message::{Event, Rows};
use estream_idl::streaming::{Schedule, Streaming};
use estream_tune::Choice;
use std::io;
use std::path::{Path, PathBuf};

/// An open model.
#[derive(Debug)]
pub struct Engine {
    session: Session,
    model: Model,
    path: PathBuf,
    options: Options,
    skel: Option<SkelReport>,
    config: Config,
    cut: Cut,
    memory: Memory,
    verified: VerifyReport,
    tuned: Option<Choice>,
}

/// A verified pack and a device, before memory is taken.
pub struct Prepared {
    path: PathBuf,
    model: Model,
    cut: Cut,
    depth: Option<u32>,
    streaming: Streaming,
    tuned: Option<Choice>,
    transport: Box<dyn Transport>,
    skel: Option<SkelReport>,
    pack: Pack,
}

impl Prepared {
    /// The pack.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the memory and starts the firmware, within the limits of `options`. Device, arena and schedule are those that
    /// were prepared.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn start(self, options: &Options) -> Result<Engine> {
        let Self { path, model, cut, depth, streaming, tuned, transport, skel, pack } = self;
        let options = Options { depth, streaming, ..options.clone() };
        let config = config(&options, &model, cut);
        let verified = pack.verified().clone();
        let before = memory::resident().unwrap_or(0);
        let peak_before = memory::measured_peak().unwrap_or(0);
        let mut session = Session::open(pack, transport, config)?;
        if let Device::Sim(simulator) = &options.device {
            session.set_silence_limit(simulator.patience);
        }
        session.settle()?;
        let memory = Memory::new(&session.memory(), before, peak_before);
        Ok(Engine { session, model, path, options, skel, config, cut, memory, verified, tuned })
    }
}

/// A pass: the answers, and what it took.
#[derive(Debug)]
pub struct Pass {
    /// One for each request.
    pub responses: Vec<Response>,
    /// The firmware's account: routing, waits, times by part.
    pub report: Report,
    /// What was read from the pack.
    pub io: IoReport,
    /// Every read with its times.
    pub reads: Vec<ReadSpan>,
    /// The firmware's events.
    pub events: Vec<Event>,
    /// The pass as the host saw it, in nanoseconds.
    pub wall_ns: u64,
}

/// Numbers that the caller asked for and did not get; `None` where nothing was asked for, or it was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Threads, where the device takes fewer.
    pub threads: Option<u32>,
    /// Experts a group, where no layer has so many.
    pub group: Option<u32>,
    /// Banks, where the model has fewer groups.
    pub banks: Option<u32>,
    /// Reads in flight, where there are fewer banks to read into.
    pub depth: Option<u32>,
}

impl Engine {
    /// Opens a pack.
    ///
    /// # Errors
    /// Where the pack cannot be read or is damaged, the arena does not hold one expert, the memory is not to be had, or
    /// the device or its kernels are not available.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_with(path.as_ref(), &options, &|_, _| ())
    }

    /// Opens a pack, telling `progress` the bytes verified and the bytes to verify.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, options: &Options, progress: &dyn Fn(u64, u64)) -> Result<Self> {
        Self::prepare(path, options, progress)?.start(options)
    }

    /// The part of [`Self::open`] that does not depend on how many tokens there will be: the model's tables, the device,
    /// and the verification of the pack, which may take long.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn prepare(path: &Path, options: &Options, progress: &dyn Fn(u64, u64)) -> Result<Prepared> {
        let model = Model::read(path)?;
        let (options, tuned) = options.resolved(path, &model);
        let options = &options;
        let mut cut = options.arena.cut(&model)?;
        if options.streaming.schedule == Schedule::Resident {
            cut.banks = model.groups(cut.group);
        }
        let (transport, skel) = transport(&options.device)?;
        let mut pack = Pack::open(path, options.verify, progress)?;
        if let Some(bytes) = options.merge_bytes {
            pack.set_merge_bytes(bytes);
        }
        let (depth, streaming) = (options.depth, options.streaming);
        let path = path.to_owned();
        Ok(Prepared { path, model, cut, depth, streaming, tuned, transport, skel, pack })
    }

    /// Runs all requests in one pass.
    ///
    /// # Errors
    /// Bad ids, empty or overlong requests (naming index and limit), a pass beyond the limits, a failed read, a damaged
    /// extent, a result that is not finite.
    pub fn prefill(&mut self, requests: &[Request]) -> Result<Vec<Response>> {
        Ok(self.prefill_into(requests, &mut NoRows)?.responses)
    }

    /// Runs all requests in one pass, handing rows of logits to `sink` as they come, and keeps the account.
    ///
    /// # Errors
    /// As [`Self::prefill`], and where the sink fails.
    pub fn prefill_into(&mut self, requests: &[Request], sink: &mut dyn RowSink) -> Result<Pass> {
        self.check(requests)?;
        let wire: Vec<_> = requests
            .iter()
            .map(|request| estream_host::Request {
                ids: &request.ids,
                outputs: &request.outputs,
                rows: request.rows,
            })
            .collect();
        let outcome = self.session.prefill(&wire, sink).map_err(|error| self.place(error.into()))?;
        let mut answers = outcome.tops.into_iter().zip(outcome.target_logprobs);
        let responses = requests
            .iter()
            .map(|request| {
                let answers = request.outputs.iter().zip(answers.by_ref());
                let answer = |(output, (top, target_logprob)): (&estream_host::Output, _)| Answer {
                    position: output.position,
                    top,
                    target_logprob,
                };
                Response { outputs: answers.map(answer).collect() }
            })
            .collect();
        Ok(Pass {
            responses,
            report: outcome.report,
            io: outcome.io,
            reads: outcome.reads,
            events: outcome.events,
            wall_ns: outcome.wall_ns,
        })
    }

    /// What the firmware has said since the last call, oldest first.
    pub fn take_log(&mut self) -> Vec<estream_idl::log::Record> {
        self.session.take_log()
    }

    /// Ends the session and gives its memory back.
    ///
    /// # Errors
    /// Where the firmware had failed.
    pub fn close(self) -> Result<()> {
        self.session.close().map_err(|error| Error::from(error).in_file(&self.path))
    }

    /// A handle that gives up the running pass from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.session.canceller()
    }

    /// The model's numbers.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// Where the firmware runs.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.options.device
    }

    /// The skel that runs, where one does.
    #[must_use]
    pub const fn skel(&self) -> Option<&SkelReport> {
        self.skel.as_ref()
    }

    /// What the device chose: sizes, and G, B, Q, threads and kernels after clamping.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.session.plan()
    }

    /// What was asked for beyond what is possible; [`Self::plan`] has what there is instead.
    #[must_use]
    pub fn asked(&self) -> Asked {
        let plan = self.plan();
        Asked {
            threads: self.options.threads.filter(|&asked| asked > plan.threads),
            group: self.cut.group_asked,
            banks: self.cut.banks_asked,
            depth: self.options.depth.filter(|&asked| asked > plan.depth),
        }
    }

    /// The settings that were found by `tune` and taken here, where the caller said nothing about the arena.
    #[must_use]
    pub const fn tuned(&self) -> Option<&Choice> {
        self.tuned.as_ref()
    }

    /// How weights are brought in.
    #[must_use]
    pub const fn streaming(&self) -> Streaming {
        self.config.streaming
    }

    /// Memory by component.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The pages that the shared memory stands on, and why no larger ones.
    #[must_use]
    pub fn pages(&self) -> (PageKind, String) {
        let report = self.session.memory();
        (report.page_kind, report.reason)
    }

    /// Whether reads go past the page cache.
    #[must_use]
    pub fn io_mode(&self) -> IoMode {
        self.session.io_mode()
    }

    /// What was verified at open.
    #[must_use]
    pub const fn verified(&self) -> &VerifyReport {
        &self.verified
    }

    fn check(&self, requests: &[Request]) -> Result<()> {
        let several = requests.len() > 1;
        for (index, request) in requests.iter().enumerate() {
            check_request(&self.model, request).map_err(|mut error| {
                if several {
                    error.message = format!("request {index}: {}", error.message);
                }
                error
            })?;
        }
        let sum = |count: fn(&Request) -> usize| saturate(requests.iter().map(count).sum());
        let wanted = Config {
            max_tokens: sum(|request| request.ids.len()).max(self.config.max_tokens),
            max_requests: saturate(requests.len()).max(self.config.max_requests),
            max_outputs: sum(|request| request.outputs.len()).max(self.config.max_outputs),
            rows: self.config.rows || requests.iter().any(|request| request.rows),
            ..self.config
        };
        if wanted == self.config { Ok(()) } else { Err(self.beyond(&wanted)) }
    }

    /// The refusal of a pass that needs `wanted`, with the bytes that an engine for it would take.
    fn beyond(&self, wanted: &Config) -> Error {
        let limits = |config: &Config| {
            let rows = if config.rows { " with rows of logits" } else { "" };
            let Config { max_tokens, max_requests, max_outputs, .. } = config;
            format!("{max_tokens} tokens in {max_requests} requests with {max_outputs} outputs{rows}")
        };
        let (asked, planned) = (limits(wanted), limits(&self.config));
        let needed = match self.needed_bytes(wanted) {
            Ok(bytes) => format!("it would need {bytes} bytes of memory"),
            Err(error) => format!("no plan has room for it: {error}"),
        };
        let message = format!("the pass takes {asked}, and the engine was opened for {planned}: {needed}");
        Error::new("beyond-limits", Exit::Runtime, message)
    }

    fn needed_bytes(&self, config: &Config) -> Result<u64> {
        let plan = plan(&self.path, &self.options.device, config)?;
        Ok(plan.segments.total_bytes() + plan.private_bytes + plan.stack_bytes)
    }

    /// Errors about the pack name it.
    fn place(&self, error: Error) -> Error {
        let about_pack =
            matches!(error.code.as_ref(), "checksum" | "load-failed" | "bad-recipe" | "bad-directory");
        if error.file.is_none() && about_pack { error.in_file(&self.path) } else { error }
    }
}

/// The sink of passes that ask for no rows of logits.
#[derive(Clone, Copy, Debug)]
pub struct NoRows;

impl RowSink for NoRows {
    fn rows(&mut self, _: &Rows, _: &[f32]) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "rows of logits were asked for without a sink for them",
        ))
    }
}

/// A session of the firmware on `device`, and what its skel is.
fn transport(device: &Device) -> Result<(Box<dyn Transport>, Option<SkelReport>)> {
    Ok(match device {
        Device::Native => (Box::new(Native::open(estream_dsp::FIRMWARE)?), None),
        Device::Sim(simulator) => {
            let sim = Sim::open(simulator)?;
            let skel = sim.skel().clone();
            (Box::new(sim), Some(skel))
        }
    })
}

/// What a session with these settings would be.
pub(crate) fn plan(path: &Path, device: &Device, config: &Config) -> Result<Plan> {
    let pack = Pack::open(path, Verify::Never, &|_, _| ())?;
    let (mut transport, _) = transport(device)?;
    let prepare = Prepare { config: *config, recipe: pack.recipe(), directory: pack.directory() };
    match transport.call(&call::Request::Plan(prepare))? {
        Reply::Plan(plan) => Ok(plan),
        Reply::Refused(refusal) => Err(refusal.into()),
        Reply::Hello(_) | Reply::Stopped(_) => {
            Err(Error::new("protocol", Exit::Runtime, "the firmware answered another call"))
        }
    }
}

/// The firmware's configuration for options and a cut of the arena.
pub(crate) fn config(options: &Options, model: &Model, cut: Cut) -> Config {
    let threads = options.thread_count();
    Config {
        max_tokens: options.max_tokens,
        max_requests: options.max_requests,
        max_outputs: options.max_outputs,
        top_k: options.top_k.min(model.vocab),
        rows: options.rows,
        group: cut.group,
        banks: cut.banks,
        depth: options.depth.unwrap_or(arena::DEPTH),
        threads,
        kernels: options.kernels,
        scratch: options.scratch,
        row_chunk: options.row_chunk,
        streaming: options.streaming,
    }
}

fn check_request(model: &Model, request: &Request) -> Result<()> {
    model.check(&request.ids)?;
    for output in &request.outputs {
        if output.position as usize >= request.ids.len() {
            let (position, tokens) = (output.position, request.ids.len());
            let message = format!("a result is asked for at position {position} of {tokens} tokens");
            return Err(Error::new("bad-position", Exit::Input, message));
        }
        if let Some(target) = output.target.filter(|&target| target >= model.vocab) {
            let mut error = model::bad_token(output.position as usize, &target.to_string(), model.vocab);
            error.message =
                format!("the target at position {} of the request: {}", output.position, error.message);
            return Err(error);
        }
    }
    Ok(())
}

fn saturate(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
