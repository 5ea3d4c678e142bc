//! `cargo xtask`: the one entry to checks, tests and long measurements, the same for people and for machines.
//!
//! It depends on nothing of the workspace, so it runs when the workspace does not build, and it is where the Hexagon
//! toolchain is entered: through the environment of one child process, never through `.cargo/config.toml`.
#![forbid(unsafe_code)]

mod ci;
mod full;
mod hexagon;
mod steps;
mod tidy;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tasks of the EStream workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the house rules.
    Tidy,
    /// Run all tests.
    Test,
    /// Run what a change must pass: formatting, rules, lints, tests, model checks, the Hexagon build.
    Ci,
    /// Run the whole grids and a full-size model; takes an hour and about 10 GB of disk.
    Full {
        /// Where the full-size model is made.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the task runner lives two folders below the root");
    let done = match Arguments::parse().task {
        Task::Tidy => tidy::run(root),
        Task::Test => ci::test(root),
        Task::Ci => ci::run(root),
        Task::Full { directory } => full::run(root, directory),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
