//! `estream demo`: the whole way in a few seconds, with nothing but this program.
//!
//! A small model with random weights is made and packed, and a prompt runs through an arena of a sixteenth of its
//! experts. What is shown is measured in that very run: reads by the host's clock, kernels by the firmware's events; on
//! this device both read the same clock.

use crate::cli::Demo;
use crate::commands::run::prompt;
use crate::console::{Console, table};
use crate::interrupt::{Interrupt, interruptible};
use crate::report::RunReport;
use crate::timeline::{Busy, draw, window};
use estream::size::human;
use estream::{Arena, Error, Event, EventKind, Model, Options, Pass, Result};
use estream_pack::{Shape, SynthFormat, SynthOptions};
use serde::Serialize;
use std::fs;
use std::ops::Range;
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
    timeline: Timeline,
}

/// Unions of intervals of the pass, in milliseconds.
#[derive(Serialize)]
struct Timeline {
    total_ms: f64,
    reading_ms: f64,
    computing_ms: f64,
    /// 1 − max(reading, computing) / total.
    bubble_rate: f64,
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
    let (run, pass) = prompt(&pack, ids, options, None, start, console, interrupt)?;
    let picture = Picture::of(&pass);
    let expert_bytes = model.expert_bytes;
    let report = DemoReport { gguf_bytes, pack_bytes, expert_bytes, run, timeline: picture.timeline() };
    console.answer(&report, || {
        let kept = arguments.keep.as_ref().map(|folder| again(folder, &pack)).unwrap_or_default();
        format!("{}\n{}{kept}", picture.draw(&report.timeline), report.run.summary())
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

/// What ran when.
struct Picture {
    tracks: [(&'static str, Busy); 4],
    marks: Vec<(u64, String)>,
}

impl Picture {
    fn of(pass: &Pass) -> Self {
        let reads = pass.reads.iter().map(|read| read.begin_ns..read.end_ns).collect();
        let between = |begin, end| Busy::union(spans(&pass.events, begin, end));
        // The head has no end of its own: the report says how long it took.
        let head = pass.events.iter().filter(|event| event.kind == EventKind::Head);
        let head = head.map(|event| event.time_ns..event.time_ns + pass.report.head_ns).collect();
        let layers = pass.events.iter().filter(|event| event.kind == EventKind::Layer);
        Self {
            tracks: [
                ("loads", Busy::union(reads)),
                ("mixer, router", between(EventKind::Layer, EventKind::Routed)),
                ("experts", between(EventKind::BankBegin, EventKind::BankEnd)),
                ("head", Busy::union(head)),
            ],
            marks: layers.map(|event| (event.time_ns, format!("{}", event.layer))).collect(),
        }
    }

    fn timeline(&self) -> Timeline {
        let window = window(&self.tracks);
        let total = window.end - window.start;
        let reading = self.tracks[0].1.total();
        let computing =
            Busy::union(self.tracks[1..].iter().flat_map(|(_, busy)| busy.spans().to_vec()).collect())
                .total();
        let ms = |ns: u64| ns as f64 / 1e6;
        Timeline {
            total_ms: ms(total),
            reading_ms: ms(reading),
            computing_ms: ms(computing),
            bubble_rate: 1.0 - reading.max(computing) as f64 / total as f64,
        }
    }

    fn draw(&self, timeline: &Timeline) -> String {
        format!(
            "layer begins, and what was busy then\n{}reading {:.2} ms and computing {:.2} ms took {:.2} ms together: bubble rate {:.1} %\n",
            draw(&window(&self.tracks), &self.marks, &self.tracks),
            timeline.reading_ms,
            timeline.computing_ms,
            timeline.total_ms,
            100.0 * timeline.bubble_rate
        )
    }
}

/// Intervals from each `begin` to the next `end`; one whose end was dropped is left out.
fn spans(events: &[Event], begin: EventKind, end: EventKind) -> Vec<Range<u64>> {
    let mut open = None;
    let mut spans = Vec::new();
    for event in events {
        if event.kind == begin {
            open = Some(event.time_ns);
        } else if event.kind == end {
            spans.extend(open.take().map(|start| start..event.time_ns));
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_ends_at_its_own_end() {
        let event = |kind, time_ns| Event { kind, layer: 0, index: 0, group: 0, time_ns };
        let events = [
            event(EventKind::Layer, 1),
            event(EventKind::Routed, 5),
            event(EventKind::BankBegin, 6),
            event(EventKind::BankEnd, 9),
            event(EventKind::BankBegin, 10),
            event(EventKind::BankBegin, 12),
            event(EventKind::BankEnd, 20),
            event(EventKind::BankEnd, 30),
        ];
        assert_eq!(spans(&events, EventKind::BankBegin, EventKind::BankEnd), [6..9, 12..20]);
        assert_eq!(spans(&events, EventKind::Layer, EventKind::Routed).first(), Some(&(1..5)));
    }
}
