//! `estream demo`: the whole way in a few seconds, with nothing but this program.
//!
//! A small model with random weights is made and packed, and a prompt runs through an arena of a sixteenth of its
//! experts. What is shown is measured in that very run: reads by the host's clock, kernels by the firmware's events; on
//! this device both read the same clock.

use crate::cli::Demo;
use crate::commands::run::{Source, prepare, prompt};
use crate::console::{Console, table};
use crate::interrupt::{Interrupt, interruptible};
use crate::report::RunReport;
use crate::tracks::{Overlap, Tracks};
use estream::size::human;
use estream::{Arena, Error, Model, Options, Result};
use estream_pack::{Shape, SynthFormat, SynthOptions};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Tokens of the prompt.
const TOKENS: u32 = 256;
/// The arena is the model's experts divided by this.
const ARENA_SHARE: u64 = 16;

/// What `demo --json` prints.
#[derive(Serialize)]
struct DemoReport {
    gguf_bytes: u64,
    pack_bytes: u64,
    expert_bytes: u64,
    run: RunReport,
    timeline: Overlap,
}

/// Runs the command.
pub fn run(arguments: &Demo, console: &Console) -> Result<()> {
    interruptible(|interrupt| show(arguments, console, interrupt))
}

fn show(arguments: &Demo, console: &Console, interrupt: &Interrupt) -> Result<()> {
    // Declared first, dropped last: the folder goes when everything in it is closed.
    let temporary;
    let folder: &Path = match &arguments.keep {
        Some(folder) => {
            fs::create_dir_all(folder).map_err(|error| Error::unwritable(folder, &error))?;
            folder
        }
        None => {
            temporary = tempfile::Builder::new()
                .prefix("estream-demo-")
                .tempdir()
                .map_err(|error| Error::unwritable(&std::env::temp_dir(), &error))?;
            temporary.path()
        }
    };
    let (gguf, pack) = (folder.join("demo.gguf"), folder.join("demo.estream"));
    let (gguf_bytes, pack_bytes) = make(&gguf, &pack)?;
    let model = Model::read(&pack)?;
    let arena = (model.expert_bytes / ARENA_SHARE).max(model.record_bytes);
    console.say(&table(&[
        ("model", format!("{}: random weights, {}", gguf.display(), human(gguf_bytes))),
        ("pack", format!("{}, {}", pack.display(), human(pack_bytes))),
        (
            "experts",
            format!(
                "{} in {} layers of {}",
                human(model.expert_bytes),
                model.layer_experts.len(),
                model.experts
            ),
        ),
        ("", format!("streamed through an arena of {}, 1/{ARENA_SHARE} of them", human(arena))),
    ]))?;
    console.say("\n")?;

    let start = Instant::now();
    let ids = (0..TOKENS).map(|position| (position * 7919 + 13) % model.vocab).collect();
    let options = Options::new().arena(Arena::Bytes(arena));
    let source = Source::Ids(ids);
    let (prepared, ids, _) = prepare(&pack, source, &options, None, &model, console, interrupt)?;
    let (run, pass) = prompt(prepared, ids, options, None, start, console, interrupt)?;
    let tracks = Tracks::of(&pass);
    let expert_bytes = model.expert_bytes;
    let report = DemoReport { gguf_bytes, pack_bytes, expert_bytes, run, timeline: tracks.overlap() };
    console.answer(&report, || {
        let kept = arguments.keep.as_ref().map(|folder| again(folder, &pack)).unwrap_or_default();
        format!("{}\n{}{kept}", tracks.draw(), report.run.summary())
    })
}

/// Writes the model and packs it.
fn make(gguf: &Path, pack: &Path) -> Result<(u64, u64)> {
    let quiet = |_, _| ();
    let made = estream_pack::synth(&SynthOptions {
        shape: shape(),
        layers: None,
        seed: 1,
        skew: 0.5,
        format: SynthFormat::Gguf,
        output: gguf.to_owned(),
        progress: &quiet,
    })?;
    let packed = estream_pack::convert(gguf, pack, &estream_pack::Options { order: None, progress: &quiet })?;
    Ok((made.file_bytes, packed.file_bytes))
}

/// Small enough for a second, large enough that reading and computing can be told apart.
fn shape() -> Shape {
    Shape {
        name: "demo".to_owned(),
        layers: 6,
        width: 512,
        heads: 8,
        kv_heads: 8,
        head_width: 64,
        expert_width: 256,
        experts: 32,
        chosen: 4,
        vocab: 2048,
        ..Shape::tiny()
    }
}

fn again(folder: &Path, pack: &Path) -> String {
    let folder = folder.display();
    format!("\nkept in {folder}; try: estream run {} --tokens 1,2,3 --arena 4MiB\n", pack.display())
}
