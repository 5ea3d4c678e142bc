//! `estream run`: one prompt through a pack, and the next-token distribution.
//!
//! The prompt is checked before anything large is read; the vocabulary is read after the memory of the session was given
//! back, so that texts cost no peak memory.

use super::tokenize;
use crate::cli::{Machine, Run};
use crate::commands::device::device;
use crate::console::Console;
use crate::report::{Candidate, RunReport};
use crate::tokens;
use estream::{Arena, Engine, LogitsFile, Model, Options, Pass, Request, Result, Top};
use estream_pack::Vocabulary;
use estream_text::Tokenizer;
use std::path::Path;
use std::time::Instant;

/// Runs the command.
pub fn run(arguments: &Run, console: &Console) -> Result<()> {
    let start = Instant::now();
    let options = options(&arguments.machine)?;
    let model = Model::read(&arguments.pack)?;
    let ids = ids(arguments, &model)?;
    // Before anything runs: a path that cannot be written is no reason to compute first.
    let tokens = u32::try_from(ids.len()).map_err(|_| estream::too_many(ids.len(), model.context))?;
    let logits = arguments.logits.as_deref();
    let logits = logits.map(|path| LogitsFile::create(path, tokens, model.vocab)).transpose()?;
    let (report, _) = prompt(&arguments.pack, ids, options.top_k(arguments.top_k), logits, start, console)?;
    console.answer(&report, || report.summary())
}

/// The prompt's ids. The tokenizer is made only where there is text, and its memory is given back before the session takes
/// any: the session's tables are sized by the ids, so the two cannot overlap.
fn ids(arguments: &Run, model: &Model) -> Result<Vec<u32>> {
    let text = match arguments {
        Run { tokens: Some(text), .. } => return tokens::parse(text, model),
        Run { tokens_file: Some(file), .. } => return tokens::read(file, model),
        Run { prompt: Some(text), .. } => text.clone(),
        Run { prompt_file: Some(file), .. } => tokenize::read_text(file)?,
        _ => return Err(estream::empty()),
    };
    let ids = Tokenizer::open(&arguments.pack)?.encode(&text)?;
    model.check(&ids)?;
    Ok(ids)
}

/// Runs `ids` through the pack; `logits` takes the rows of all positions.
pub fn prompt(
    pack: &Path,
    ids: Vec<u32>,
    options: Options,
    logits: Option<LogitsFile>,
    start: Instant,
    console: &Console,
) -> Result<(RunReport, Pass)> {
    let tokens = ids.len();
    let count = u32::try_from(tokens).map_err(|_| estream::too_many(tokens, u32::MAX))?;
    let options = options.max_tokens(count).max_requests(1).max_outputs(1).rows(logits.is_some());
    let mut engine = {
        let bar = console.bytes_bar("verifying");
        Engine::open_with(pack, &options, &|done, total| bar.show(done, total))?
    };
    let opened = start.elapsed();
    let request = Request::next_token(ids);
    let pass = match logits {
        Some(mut file) => {
            let pass = engine.prefill_into(&[request.with_rows()], &mut file)?;
            file.finish()?;
            pass
        }
        None => engine.prefill_into(&[request], &mut estream::NoRows)?,
    };
    let mut report = RunReport::new(&engine, &pass, tokens, opened, start.elapsed());
    engine.close()?;
    let top =
        pass.responses.first().and_then(|response| response.outputs.first()).map(|answer| &answer.top[..]);
    report.finish(candidates(pack, top.unwrap_or_default())?, start.elapsed());
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
    let arena = match (machine.arena, machine.group, machine.banks) {
        (Some(bytes), ..) => Arena::Bytes(bytes),
        (None, Some(group), banks) => Arena::Group(group, banks),
        (None, None, Some(banks)) => Arena::Banks(banks),
        (None, None, None) => Arena::Default,
    };
    let mut options = Options::new()
        .device(device(machine)?)
        .arena(arena)
        .depth(machine.depth)
        .kernels(machine.kernels.into())
        .verify(machine.verify.into())
        .scratch(machine.scratch.unwrap_or(0))
        .row_chunk(machine.row_chunk.unwrap_or(0));
    if let Some(threads) = machine.threads {
        options = options.threads(threads);
    }
    Ok(options)
}
