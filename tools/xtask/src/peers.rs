//! The comparison with a peer: llama.cpp from PyPI in a private environment, on the same file and ids as ours.
//!
//! What is compared and how stands in `tools/xtask/peers/compare.py`: the peer is a Python package, so its driver is one
//! too. Here the environment is made, with the package built for this processor, and our program.

use crate::steps::{cargo, number, output, run as command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The peer's version, and how its build finds this processor's instructions.
const PEER: &str = "llama-cpp-python==0.3.36";
const CMAKE: &str = "-DGGML_NATIVE=ON";

/// What to compare.
#[derive(clap::Args)]
pub(crate) struct Peers {
    /// The model as the peer reads it.
    #[arg(long)]
    gguf: PathBuf,
    /// The same model, packed.
    #[arg(long)]
    pack: PathBuf,
    /// A Python whose environment has the peer already; one is made under `target` otherwise.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Flags for estream, in one string.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// Prompt lengths.
    #[arg(long, default_value = "32,128,256,512,1024,2048,4096")]
    prompts: String,
    /// Prompt lengths at which the peer's settings are searched.
    #[arg(long, default_value = "512,1024")]
    search: String,
    /// Search only the peer's settings that are one step from the usual best.
    #[arg(long)]
    quick: bool,
    /// Turns of each program a row.
    #[arg(long, default_value_t = 3)]
    turns: u32,
}

/// Runs the comparison and prints its tables.
pub(crate) fn run(root: &Path, peers: &Peers) -> Result<(), String> {
    command(cargo(root).args(["build", "--release", "--package", "estream"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let estream = target.join("release/estream");
    let python = match &peers.python {
        Some(python) => python.clone(),
        None => environment(&target.join("peers"))?,
    };
    let inspected = output(Command::new(&estream).args(["--json", "inspect"]).arg(&peers.pack))?;
    let vocab = number(&inspected, "vocab").ok_or("`inspect --json` names no vocabulary")?;
    command(
        Command::new(python)
            .arg(root.join("tools/xtask/peers/compare.py"))
            .arg("--estream")
            .arg(estream)
            .arg("--gguf")
            .arg(&peers.gguf)
            .arg("--pack")
            .arg(&peers.pack)
            .args(["--search", &peers.search])
            .args(peers.quick.then_some("--quick"))
            .args(["--prompts", &peers.prompts, "--turns", &peers.turns.to_string()])
            .args(["--vocab", &vocab.to_string()])
            // One word: flags begin with a dash.
            .arg(format!("--flags={}", peers.flags)),
    )
}

/// A private environment with the peer in it, made once.
fn environment(directory: &Path) -> Result<PathBuf, String> {
    let python = directory.join("bin/python");
    if !directory.join("lib").exists() {
        command(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
    }
    command(Command::new(&python).env("CMAKE_ARGS", CMAKE).args(["-m", "pip", "install", "--quiet", PEER]))?;
    Ok(python)
}
