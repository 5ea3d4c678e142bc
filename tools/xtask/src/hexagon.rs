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
mod sites;
mod skel;
mod toolchain;

pub(crate) use arch::Archs;
pub(crate) use sign::{run_signer as sign, serial};
pub(crate) use simulator::{guest, on_target, packets};
pub(crate) use skel::{build as skel, elf};
pub(crate) use toolchain::setup;

use std::path::Path;

/// Makes everything that Hexagon needs: the toolchain and simulator, the skel of every architecture checked as a DSP's
/// loader would, and the simulator's guest. Whether it is all there: where the toolchain is absent and cannot be
/// installed it is skipped aloud, and `ESTREAM_REQUIRE_HEXAGON=1` makes that an error.
pub(crate) fn parts(root: &Path) -> Result<bool, String> {
    if let Err(reason) = setup(root) {
        if std::env::var_os("ESTREAM_REQUIRE_HEXAGON").is_some_and(|value| value == "1") {
            return Err(reason);
        }
        println!("skipped: everything on Hexagon ({reason})");
        return Ok(false);
    }
    skel(root, &arch::Arch::ALL)?;
    elf(root, &[], false)?;
    guest(root)?;
    Ok(true)
}
