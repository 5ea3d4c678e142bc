//! What a change must pass. Cheap checks come first, so that a slip costs seconds and not a build.

use crate::steps::{Steps, cargo, run as command};
use crate::{hexagon, tidy};
use std::path::Path;
use std::time::Duration;

/// The whole run, builds from nothing included, on a machine of two cores.
const LIMIT: Duration = Duration::from_secs(22 * 60);

/// All tests of the workspace, documentation examples included. With `simulator` those that need it may not skip.
fn tests(root: &Path, simulator: bool) -> Result<(), String> {
    let mut tests = cargo(root);
    tests.args(["test", "--workspace"]);
    if simulator {
        tests.env("ESTREAM_REQUIRE_SIM", "1");
    }
    command(&mut tests)
}

/// All tests, with the simulator where its parts have been built.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    tests(root, false)
}

/// Every check, in order.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut steps = Steps::new();
    steps.step("format", || command(cargo(root).args(["fmt", "--all", "--check"])))?;
    steps.step("tidy", || tidy::run(root))?;
    steps.step("lint", || {
        command(cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    let mut simulator = false;
    steps.step("hexagon", || hexagon::parts(root).map(|there| simulator = there))?;
    steps.step("test", || tests(root, simulator))?;
    if simulator {
        steps.step("on target", || hexagon::on_target(root))?;
    }
    steps.step("loom", || loom(root))?;
    steps.finish(LIMIT)
}

/// Model-checks the rings and the wait and wake of doorbells and threads: `--cfg loom` swaps their atomics for loom's.
/// The flag would rebuild everything in the ordinary target folder, so it has its own.
fn loom(root: &Path) -> Result<(), String> {
    command(
        cargo(root)
            .args(["test", "--package", "estream-idl", "--test", "loom*"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", root.join("target/loom")),
    )
}
