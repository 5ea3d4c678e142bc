//! `cargo xtask`: the one entry to checks, tests and long measurements, the same for people and for machines.
//!
//! It depends on two pure crates of the workspace (`estream-patch` and what that reads words with), so it runs when the
//! rest does not build, and it is where the Hexagon toolchain is entered: through the environment of one child process,
//! never through `.cargo/config.toml`.
#![forbid(unsafe_code)]

mod ci;
mod full;
mod hexagon;
mod packets;
mod peers;
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
    /// Install the Hexagon toolchain and the simulator from Debian's packages; upgrades nothing else.
    SetupHexagon,
    /// Build `libestream_skel.so`, check it as a DSP's loader would, print sizes and sums.
    Skel {
        /// The Hexagon version, or all of them.
        #[arg(long, default_value = "all")]
        arch: hexagon::Archs,
    },
    /// Check skels as a DSP's loader would.
    Elf {
        /// Add the checksum section that some newer images want.
        #[arg(long)]
        crc: bool,
        /// Skels; those in `target-hexagon` where none is named.
        files: Vec<PathBuf>,
    },
    /// Sign skels with the vendor's signer, where `HEXAGON_SDK_ROOT` has one.
    Sign {
        /// Make the test signature of the device with this serial number instead.
        #[arg(long, value_parser = hexagon::serial)]
        serial: Option<u32>,
        /// Skels; those in `target-hexagon` where none is named.
        files: Vec<PathBuf>,
    },
    /// Build the simulator's guest program into `target-hexagon/sim`.
    SimGuest,
    /// Run the tests of contract and firmware on the target, inside the simulator.
    OnTarget,
    /// Count the packets of the Hexagon kernels in the simulator and hold them against `tools/xtask/packets.snap`.
    Packets {
        /// Write the snapshot anew instead.
        #[arg(long)]
        update: bool,
    },
    /// Compare with llama.cpp on the same file and ids: speed, cold start, memory.
    Peers(peers::Peers),
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
        Task::SetupHexagon => hexagon::setup(root),
        Task::Skel { arch } => hexagon::skel(root, arch.list()),
        Task::Elf { crc, files } => hexagon::elf(root, &files, crc),
        Task::Sign { serial, files } => {
            let sdk = std::env::var_os("HEXAGON_SDK_ROOT").map(PathBuf::from);
            hexagon::sign(root, sdk.as_deref(), serial, &files)
        }
        Task::SimGuest => hexagon::guest(root),
        Task::OnTarget => hexagon::on_target(root),
        Task::Packets { update } => packets::run(root, update),
        Task::Peers(peers) => peers::run(root, &peers),
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
