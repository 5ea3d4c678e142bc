//! The Hexagon build: the firmware for a core without std, by Debian's `rustc-web` with its matching `rust-src`.
//!
//! rustup's stable toolchain has no sources of `core` for cargo's `-Zbuild-std`, and Debian's pair has: cargo is
//! rustup's, the compiler Debian's. `RUSTC_BOOTSTRAP` opens the unstable flag for this child process alone. Where the
//! packages are absent and cannot be installed the build is skipped aloud; `ESTREAM_REQUIRE_HEXAGON=1` makes that an
//! error.

use crate::steps::{cargo, output, run};
use std::path::Path;
use std::process::Command;

const RUSTC: &str = "/usr/bin/rustc";
/// The version that the Hexagon code is checked with; newer ones are adopted on purpose, not by an upgrade.
const VERSION: &str = "1.96.";
const SOURCES: &str = "lib/rustlib/src/rust/library/core/Cargo.toml";
const PACKAGES: [&str; 3] = ["rustc-web=1.96.*", "rust-web-src=1.96.*", "lld-22"];
const TARGET: &str = "hexagon-unknown-none-elf";

/// Builds the contract and the firmware for Hexagon.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    if let Err(missing) = toolchain() {
        println!("{missing}; installing {}", PACKAGES.join(", "));
        if let Err(reason) = install().and_then(|()| toolchain()) {
            if std::env::var_os("ESTREAM_REQUIRE_HEXAGON").is_some_and(|value| value == "1") {
                return Err(reason);
            }
            println!("skipped: the Hexagon build ({reason})");
            return Ok(());
        }
    }
    run(cargo(root)
        .args(["build", "-Zbuild-std=core,alloc", "--target", TARGET])
        .args(["--package", "estream-idl", "--package", "estream-dsp"])
        .env("RUSTC", RUSTC)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", root.join("target/hexagon"))
        .env_remove("RUSTFLAGS")
        // Cargo's own, with the libraries of another compiler.
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("RUSTUP_TOOLCHAIN"))
}

/// Whether compiler, sources and linker are here, and of the pinned version.
fn toolchain() -> Result<(), String> {
    let version = output(Command::new(RUSTC).arg("--version"))?;
    if !version.starts_with(&format!("rustc {VERSION}")) {
        return Err(format!("{RUSTC} is {}, not {VERSION}*", version.trim()));
    }
    let sysroot = output(Command::new(RUSTC).args(["--print", "sysroot"]))?;
    let sources = Path::new(sysroot.trim()).join(SOURCES);
    if !sources.exists() {
        return Err(format!("{} is missing", sources.display()));
    }
    output(Command::new("ld.lld-22").arg("--version")).map(drop)
}

fn install() -> Result<(), String> {
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update", "--quiet"])?;
    apt(&[&["install", "--quiet", "--yes", "--no-install-recommends", "--allow-downgrades"][..], &PACKAGES]
        .concat())
}
