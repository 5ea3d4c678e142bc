//! `estream inspect`: what a GGUF or a pack contains.

use crate::cli::Inspect;
use crate::console::Console;
use estream::Result;

/// Runs the command.
pub fn run(arguments: &Inspect, console: &Console) -> Result<()> {
    let inspection = estream_pack::inspect(&arguments.file)?;
    console.answer(&inspection, || inspection.to_string())
}
