//! `libestream_skel.so` per architecture: the `skel` crate as a static library, linked by the loader's rules, then checked
//! by them ([`super::loader`]).
//!
//! The compiler's own `cdylib` crashes for Hexagon, hence the two steps. The link runs twice from the same archive: what
//! ships is stripped, and a copy with symbols and line tables, at the same addresses, lies in `debug/` for debuggers. Paths
//! of the machine are mapped away, so that the same sources give the same bytes.

use super::arch::Arch;
use super::crc::Crc;
use super::loader::{self, Report};
use super::sites;
use super::toolchain::{LINKER, ensure, hexagon_cargo};
use crate::steps::{output, run};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The skel's file name, which is also its SONAME.
pub(crate) const SKEL: &str = "libestream_skel.so";
const PROFILE: &str = "skel";

/// How the loader wants a shared object. Every flag is one of its rules.
const LINK: [&str; 19] = [
    "-m",
    "hexagonelf",
    "-shared",
    "-Bsymbolic",
    "--gc-sections",
    // The loader reads DT_HASH only.
    "--hash-style=sysv",
    // Relocations in read-only memory are an error here rather than there.
    "-z",
    "text",
    // Segment types that no known-good skel has.
    "-z",
    "norelro",
    "-z",
    "nognustack",
    // Two loaded segments, read-execute at address 0 and read-write, on pages of their own.
    "--no-rosegment",
    "-z",
    "max-page-size=4096",
    "-z",
    "separate-loadable-segments",
    "--build-id=none",
    "--undefined=estream_skel_handle_invoke",
];

/// Builds, links, checks and reports the skels of these architectures.
pub(crate) fn build(root: &Path, archs: &[Arch]) -> Result<(), String> {
    ensure()?;
    let mut built = Vec::new();
    for &arch in archs {
        let archive = archive(root, arch)?;
        let folder = root.join(arch.folder());
        let debug = folder.join("debug");
        std::fs::create_dir_all(&debug).map_err(|error| format!("{}: {error}", debug.display()))?;
        link(root, &archive, &debug.join(SKEL), &[])?;
        let skel = folder.join(SKEL);
        link(root, &archive, &skel, &["--strip-all"])?;
        built.push((skel, Some(arch)));
    }
    check(root, &built, false)
}

/// Checks skels (all that are built, where none is named); `add_crc` gives them the checksum section first.
pub(crate) fn elf(root: &Path, files: &[PathBuf], add_crc: bool) -> Result<(), String> {
    let mut files: Vec<_> = files.iter().map(|file| (file.clone(), Arch::of_path(file))).collect();
    if files.is_empty() {
        let built = Arch::ALL.map(|arch| (root.join(arch.folder()).join(SKEL), Some(arch)));
        files = built.into_iter().filter(|(file, _)| file.exists()).collect();
    }
    if files.is_empty() {
        return Err("no skel is built: cargo xtask skel".into());
    }
    check(root, &files, add_crc)
}

fn check(root: &Path, files: &[(PathBuf, Option<Arch>)], add_crc: bool) -> Result<(), String> {
    let mut failed = 0;
    println!(
        "{:<6} {:>8} {:>8} {:>7} {:>6} {:>12} {:>7} {:>10}  sha256",
        "arch", "bytes", "text", "data", "bss", "imports", "served", "crc"
    );
    for (file, arch) in files {
        let shown = file.strip_prefix(root).unwrap_or(file).display();
        let mut bytes = std::fs::read(file).map_err(|error| format!("{shown}: {error}"))?;
        if add_crc {
            bytes = super::crc::add(&bytes).map_err(|reason| format!("{shown} {reason}"))?;
            std::fs::write(file, &bytes).map_err(|error| format!("{shown}: {error}"))?;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let checked = loader::check(&bytes, &name, *arch)
            .and_then(|report| sites::check(&bytes).map(|served| (report, served)));
        match checked {
            Ok((report, served)) => println!("{}  {shown}", line(&report, served, &bytes)),
            Err(breaches) => {
                failed += 1;
                for breach in breaches {
                    println!("{shown}: {breach}");
                }
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("a DSP would refuse {failed} of {} skels", files.len())) }
}

/// A row of the table; `served` is the number of packets that the simulator serves itself.
fn line(report: &Report, served: usize, bytes: &[u8]) -> String {
    let crc = match report.crc {
        Crc::Right(sum) => format!("{sum:#010x}"),
        Crc::Absent | Crc::Wrong => "none".into(),
    };
    let (all, weak) = report.imports;
    let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{:<6} {:>8} {:>8} {:>7} {:>6} {:>12} {served:>7} {crc:>10}  {sha256}",
        report.arch.name(),
        report.file,
        report.text,
        report.data,
        report.bss,
        format!("{all} ({weak} weak)"),
    )
}

/// Compiles the static library; its path.
fn archive(root: &Path, arch: Arch) -> Result<PathBuf, String> {
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"));
    let flags = [(root, "."), (&cargo_home, "cargo")]
        .map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    let mut command = hexagon_cargo(root);
    command
        .args(["rustc", "--package", "estream-skel", "--profile", PROFILE, "--crate-type", "staticlib"])
        .args(["-Zbuild-std=core,alloc", "-Zjson-target-spec", "--target"])
        .arg(root.join("targets").join(arch.target()).with_extension("json"))
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    let target = command.get_envs().find_map(|(key, value)| (key == "CARGO_TARGET_DIR").then_some(value?));
    let target = PathBuf::from(target.unwrap_or_default());
    run(&mut command)?;
    Ok(target.join(arch.target()).join(PROFILE).join("libestream_skel.a"))
}

fn link(root: &Path, archive: &Path, out: &Path, more: &[&str]) -> Result<(), String> {
    output(
        Command::new(LINKER)
            .args(LINK)
            .arg(format!("-soname={SKEL}"))
            .arg(format!("--version-script={}", root.join("linker/skel.map").display()))
            .args(more)
            .arg("-o")
            .arg(out)
            .arg(archive),
    )
    .map(drop)
}

#[cfg(test)]
mod tests;
