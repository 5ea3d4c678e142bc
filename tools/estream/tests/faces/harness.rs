//! The binary as users run it: arguments in; exit code, stdout and stderr out.

use estream_pack::{Shape, SynthFormat, SynthOptions};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// What a run of the binary gave.
#[derive(Debug)]
pub struct Answer {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the binary with both outputs in pipes.
pub fn estream<S: AsRef<OsStr>>(arguments: &[S]) -> Answer {
    answer(&mut command(arguments))
}

/// Runs a command with both outputs in pipes.
pub fn answer(command: &mut Command) -> Answer {
    command.stdin(Stdio::null()).output().expect("the binary runs").into()
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            exit: output.status.code().expect("it ends by itself, not by a signal"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

/// The binary with its arguments, not yet run.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_estream"));
    command.args(arguments);
    command
}

/// The binary with its arguments, started by a script that has both as `"$@"`.
pub fn shell<S: AsRef<OsStr>>(script: &str, arguments: &[S]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_estream")]).args(arguments);
    shell
}

impl Answer {
    /// The one JSON object on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "one object on one line: {self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that this is an error in JSON with every key, on stdout alone, and returns its code and message.
    #[track_caller]
    pub fn json_error(&self, exit: i32) -> (String, String) {
        assert_eq!(self.exit, exit, "{self:?}");
        assert_eq!(self.stderr, "", "the error is told once: {self:?}");
        let json = self.json();
        let error = json["error"].as_object().unwrap_or_else(|| panic!("no error object: {self:?}"));
        for key in ["code", "message", "file", "tensor", "offset"] {
            assert!(error.contains_key(key), "no {key}: {self:?}");
        }
        assert_eq!(error.len(), 5, "{self:?}");
        let text = |key: &str| error[key].as_str().expect("text").to_owned();
        (text("code"), text("message"))
    }

    /// Checks that this is an error for people: one line on stderr, nothing on stdout.
    #[track_caller]
    pub fn line_error(&self, exit: i32) -> &str {
        assert_eq!(self.exit, exit, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "one line: {self:?}");
        self.no_control_bytes();
        self.stderr.trim_end()
    }

    /// Checks that neither output has an escape or a carriage return, as bars and spinners do.
    #[track_caller]
    pub fn no_control_bytes(&self) {
        let control = |c: char| c.is_control() && c != '\n';
        assert!(!self.stdout.contains(control) && !self.stderr.contains(control), "control bytes: {self:?}");
    }
}

/// Sizes of the small model.
pub const VOCAB: u32 = 512;
/// Its context.
pub const CONTEXT: u32 = 64;
/// Its layers.
pub const LAYERS: u32 = 3;
/// Its experts a layer.
pub const EXPERTS: u32 = 16;

/// A pack of a small random model, made anew by each run of the tests.
pub fn small_pack() -> &'static Path {
    static PACK: OnceLock<PathBuf> = OnceLock::new();
    PACK.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("small.estream");
        let shape =
            Shape { layers: LAYERS, experts: EXPERTS, vocab: VOCAB, context: CONTEXT, ..Shape::tiny() };
        let options = SynthOptions {
            shape,
            layers: None,
            seed: 7,
            skew: 0.0,
            format: SynthFormat::Pack,
            output: path.clone(),
            progress: &|_, _| (),
        };
        estream_pack::synth(&options).expect("a small pack");
        path
    })
}
