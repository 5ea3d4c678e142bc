//! What a change must pass. Cheap checks come first, so that a slip costs seconds and not a build.

use crate::steps::{Steps, cargo, run as command};
use crate::{hexagon, tidy};
use std::path::Path;
use std::time::Duration;

/// The whole run, builds from nothing included, on a machine of two cores.
const LIMIT: Duration = Duration::from_secs(22 * 60);

/// All tests of the workspace, documentation examples included.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    command(cargo(root).args(["test", "--workspace"]))
}

/// Every check, in order.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut steps = Steps::new();
    steps.step("format", || command(cargo(root).args(["fmt", "--all", "--check"])))?;
    steps.step("tidy", || tidy::run(root))?;
    steps.step("lint", || {
        command(cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    steps.step("test", || test(root))?;
    steps.step("loom", || loom(root))?;
    steps.step("hexagon", || hexagon::build(root))?;
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
