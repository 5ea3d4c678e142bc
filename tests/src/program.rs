//! The command line as users meet it: the built program, its exit codes and its JSON.

use crate::child::{Ended, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the build that this test belongs to, `target/debug` or `target/release`.
fn build_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    // target/PROFILE/deps/TEST
    test.ancestors().nth(2).expect("a test lies in target/PROFILE/deps").to_owned()
}

/// Builds one target of the workspace beside this test. Cargo says at once when nothing is to be done, and the whole
/// workspace's choice of features keeps it from building dependencies anew.
fn build(arguments: &[&str], product: &str) -> PathBuf {
    let folder = build_folder();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--workspace"]).args(arguments);
    cargo.arg("--target-dir").arg(folder.parent().expect("target/PROFILE has a parent"));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "cargo build {arguments:?}: {status}");
    folder.join(product)
}

/// The program.
#[must_use]
pub fn estream() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(|| build(&["--bin", "estream"], "estream")))
}

/// The library that writes down reads when it is preloaded.
#[must_use]
pub fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| build(&["--package", "estream-shim"], "libestream_shim.so"))
}

/// Runs the program to its end.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn finish(command: &mut Command) -> Ended {
    run(command).expect("the program can be started")
}

/// Runs the program with `--json`, which must succeed, and returns the object.
///
/// # Panics
/// When it fails or prints something else.
#[must_use]
pub fn report(command: &mut Command) -> Value {
    let ended = finish(command.arg("--json"));
    assert_eq!(ended.code, 0, "{command:?}\n{}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
}

/// An unsigned number of a report by its path, such as `memory.peak_bytes`.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn number(report: &Value, path: &str) -> u64 {
    let pointer = format!("/{}", path.replace('.', "/"));
    report.pointer(&pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number {path} in {report}"))
}

/// Ids as the command line takes them.
#[must_use]
pub fn ids(ids: &[u32]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
