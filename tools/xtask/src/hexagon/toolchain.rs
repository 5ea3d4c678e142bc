//! The toolchain and the simulator, from Debian's packages; no vendor SDK.
//!
//! rustup's stable toolchain has no sources of `core` for cargo's `-Zbuild-std`, and Debian's pair of compiler and sources
//! has: cargo is rustup's, the compiler Debian's, and `RUSTC_BOOTSTRAP` opens the unstable flags for that child process
//! alone. The packages are installed where they are absent, of pinned versions, and only if that upgrades and removes
//! nothing. The simulator is newer than the distribution: its package is one static program, which is unpacked into a
//! cache folder with a package index of its own, so that the system never hears of the newer suite.

use crate::steps::{cargo, output, run};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const RUSTC: &str = "/usr/bin/rustc";
pub(super) const LINKER: &str = "ld.lld-22";
/// Tests assemble single words with it; a build needs none.
const ASSEMBLER: &str = "llvm-mc-22";
/// The version that the Hexagon code is checked with; newer ones are adopted on purpose, not by an upgrade.
const VERSION: &str = "1.96.";
const SOURCES: &str = "lib/rustlib/src/rust/library/core/Cargo.toml";
const PACKAGES: [&str; 4] = ["rustc-web=1.96.*", "rust-web-src=1.96.*", "lld-22", "llvm-22"];
/// Older ones do not know the processors that the skel is built for.
const QEMU_MAJOR: u32 = 10;
/// Suites of Debian with a simulator that is new enough, the preferred one first, and the versions taken from them.
const QEMU_SUITES: [(&str, &str); 2] = [("sid", "1:11.*"), ("bookworm-backports", "1:10.*")];
/// The simulator in its package and in the cache folder.
const QEMU: &str = "usr/bin/qemu-hexagon";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Installs what is missing, and says what there is.
pub(crate) fn setup(root: &Path) -> Result<(), String> {
    ensure()?;
    println!("compiler   {}", output(Command::new(RUSTC).arg("--version"))?.trim());
    println!("linker     {}", output(Command::new(LINKER).arg("--version"))?.trim());
    let qemu = match qemu(root) {
        Some(qemu) => qemu,
        None => fetch_qemu(root)?,
    };
    println!(
        "simulator  {} {}",
        qemu.display(),
        output(Command::new(&qemu).arg("--version"))?.lines().next().unwrap_or_default()
    );
    Ok(())
}

/// The cargo that builds for Hexagon: compiler, flags and target folder set for this process only.
pub(super) fn hexagon_cargo(root: &Path) -> Command {
    let mut command = cargo(root);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    command
        .env("RUSTC", RUSTC)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", target.join("hexagon"))
        .env_remove("RUSTFLAGS")
        // Cargo's own, with the libraries of another compiler.
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Sees to it that compiler, sources, linker and assembler are here.
pub(super) fn ensure() -> Result<(), String> {
    let Err(missing) = present() else { return Ok(()) };
    println!("{missing}; installing {}", PACKAGES.join(", "));
    install().and_then(|()| present()).map_err(|reason| {
        format!("the Hexagon toolchain is not here and cannot be installed: {reason}\nOn Debian 12 with its security suite: apt-get install --no-install-recommends '{}'", PACKAGES.join("' '"))
    })
}

/// Whether compiler, sources, linker and assembler are here, and of the pinned version.
pub(super) fn present() -> Result<(), String> {
    let version = output(Command::new(RUSTC).arg("--version"))?;
    if !version.starts_with(&format!("rustc {VERSION}")) {
        return Err(format!("{RUSTC} is {}, not {VERSION}*", version.trim()));
    }
    let sysroot = output(Command::new(RUSTC).args(["--print", "sysroot"]))?;
    let sources = Path::new(sysroot.trim()).join(SOURCES);
    if !sources.exists() {
        return Err(format!("{} is missing", sources.display()));
    }
    output(Command::new(LINKER).arg("--version"))?;
    output(Command::new(ASSEMBLER).arg("--version")).map(drop)
}

fn install() -> Result<(), String> {
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C").arg("--quiet");
        command
    };
    let install = |command: &mut Command| {
        command.args(["install", "--yes", "--no-install-recommends"]).args(PACKAGES);
    };
    run(apt().arg("update"))?;
    let mut simulated = apt();
    simulated.arg("--simulate");
    install(&mut simulated);
    let changed = changes(&output(&mut simulated)?);
    if !changed.is_empty() {
        return Err(format!("that would upgrade or remove {}", changed.join(", ")));
    }
    let mut real = apt();
    install(&mut real);
    run(&mut real)
}

/// Packages that a simulated run would upgrade or remove; those of the compiler itself may move to the pinned version.
fn changes(simulation: &str) -> Vec<String> {
    let ours =
        |name: &str| ["rustc-web", "rust-web-src", "libstd-rust-web"].iter().any(|own| name.starts_with(own));
    simulation
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (verb, name, version) = (words.next()?, words.next()?, words.next().unwrap_or_default());
            // An upgrade names the old version in brackets, an installation does not.
            let touched = verb == "Remv" || verb == "Inst" && version.starts_with('[');
            (touched && !ours(name)).then(|| name.to_string())
        })
        .collect()
}

/// The simulator: the one of the system where it is new enough, or the one in the cache folder.
pub(crate) fn qemu(root: &Path) -> Option<PathBuf> {
    let names = ["qemu-hexagon", "qemu-hexagon-static"].map(PathBuf::from);
    names.into_iter().chain([tools(root).join(QEMU)]).find(|path| {
        let version = output(Command::new(path).arg("--version"));
        version.is_ok_and(|version| major(&version).is_some_and(|major| major >= QEMU_MAJOR))
    })
}

/// The major version in `qemu-hexagon version 10.0.2 (…)`.
fn major(version: &str) -> Option<u32> {
    version.split_whitespace().skip_while(|word| *word != "version").nth(1)?.split('.').next()?.parse().ok()
}

fn tools(root: &Path) -> PathBuf {
    root.join("target-hexagon/tools")
}

fn fetch_qemu(root: &Path) -> Result<PathBuf, String> {
    let mut reasons = Vec::new();
    for (suite, version) in QEMU_SUITES {
        match fetch_from(root, suite, version) {
            Ok(()) => {
                if let Some(qemu) = qemu(root) {
                    return Ok(qemu);
                }
                reasons
                    .push(format!("{suite}: the package has no simulator of version {QEMU_MAJOR} or newer"));
            }
            Err(reason) => reasons.push(format!("{suite}: {reason}")),
        }
    }
    Err(format!(
        "no qemu-hexagon of version {QEMU_MAJOR} or newer is here, and none could be fetched:\n{}\nInstall one, or unpack Debian's qemu-user into {}",
        reasons.join("\n"),
        tools(root).display()
    ))
}

/// Downloads the package with an index that lives in the cache folder, and unpacks it there.
fn fetch_from(root: &Path, suite: &str, version: &str) -> Result<(), String> {
    let tools = tools(root);
    let apt = tools.join("apt").join(suite);
    let io = |error: std::io::Error| format!("{}: {error}", apt.display());
    for folder in ["lists/partial", "cache/archives/partial", "package"] {
        std::fs::create_dir_all(apt.join(folder)).map_err(io)?;
    }
    let sources = apt.join("sources.list");
    let line = format!("deb [signed-by={KEYRING}] http://deb.debian.org/debian {suite} main\n");
    std::fs::write(&sources, line).map_err(io)?;
    let option = |name: &str, path: &Path| format!("{name}={}", path.display());
    let package = apt.join("package");
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.current_dir(&package).env("LC_ALL", "C").arg("--quiet");
        for option in [
            option("Dir::Etc::SourceList", &sources),
            "Dir::Etc::SourceParts=-".into(),
            option("Dir::State::Lists", &apt.join("lists")),
            option("Dir::Cache", &apt.join("cache")),
            "APT::Sandbox::User=".into(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    };
    run(apt_get().arg("update"))?;
    run(apt_get().arg("download").arg(format!("qemu-user={version}")))?;
    let unpacked = apt.join("root");
    for file in std::fs::read_dir(&package).map_err(io)? {
        run(Command::new("dpkg").arg("--extract").arg(file.map_err(io)?.path()).arg(&unpacked))?;
    }
    // Of several hundred MB, the one program: a file of that name, whatever the package links to it.
    let program = std::fs::read(unpacked.join(QEMU)).map_err(|error| format!("{QEMU}: {error}"))?;
    let kept = tools.join(QEMU);
    std::fs::create_dir_all(kept.parent().unwrap_or(&tools)).map_err(io)?;
    std::fs::write(&kept, program).map_err(io)?;
    std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o755)).map_err(io)?;
    std::fs::remove_dir_all(tools.join("apt")).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_and_removals_are_seen_in_a_simulated_run() {
        let simulation = "Reading package lists...\n\
            Inst libllvm22 (1:22.1.8 Debian-Security:12/oldstable-security [amd64])\n\
            Inst libc6 [2.36-9] (2.41-1 Debian:testing [amd64])\n\
            Inst rustc-web [1.85.0] (1.96.0 Debian-Security:12 [amd64])\n\
            Remv gcc-12 [12.2.0-14]\n\
            Conf libllvm22 (1:22.1.8 Debian-Security:12/oldstable-security [amd64])\n";
        assert_eq!(changes(simulation), ["libc6", "gcc-12"]);
        assert_eq!(changes("Inst lld-22 (1:22.1.8 Debian-Security:12 [amd64])\n"), [""; 0]);
    }

    #[test]
    fn the_simulators_version_is_read() {
        assert_eq!(
            major("qemu-hexagon version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)\nCopyright"),
            Some(10)
        );
        assert_eq!(major("qemu-hexagon version 7.2.15"), Some(7));
        assert_eq!(major("no such file"), None);
    }
}
