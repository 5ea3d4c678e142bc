//! The simulator's guest program, and the tests and measurements that run on the target inside it.
//!
//! These are packages of their own workspace, built for the simulator's architecture only: nothing of them can slip into an
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
const NO_SIMULATOR: &str = "no simulator is here: cargo xtask setup-hexagon";

/// Cargo on a package that is a workspace of its own, for the target.
fn command(root: &Path, package: &str, verb: &str, profile: &str) -> Result<Command, String> {
    ensure()?;
    let mut command = hexagon_cargo(root);
    command
        .args([verb, "--profile", profile, "-Zbuild-std=core,alloc", "-Zjson-target-spec", "--manifest-path"])
        .arg(root.join(package).join("Cargo.toml"))
        .arg("--target")
        .arg(root.join("targets").join(ARCH.target()).with_extension("json"));
    Ok(command)
}

/// Builds a package's program, and says where it is. `arguments` are cargo's.
fn build(
    root: &Path,
    package: &str,
    program: &str,
    profile: &str,
    arguments: &[&str],
) -> Result<PathBuf, String> {
    let mut command = command(root, package, "build", profile)?;
    let target = command.get_envs().find_map(|(key, value)| (key == "CARGO_TARGET_DIR").then_some(value?));
    let target = PathBuf::from(target.unwrap_or_default());
    run(command.args(["--bin", program]).args(arguments))?;
    Ok(target.join(ARCH.target()).join(profile).join(program))
}

/// Builds the guest program into `target-hexagon/sim`.
pub(crate) fn guest(root: &Path) -> Result<(), String> {
    let built = build(root, "tools/sim", GUEST, "release", &[])?;
    let folder = root.join("target-hexagon/sim");
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(io)?;
    // Moved into place whole: a simulator that runs keeps the file that it has.
    let (new, guest) = (folder.join("estream-sim.new"), folder.join(GUEST));
    std::fs::copy(&built, &new).and_then(|_| std::fs::rename(&new, &guest)).map_err(io)?;
    println!("{}", guest.strip_prefix(root).unwrap_or(&guest).display());
    Ok(())
}

/// Runs the program that calls the kernels on known sizes; what it tells.
pub(crate) fn packets(root: &Path) -> Result<String, String> {
    let qemu = qemu(root).ok_or(NO_SIMULATOR)?;
    let program = build(root, "tests/on-target", "packets", "packets", &["--features", "packets"])?;
    let mut command = Command::new(&qemu);
    let ended = command.args(["-cpu", ARCH.name()]).arg(&program).output();
    let ended = ended.map_err(|error| format!("{}: {error}", qemu.display()))?;
    // A program of the target has no other place to write to.
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    if ended.status.success() {
        Ok(told)
    } else {
        Err(format!("{}: {}\n{told}", program.display(), ended.status))
    }
}

/// Runs the tests of contract and firmware on the target, inside the simulator.
pub(crate) fn on_target(root: &Path) -> Result<(), String> {
    let qemu = qemu(root).ok_or(NO_SIMULATOR)?;
    let mut command = command(root, "tests/on-target", "test", "release")?;
    let variable = format!("CARGO_TARGET_{}_RUNNER", ARCH.target().to_uppercase().replace('-', "_"));
    command.arg("-Zpanic-abort-tests").env(variable, format!("{} -cpu {}", qemu.display(), ARCH.name()));
    run(&mut command)
}
