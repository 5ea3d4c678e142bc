//! The simulator for tests: its parts where `cargo xtask` puts them, and what can be done to a domain from outside.
//!
//! Without the parts tests say "skipped:" and pass, unless `ESTREAM_REQUIRE_SIM=1`.

use estream_host::transport::{Sim, Simulator};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The workspace's root.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in a workspace");
    root.to_owned()
}

/// The skel of an architecture, where it is built.
#[must_use]
pub fn skel(architecture: &str) -> Option<PathBuf> {
    Some(root().join("target-hexagon").join(architecture).join("libestream_skel.so"))
        .filter(|path| path.is_file())
}

fn qemu() -> Option<PathBuf> {
    let cached = root().join("target-hexagon/tools/usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(cached).chain(std::env::split_paths(&path));
    let names = ["qemu-hexagon", "qemu-hexagon-static"];
    folders.flat_map(|folder| names.map(|name| folder.join(name))).find(|path| path.is_file())
}

/// The simulator, or a loud note that it is not here.
///
/// # Panics
/// When it is not here and `ESTREAM_REQUIRE_SIM=1`.
#[must_use]
pub fn simulator() -> Option<Simulator> {
    let guest = Some(root().join("target-hexagon/sim/estream-sim")).filter(|path| path.is_file());
    let parts = [("qemu-hexagon", qemu()), ("estream-sim", guest), ("libestream_skel.so", skel("v73"))];
    if let Some((missing, _)) = parts.iter().find(|(_, part)| part.is_none()) {
        let required = std::env::var_os("ESTREAM_REQUIRE_SIM").is_some_and(|value| value == "1");
        let remedy = "cargo xtask setup-hexagon, skel and sim-guest make the simulator";
        assert!(!required, "no {missing}, and ESTREAM_REQUIRE_SIM=1: {remedy}");
        eprintln!("skipped: the simulator has no {missing} ({remedy})");
        return None;
    }
    let [qemu, guest, skel] = parts.map(|(_, part)| part.expect("checked above"));
    Some(Simulator::new(qemu, guest, skel))
}

/// The program's flags for a simulator.
#[must_use]
pub fn flags(simulator: &Simulator) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let vtcm = if simulator.vtcm == 0 { "refused".into() } else { simulator.vtcm.to_string() };
    let words: [(&str, String); 5] = [
        ("--device", "sim".into()),
        ("--sim-qemu", path(&simulator.qemu)),
        ("--sim-guest", path(&simulator.guest)),
        ("--sim-skel", path(&simulator.skel)),
        ("--sim-vtcm", vtcm),
    ];
    words.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
}

/// A domain seen from outside: its process, and the memory that it shares.
#[derive(Debug)]
pub struct Outside {
    process: u32,
    memory: std::fs::File,
}

impl Outside {
    /// What can be reached of `sim` after it was given away.
    ///
    /// # Panics
    /// When its memory cannot be reached.
    #[must_use]
    pub fn of(sim: &Sim) -> Self {
        use estream_host::Transport;
        let memory = sim.memory_file().expect("the simulator's memory is a file");
        let memory = memory.as_fd().try_clone_to_owned().expect("a descriptor can be doubled");
        Self { process: sim.process(), memory: memory.into() }
    }

    /// Sends the process a signal, by name.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn signal(&self, name: &str) {
        let script = format!("kill -{name} {}", self.process);
        let status = Command::new("sh").args(["-c", &script]).status().expect("a shell");
        assert!(status.success(), "{script}: {status}");
    }

    /// Whether the process is gone, waited for by its parent, within a second.
    #[must_use]
    pub fn gone(&self) -> bool {
        let begun = Instant::now();
        let there = || Path::new(&format!("/proc/{}", self.process)).exists();
        while there() && begun.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(10));
        }
        !there()
    }

    /// Overwrites a word of the shared memory, whoever owns it.
    ///
    /// # Panics
    /// When it lies outside.
    pub fn scribble(&self, word: usize, value: u32) {
        use std::os::unix::fs::FileExt;
        self.memory.write_all_at(&value.to_le_bytes(), word as u64 * 4).expect("the word lies in the memory");
    }

    /// Reads a word of the shared memory.
    ///
    /// # Panics
    /// When it lies outside.
    #[must_use]
    pub fn word(&self, word: usize) -> u32 {
        use std::os::unix::fs::FileExt;
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, word as u64 * 4).expect("the word lies in the memory");
        u32::from_le_bytes(bytes)
    }
}
