//! The device from the command line: which one, and where the parts of the simulator are.
//!
//! Parts are looked for, unless a flag names them, beside this program, then in the `target-hexagon` folder that
//! `cargo xtask` fills, above this program or above the current folder; qemu at last on `PATH`. This is the only place
//! that asks the environment.

use crate::cli::{DeviceName, Machine};
use estream::{Device, Error, Exit, Result, Simulator};
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Programs that are qemu for Hexagon; Debian's static builds had a name of their own.
const QEMU: [&str; 2] = ["qemu-hexagon", "qemu-hexagon-static"];

/// The device that the flags ask for.
pub fn device(machine: &Machine) -> Result<Device> {
    let parts = &machine.simulator;
    let simulator_flags = [
        ("--sim-qemu", parts.sim_qemu.is_some()),
        ("--sim-guest", parts.sim_guest.is_some()),
        ("--sim-skel", parts.sim_skel.is_some()),
        ("--sim-vtcm", parts.sim_vtcm.is_some()),
        ("--sim-patience", parts.sim_patience.is_some()),
        ("--sim-counts", parts.sim_counts),
    ];
    match machine.device {
        DeviceName::Sim => {}
        DeviceName::Native | DeviceName::Cdsp => {
            if let Some((flag, _)) = simulator_flags.iter().find(|(_, given)| *given) {
                let message = format!("{flag} is for --device sim alone");
                return Err(Error::new("usage", Exit::Usage, message));
            }
            if machine.device == DeviceName::Native {
                return Ok(Device::Native);
            }
            let message = "this build has no device \"cdsp\": it runs on \"native\" and \"sim\"";
            return Err(Error::new("no-device", Exit::Device, message));
        }
    }
    let folders = folders();
    let find = |flag: &Option<PathBuf>, what: &str, names: &[&str], remedy: &str| match flag {
        Some(path) => Ok(path.clone()),
        None => first(&folders, names).ok_or_else(|| missing(what, remedy)),
    };
    let qemu = match &parts.sim_qemu {
        Some(path) => path.clone(),
        None => {
            let cached = QEMU.map(|name| format!("target-hexagon/tools/usr/bin/{name}"));
            let cached = first(&folders, &cached.each_ref().map(String::as_str));
            let found = cached.or_else(|| first(&search_path(), &QEMU));
            found.ok_or_else(|| missing("qemu-hexagon", "cargo xtask setup-hexagon, or --sim-qemu"))?
        }
    };
    let guest = ["estream-sim", "target-hexagon/sim/estream-sim"];
    let guest = find(&parts.sim_guest, "estream-sim", &guest, "cargo xtask sim-guest, or --sim-guest")?;
    let skel = ["libestream_skel.so", "target-hexagon/v73/libestream_skel.so"];
    let skel = find(&parts.sim_skel, "libestream_skel.so", &skel, "cargo xtask skel, or --sim-skel")?;
    let mut simulator = Simulator::new(qemu, guest, skel);
    if let Some(bytes) = parts.sim_vtcm {
        simulator.vtcm = bytes;
    }
    if let Some(seconds) = parts.sim_patience {
        simulator.patience = Duration::from_secs(seconds.into());
    }
    simulator.counts = parts.sim_counts;
    Ok(Device::Sim(simulator))
}

fn missing(what: &str, remedy: &str) -> Error {
    Error::new(
        "no-simulator",
        Exit::Device,
        format!("the simulator needs {what}, which was not found: {remedy}"),
    )
}

/// Folders that the simulator's parts may lie in, the nearest first.
fn folders() -> Vec<PathBuf> {
    let program = env::current_exe().ok();
    let current = env::current_dir().ok();
    let above = |path: &Option<PathBuf>| {
        path.iter().flat_map(|path| path.ancestors()).map(Path::to_owned).collect::<Vec<_>>()
    };
    let program = program.and_then(|program| program.parent().map(Path::to_owned));
    [above(&program), above(&current)].concat()
}

fn search_path() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

/// The first of `names` in the first of `folders` that has one.
fn first(folders: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    let candidates = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    candidates.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_folder_that_has_a_part_is_taken() {
        let root = tempfile::tempdir().expect("a folder");
        let (near, far) = (root.path().join("near"), root.path().join("far"));
        for folder in [&near, &far] {
            std::fs::create_dir_all(folder.join("deep")).expect("a folder");
        }
        let folders = [near.clone(), far.clone()];
        assert_eq!(first(&folders, &["part"]), None);
        std::fs::write(far.join("deep/part"), "").expect("a file");
        assert_eq!(first(&folders, &["part", "deep/part"]), Some(far.join("deep/part")));
        std::fs::write(near.join("part"), "").expect("a file");
        assert_eq!(first(&folders, &["part", "deep/part"]), Some(near.join("part")));
        assert_eq!(first(&folders, &["deep"]), None, "a folder is no part");
    }
}
