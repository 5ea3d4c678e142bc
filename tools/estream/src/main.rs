//! The command line: arguments in, one JSON object or a readable summary out, and an exit code that scripts can use.
//!
//! Read `cli` (what can be said), `console` (how it is answered), then a file of `commands` each. All work is done by the
//! library face and the packer; nothing here computes.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod console;
mod report;
mod timeline;
mod tokens;

use clap::Parser;
use clap::error::ErrorKind;
use cli::Cli;
use console::Console;
use estream::{Error, Exit};
use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => {
            let console = Console::new(cli.json);
            commands::run(cli.command, &console).map_or_else(|error| console.fail(&error), |()| Exit::Ok)
        }
        Err(error) => usage(&error),
    };
    ExitCode::from(exit as u8)
}

/// Help and version go to stdout; a wrong command line is an error like any other, in JSON where JSON was asked for.
fn usage(error: &clap::Error) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed stdout is the reader's choice.
        let _ = error.print();
        return Exit::Ok;
    }
    if std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        let message = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
        Console::new(true).fail(&Error::new("usage", Exit::Usage, message));
    } else {
        let _ = error.print();
    }
    Exit::Usage
}
