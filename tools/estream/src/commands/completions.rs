//! `estream completions`: a script that completes the command line in a shell.

use crate::cli::{Cli, Completions};
use crate::console::Console;
use clap::CommandFactory;
use estream::{Error, Exit, Result};
use serde::Serialize;

/// The answer in JSON.
#[derive(Serialize)]
struct Script<'a> {
    shell: String,
    script: &'a str,
}

/// Runs the command.
pub fn run(arguments: &Completions, console: &Console) -> Result<()> {
    let mut program = Cli::command();
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    let script = String::from_utf8(script).map_err(|error| {
        Error::new("output", Exit::Runtime, format!("the script cannot be written: {error}"))
    })?;
    let shell = arguments.shell.to_string();
    console.answer(&Script { shell, script: &script }, || script.clone())
}
