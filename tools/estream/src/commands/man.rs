//! `estream man`: the manual in roff, a page for the program and one for each command, made from the command line itself.

use crate::cli::Cli;
use crate::console::Console;
use clap::CommandFactory;
use clap_mangen::Man;
use estream::{Error, Exit, Result};
use serde::Serialize;

/// The answer in JSON.
#[derive(Serialize)]
struct Manual<'a> {
    man: &'a str,
}

/// Runs the command.
pub fn run(console: &Console) -> Result<()> {
    let mut program = Cli::command();
    // Gives the commands their full names, `estream run`, and the options that all share.
    program.build();
    let mut roff = Vec::new();
    let commands = program.get_subcommands().filter(|command| command.get_name() != "help");
    let pages = std::iter::once(&program).chain(commands).map(|page| Man::new(page.clone()));
    for page in pages {
        page.render(&mut roff).map_err(unrendered)?;
    }
    let roff = String::from_utf8(roff).map_err(unrendered)?;
    console.answer(&Manual { man: &roff }, || roff.clone())
}

fn unrendered(error: impl std::fmt::Display) -> Error {
    Error::new("output", Exit::Runtime, format!("the manual cannot be written: {error}"))
}
