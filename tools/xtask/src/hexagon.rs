//! Hexagon: the toolchain, the check that the firmware compiles for a core without std, the skel and what a DSP's loader
//! would say about it.

mod arch;
mod crc;
mod elf;
mod imports;
mod loader;
#[cfg(test)]
mod sample;
mod sign;
mod simulator;
mod skel;
mod toolchain;

pub(crate) use arch::Archs;
pub(crate) use sign::{run_signer as sign, serial};
pub(crate) use simulator::{guest, on_target};
pub(crate) use skel::{build as skel, elf};
pub(crate) use toolchain::setup;

use crate::steps::run;
use std::path::Path;

const TARGET: &str = "hexagon-unknown-none-elf";

/// Builds the contract and the firmware for Hexagon. Where the toolchain is absent and cannot be installed the build is
/// skipped aloud; `ESTREAM_REQUIRE_HEXAGON=1` makes that an error.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    if let Err(reason) = toolchain::ensure() {
        if std::env::var_os("ESTREAM_REQUIRE_HEXAGON").is_some_and(|value| value == "1") {
            return Err(reason);
        }
        println!("skipped: the Hexagon build ({reason})");
        return Ok(());
    }
    run(toolchain::hexagon_cargo(root).args(["build", "-Zbuild-std=core,alloc", "--target", TARGET]).args([
        "--package",
        "estream-idl",
        "--package",
        "estream-dsp",
    ]))
}
