//! How the command line answers: results on stdout, progress and errors for people on stderr.
//!
//! A reader that closes the pipe early (`| head`) has got what it wanted: that is success, never a panic. Progress is
//! drawn on terminals only, so that pipes and logs hold no control bytes.

use estream::{Error, Exit, Result};
use estream_idl::log::Record;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// The two ways to answer.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    json: bool,
    verbose: bool,
}

impl Console {
    /// A console that answers in JSON, or for people.
    #[must_use]
    pub const fn new(json: bool) -> Self {
        Self { json, verbose: false }
    }

    /// The same console, which also tells what the firmware says if `verbose`.
    #[must_use]
    pub const fn with_log(self, verbose: bool) -> Self {
        Self { verbose, ..self }
    }

    /// Whether results are wanted as JSON.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints what the firmware said, where that is wanted: seconds since its first word, level and message a line.
    pub fn log(&self, records: &[Record]) {
        let Some(first) = records.first().filter(|_| self.verbose) else { return };
        for record in records {
            let seconds = record.time_ns.saturating_sub(first.time_ns) as f64 / 1e9;
            // A log that cannot be written is no reason to lose the answer.
            let _ = writeln!(io::stderr(), "{seconds:10.4} {}: {record}", record.message.level());
        }
    }

    /// Prints a result: `value` as one JSON object, or the text that `summary` makes.
    pub fn answer<T: Serialize>(&self, value: &T, summary: impl FnOnce() -> String) -> Result<()> {
        let text = if self.json { object(value)? } else { printable(&summary()) };
        print(&text)
    }

    /// Prints text that is no result; nothing in JSON.
    pub fn say(&self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { print(&printable(text)) }
    }

    /// Prints an error, and says how the process ends.
    pub fn fail(&self, error: &Error) -> Exit {
        // Where even the error cannot be told, the exit code still tells it.
        let _ = match object(error) {
            Ok(text) if self.json => print(&text),
            _ => {
                let line = printable(&error.to_string()).replace('\n', " ");
                writeln!(io::stderr(), "estream: {line}")
                    .map_err(|error| Error::unwritable(Path::new("stderr"), &error))
            }
        };
        error.exit
    }

    /// A bar of bytes, drawn where stderr is a terminal.
    #[must_use]
    pub fn bytes_bar(&self, what: &'static str) -> Bar {
        bar(what, "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}")
    }

    /// A bar of steps, drawn where stderr is a terminal.
    #[must_use]
    pub fn steps_bar(&self, what: &'static str) -> Bar {
        bar(what, "{msg} {wide_bar} {pos}/{len} {eta}")
    }
}

fn bar(what: &'static str, template: &str) -> Bar {
    let target =
        if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what);
    Bar(bar)
}

/// A progress bar that vanishes when it is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Shows `done` of `total`.
    pub fn show(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn object<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map(|text| text + "\n").map_err(|error| {
        Error::new("output", Exit::Runtime, format!("the result cannot be written as JSON: {error}"))
    })
}

fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::unwritable(Path::new("stdout"), &error))
        }
        _ => Ok(()),
    }
}

/// Names from hostile files may hold control characters, which must not reach a terminal.
fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "\u{fffd}")
}

/// Lines of a name and a value, the values aligned.
#[must_use]
pub fn table(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}
