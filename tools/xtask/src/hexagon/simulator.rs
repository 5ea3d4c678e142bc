//! The simulator's guest program, and the tests that run on the target inside it.
//!
//! Both are packages of their own workspace, built for the simulator's architecture only: nothing of them can slip into an
//! ordinary build.

use super::arch::Arch;
use super::toolchain::{ensure, hexagon_cargo, qemu};
use crate::steps::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the simulator runs.
const ARCH: Arch = Arch::V73;
/// The guest program's name.
const GUEST: &str = "estream-sim";

/// Cargo on a package that is a workspace of its own, for the target.
fn command(root: &Path, package: &str, verb: &str) -> Result<Command, String> {
    ensure()?;
    let mut command = hexagon_cargo(root);
    command
        .args([verb, "--release", "-Zbuild-std=core,alloc", "-Zjson-target-spec", "--manifest-path"])
        .arg(root.join(package).join("Cargo.toml"))
        .arg("--target")
        .arg(root.join("targets").join(ARCH.target()).with_extension("json"));
    Ok(command)
}

/// Builds the guest program into `target-hexagon/sim`.
pub(crate) fn guest(root: &Path) -> Result<(), String> {
    let mut command = command(root, "tools/sim", "build")?;
    let target = command.get_envs().find_map(|(key, value)| (key == "CARGO_TARGET_DIR").then_some(value?));
    let target = PathBuf::from(target.unwrap_or_default());
    run(&mut command)?;
    let built = target.join(ARCH.target()).join("release").join(GUEST);
    let folder = root.join("target-hexagon/sim");
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(io)?;
    // Moved into place whole: a simulator that runs keeps the file that it has.
    let (new, guest) = (folder.join("estream-sim.new"), folder.join(GUEST));
    std::fs::copy(&built, &new).and_then(|_| std::fs::rename(&new, &guest)).map_err(io)?;
    println!("{}", guest.strip_prefix(root).unwrap_or(&guest).display());
    Ok(())
}

/// Runs the tests of contract and firmware on the target, inside the simulator.
pub(crate) fn on_target(root: &Path) -> Result<(), String> {
    let qemu = qemu(root).ok_or("no simulator is here: cargo xtask setup-hexagon")?;
    let mut command = command(root, "tests/on-target", "test")?;
    let variable = format!("CARGO_TARGET_{}_RUNNER", ARCH.target().to_uppercase().replace('-', "_"));
    command.arg("-Zpanic-abort-tests").env(variable, format!("{} -cpu {}", qemu.display(), ARCH.name()));
    run(&mut command)
}
