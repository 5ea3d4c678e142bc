//! `estream trace`: one pass, and what ran when: reads, banks, waits and kernels, for viewers and as a picture.

use crate::cli::Trace;
use crate::commands::distinct::distinct;
use crate::commands::run::{options, prepare, prompt, source};
use crate::console::Console;
use crate::interrupt::interruptible;
use crate::report::RunReport;
use crate::spans::{chrome, picture, spans};
use crate::tracks::{Overlap, Tracks};
use estream::{Error, Model, Result};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// What `trace --json` prints.
#[derive(Serialize)]
struct TraceReport {
    trace: String,
    svg: Option<String>,
    spans: usize,
    timeline: Overlap,
    run: RunReport,
}

/// Runs the command.
pub fn run(arguments: &Trace, console: &Console) -> Result<()> {
    let start = Instant::now();
    let options = options(&arguments.run.machine)?;
    for output in [Some(&arguments.output), arguments.svg.as_ref()].into_iter().flatten() {
        distinct(output, [arguments.run.pack.as_path()])?;
    }
    let model = Model::read(&arguments.run.pack)?;
    let source = source(&arguments.run, &model)?;
    let options = options.top_k(arguments.run.top_k);
    let report = interruptible(|interrupt| {
        let logits = arguments.run.logits.as_deref();
        let (prepared, ids, logits) =
            prepare(&arguments.run.pack, source, &options, logits, &model, console, interrupt)?;
        let (run, pass) = prompt(prepared, ids, options, logits, start, console, interrupt)?;
        let spans = spans(&pass, run.bank_bytes());
        write(&arguments.output, &chrome(&spans).to_string())?;
        if let Some(svg) = &arguments.svg {
            write(svg, &picture(&spans))?;
        }
        let tracks = Tracks::over(&spans);
        let report = TraceReport {
            trace: arguments.output.display().to_string(),
            svg: arguments.svg.as_ref().map(|path| path.display().to_string()),
            spans: spans.len(),
            timeline: tracks.overlap(),
            run,
        };
        Ok((report, tracks.draw()))
    })?;
    let (report, drawn) = report;
    console.answer(&report, || {
        let files: Vec<_> =
            [Some(&report.trace), report.svg.as_ref()].into_iter().flatten().cloned().collect();
        format!("{drawn}\n{}\n{} spans in {}\n", report.run.summary(), report.spans, files.join(" and "))
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::unwritable(path, &error))
}
