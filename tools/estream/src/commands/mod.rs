//! The commands, one file each: take arguments, call the library, answer.

mod bench;
mod completions;
mod demo;
mod device;
mod distinct;
mod inspect;
mod man;
mod pack;
mod plot;
mod run;
mod synth;
mod tokenize;
mod trace;
mod tune;
mod verify;

use crate::cli::Command;
use crate::console::Console;
use estream::Result;

/// Runs a command.
pub fn run(command: Command, console: &Console) -> Result<()> {
    match command {
        Command::Pack(arguments) => pack::run(&arguments, console),
        Command::Inspect(arguments) => inspect::run(&arguments, console),
        Command::Verify(arguments) => verify::run(&arguments, console),
        Command::Run(arguments) => run::run(&arguments, console),
        Command::Bench(arguments) => bench::run(&arguments, console),
        Command::Trace(arguments) => trace::run(&arguments, console),
        Command::Tune(arguments) => tune::run(&arguments, console),
        Command::Tokenize(arguments) => tokenize::run(&arguments, console),
        Command::Demo(arguments) => demo::run(&arguments, console),
        Command::Synth(arguments) => synth::run(arguments, console),
        Command::Man => man::run(console),
        Command::Completions(arguments) => completions::run(&arguments, console),
    }
}
