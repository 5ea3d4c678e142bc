//! The command line: arguments in, one JSON object or a readable summary out, and an exit code that scripts can use.
//!
//! Read `cli` (what can be said), `console` (how it is answered), then a file of `commands` each. All work is done by the
//! library face and the packer; nothing here computes.
//!
//! # Fence
//! Unsafe code is denied but for the module listed with `#[allow(unsafe_code)]` below.
#![deny(unsafe_code)]

mod cli;
mod commands;
mod console;
mod interrupt;
mod report;
mod spans;
#[allow(unsafe_code)]
mod standard_output;
mod timeline;
mod tokens;
mod tracks;

use clap::Parser;
use clap::error::ErrorKind;
use cli::Cli;
use console::Console;
use estream::{Error, Exit};
use std::process::ExitCode;

fn main() -> ExitCode {
    if !standard_output::is_writable() {
        let message = "standard output is not open for writing: the answer would be lost";
        let exit = Console::new(false).fail(&Error::new("no-stdout", Exit::Runtime, message));
        return ExitCode::from(exit as u8);
    }
    let exit = match Cli::try_parse() {
        Ok(cli) => {
            let console = Console::new(cli.json).with_log(cli.verbose);
            commands::run(cli.command, &console).map_or_else(|error| console.fail(&error), |()| Exit::Ok)
        }
        Err(error) => usage(&error),
    };
    ExitCode::from(exit as u8)
}

/// Help and version go to stdout; a wrong command line is an error like any other: one line, or JSON.
fn usage(error: &clap::Error) -> Exit {
    match error.kind() {
        // A closed stdout or stderr is the reader's choice.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            return Exit::Ok;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !wants_json() => {
            let _ = error.print();
            return Exit::Usage;
        }
        _ => {}
    }
    let text = error.to_string();
    let reason = text.split("\n\nUsage:").next().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let reason = reason.replace("\n\n", "; ");
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    Console::new(wants_json()).fail(&Error::new("usage", Exit::Usage, line + " (see --help)"))
}

/// Whether JSON was asked for on a command line that could not be understood.
fn wants_json() -> bool {
    std::env::args_os().any(|argument| argument == "--json")
}
