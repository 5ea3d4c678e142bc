//! `estream run`: one prompt through a pack, and the next-token distribution.
//!
//! The prompt and the place of the logits are checked before anything large is read. The vocabulary is read after the
//! memory of the session was given back, so that texts cost no peak memory, and before the logits get their name.

use super::tokenize;
use crate::cli::{DenseName, Machine, Run, SimulatorParts};
use crate::commands::device::device;
use crate::commands::distinct::distinct;
use crate::console::Console;
use crate::interrupt::{Interrupt, interruptible};
use crate::report::{Candidate, RunReport};
use crate::tokens;
use estream::{
    Arena, DenseWeights, Engine, Error, Exit, KernelSet, LogitsFile, Model, Options, Pass, Prepared, Request,
    Result, Top, WHOLE_GROUPS,
};
use estream_idl::address::PAGE;
use estream_pack::Vocabulary;
use estream_text::Tokenizer;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Runs the command.
pub fn run(arguments: &Run, console: &Console) -> Result<()> {
    let start = Instant::now();
    let options = options(&arguments.machine)?;
    if let Some(output) = &arguments.logits {
        distinct(output, inputs(arguments))?;
    }
    let model = Model::read(&arguments.pack)?;
    let source = source(arguments, &model)?;
    let options = options.top_k(arguments.top_k);
    let report = interruptible(|interrupt| {
        let logits = arguments.logits.as_deref();
        let (prepared, ids, logits) =
            prepare(&arguments.pack, source, &options, logits, &model, console, interrupt)?;
        Ok(prompt(prepared, ids, options, logits, start, console, interrupt)?.0)
    })?;
    console.answer(&report, || report.summary())
}

/// The files that the command reads.
fn inputs(arguments: &Run) -> impl Iterator<Item = &Path> {
    let SimulatorParts { sim_qemu, sim_guest, sim_skel, .. } = &arguments.machine.simulator;
    let named = [&arguments.prompt_file, &arguments.tokens_file, sim_qemu, sim_guest, sim_skel];
    std::iter::once(&arguments.pack).chain(named.into_iter().flatten()).map(PathBuf::as_path)
}

/// What the prompt is made of.
pub enum Source {
    /// Its ids, checked.
    Ids(Vec<u32>),
    /// A text that may fit the context.
    Text(String),
}

pub fn source(arguments: &Run, model: &Model) -> Result<Source> {
    let text = match arguments {
        Run { tokens: Some(text), .. } => return Ok(Source::Ids(tokens::parse(text, model)?)),
        Run { tokens_file: Some(file), .. } => return Ok(Source::Ids(tokens::read(file, model)?)),
        Run { prompt: Some(text), .. } => text.clone(),
        Run { prompt_file: Some(file), .. } => tokenize::read_text(file)?,
        _ => return Err(estream::empty()),
    };
    may_fit(&text, model, &arguments.pack)?;
    Ok(Source::Text(text))
}

/// The pack verified, the prompt's ids, and the file for their logits. The tokenizer is made only where there is text,
/// beside the reading of the pack; its memory is given back before the session takes any, since the session's tables are
/// sized by the ids. A path that cannot be written is found before anything is computed.
pub fn prepare(
    pack: &Path,
    source: Source,
    options: &Options,
    logits: Option<&Path>,
    model: &Model,
    console: &Console,
    interrupt: &Interrupt,
) -> Result<(Prepared, Vec<u32>, Option<LogitsFile>)> {
    let create = |ids: &[u32]| {
        let tokens = u32::try_from(ids.len()).map_err(|_| estream::too_many(ids.len(), model.context))?;
        logits.map(|path| LogitsFile::create(path, tokens, model.vocab)).transpose()
    };
    let open = |stop: &AtomicBool| {
        let bar = console.bytes_bar("verifying");
        let progress = |done, total| {
            if stop.load(Ordering::Relaxed) {
                resume_unwind(Box::new(GivenUp));
            }
            interrupt.unwind();
            bar.show(done, total);
        };
        Engine::prepare(pack, options, &progress)
    };
    let text = match source {
        Source::Text(text) => text,
        Source::Ids(ids) => {
            let file = create(&ids)?;
            return Ok((open(&AtomicBool::new(false))?, ids, file));
        }
    };
    // Ordering: nothing is handed over with the flag.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let opening = scope.spawn(|| open(&stop));
        let encoded = encode(&text, model, pack).and_then(|ids| Ok((create(&ids)?, ids)));
        if encoded.is_err() {
            // A text that is refused does not wait for the rest of a large pack.
            stop.store(true, Ordering::Relaxed);
        }
        let opened = opening.join();
        let (file, ids) = encoded?;
        Ok((opened.unwrap_or_else(|payload| resume_unwind(payload))?, ids, file))
    })
}

/// What gives up a verification that nobody waits for any more.
struct GivenUp;

fn encode(text: &str, model: &Model, pack: &Path) -> Result<Vec<u32>> {
    let ids = Tokenizer::open(pack)?.encode(text).map_err(|error| error.in_file(pack))?;
    model.check(&ids)?;
    Ok(ids)
}

/// Refuses a text that is too long for the context whatever its tokens are, before memory and time are spent on them: no
/// token stands for more bytes than the longest one has.
fn may_fit(text: &str, model: &Model, pack: &Path) -> Result<()> {
    // Sentence-piece vocabularies write a space as this character, and take it for one.
    let bytes = text.len() - text.matches('▁').count() * ('▁'.len_utf8() - 1);
    if bytes <= model.context as usize {
        return Ok(());
    }
    let vocabulary = Vocabulary::from_pack(pack)?;
    // A pack without a vocabulary is refused by its name, later.
    let longest = (0..).take(vocabulary.len()).map(|id| vocabulary.text(id).len()).max().unwrap_or(bytes);
    let tokens = bytes.div_ceil(longest.max(1));
    if tokens <= model.context as usize {
        return Ok(());
    }
    let message = format!(
        "the text has {} bytes, at least {tokens} tokens, and the model's context is {}",
        text.len(),
        model.context
    );
    Err(Error::new("too-many-tokens", Exit::Input, message))
}

/// Runs `ids` through a prepared pack; `logits` takes the rows of all positions.
pub fn prompt(
    prepared: Prepared,
    ids: Vec<u32>,
    options: Options,
    mut logits: Option<LogitsFile>,
    start: Instant,
    console: &Console,
    interrupt: &Interrupt,
) -> Result<(RunReport, Pass)> {
    let tokens = ids.len();
    let count = u32::try_from(tokens).map_err(|_| estream::too_many(tokens, u32::MAX))?;
    let options = options.max_tokens(count).max_requests(1).max_outputs(1).rows(logits.is_some());
    let pack = prepared.path().to_owned();
    let mut engine = prepared.start(&options)?;
    interrupt.gives_up(engine.canceller());
    let opened = start.elapsed();
    let request = Request::next_token(ids);
    let pass = match &mut logits {
        Some(file) => engine.prefill_into(&[request.with_rows()], file),
        None => engine.prefill_into(&[request], &mut estream::NoRows),
    };
    console.log(&engine.take_log());
    let pass = pass?;
    let mut report = RunReport::new(&engine, &pass, tokens, opened, start.elapsed());
    engine.close()?;
    let top =
        pass.responses.first().and_then(|response| response.outputs.first()).map(|answer| &answer.top[..]);
    let candidates = candidates(&pack, top.unwrap_or_default())?;
    interrupt.check()?;
    logits.map_or(Ok(()), LogitsFile::finish)?;
    report.finish(candidates, start.elapsed());
    Ok((report, pass))
}

fn candidates(pack: &Path, top: &[Top]) -> Result<Vec<Candidate>> {
    let vocabulary = Vocabulary::from_pack(pack)?;
    let candidate = |top: &Top| Candidate {
        id: top.id,
        text: (!vocabulary.is_empty()).then(|| vocabulary.text(top.id)),
        logit: top.logit,
        logprob: top.logprob,
    };
    Ok(top.iter().map(candidate).collect())
}

/// The engine's options from the command line's.
pub fn options(machine: &Machine) -> Result<Options> {
    let (schedule, preset) = (machine.schedule.schedule(), machine.schedule.cut());
    let given = [
        ("--arena", machine.arena.is_some()),
        ("--group", machine.group.is_some()),
        ("--banks", machine.banks.is_some()),
        ("--depth", machine.depth.is_some()),
    ];
    if let (Some(_), Some((flag, _))) = (preset, given.iter().find(|(_, given)| *given)) {
        let message = format!("{flag} has no place beside a --schedule that cuts the arena itself");
        return Err(Error::new("usage", Exit::Usage, message));
    }
    let arena = match (machine.arena, machine.group, machine.banks) {
        (Some(bytes), ..) => Arena::Bytes(bytes),
        (None, Some(group), banks) => Arena::Group(group, banks),
        (None, None, Some(banks)) => Arena::Banks(banks),
        (None, None, None) => preset.map_or(Arena::Default, |(arena, _)| arena),
    };
    let mut options = Options::new()
        .device(device(machine)?)
        .arena(arena)
        .kernels(KernelSet::from(machine.kernels) | KernelSet::from(machine.activations))
        .verify(machine.verify.into())
        .scratch(machine.scratch.unwrap_or(0))
        .row_chunk(machine.row_chunk.unwrap_or(0))
        .schedule(schedule)
        .planning(machine.topology.into());
    match machine.dense {
        DenseName::Auto => {}
        DenseName::Resident => options = options.dense(DenseWeights::Resident),
        DenseName::Stream => options = options.dense(DenseWeights::Streamed),
    }
    if let Some(bytes) = machine.gap {
        options = options.gap(u32::try_from(bytes / PAGE as u64).unwrap_or(WHOLE_GROUPS));
    }
    if let Some(bytes) = machine.merge {
        options = options.merge(bytes);
    }
    if let Some(depth) = machine.depth.or(preset.map(|(_, depth)| depth)) {
        options = options.depth(depth);
    }
    if let Some(threads) = machine.threads {
        options = options.threads(threads);
    }
    Ok(options)
}
