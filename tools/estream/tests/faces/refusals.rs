//! What is refused, how, and with which exit code: every command against missing files, unknown flags and bad values.

use crate::harness::{command, estream};
use std::path::Path;
use std::process::Stdio;

/// A command line of every command that reads a file, the file missing.
fn with_missing_files(folder: &Path) -> Vec<Vec<String>> {
    let missing = folder.join("missing").display().to_string();
    let output = folder.join("out").display().to_string();
    [
        vec!["pack", &missing, "-o", &output],
        vec!["inspect", &missing],
        vec!["verify", &missing],
        vec!["run", &missing, "--tokens", "1,2"],
        vec!["run", &missing, "--tokens-file", &missing],
        vec!["run", &missing, "-p", "text"],
        vec!["tokenize", &missing, "-p", "text"],
        vec!["tokenize", &missing, "--jsonl", "-"],
    ]
    .map(|line| line.into_iter().map(str::to_owned).collect())
    .into()
}

#[test]
fn missing_files_are_bad_input_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for mut line in with_missing_files(folder.path()) {
        let answer = estream(&line);
        let message = answer.line_error(3);
        assert!(message.contains("missing"), "{line:?}: {message}");
        line.push("--json".into());
        let answer = estream(&line);
        answer.json_error(3);
        let file = answer.json()["error"]["file"].as_str().map(str::to_owned);
        assert!(file.is_some_and(|file| file.ends_with("missing")), "{line:?}: {answer:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "nothing is left behind");
}

#[test]
fn folders_are_not_models() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    for line in [vec!["inspect", &path], vec!["verify", &path], vec!["run", &path, "--tokens", "1"]] {
        estream(&line).line_error(3);
    }
}

#[test]
fn what_is_not_a_pack_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in
        [("empty", &b""[..]), ("text", b"hello"), ("gguf", b"GGUF\x03\0\0\0"), ("zeros", &[0; 8192])]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).expect("a file");
        let path = file.display().to_string();
        for line in [vec!["verify", &path, "--json"], vec!["run", &path, "--tokens", "1", "--json"]] {
            let (code, message) = estream(&line).json_error(3);
            assert!(
                !code.is_empty() && !code.contains('_') && !message.is_empty(),
                "{name}: {code}: {message}"
            );
        }
    }
}

#[test]
fn wrong_command_lines_exit_with_2() {
    let lines: &[&[&str]] = &[
        &[],
        &["fly"],
        &["pack"],
        &["pack", "a.gguf"],
        &["inspect"],
        &["verify"],
        &["synth"],
        &["synth", "--shape", "gpt-2", "--format", "gguf", "-o", "x"],
        &["synth", "--shape", "olmoe-1b-7b", "--format", "zip", "-o", "x"],
        &["synth", "--shape", "olmoe-1b-7b", "--format", "gguf", "-o", "x", "--skew", "NaN"],
        &["synth", "--shape", "olmoe-1b-7b", "--format", "gguf", "-o", "x", "--layers", "0"],
        &["run", "p"],
        &["run", "p", "--tokens", "1", "--tokens-file", "f"],
        &["run", "p", "-p", "text", "--tokens", "1"],
        &["run", "p", "-p", "text", "--prompt-file", "f"],
        &["tokenize", "m"],
        &["tokenize", "m", "-p", "text", "--jsonl", "-"],
        &["completions", "command.com"],
        &["run", "p", "--tokens", "1", "--arena", "1GiB", "--group", "2"],
        &["run", "p", "--tokens", "1", "--arena", "1GiB", "--banks", "all"],
        &["run", "p", "--tokens", "1", "--arena", "12 parsecs"],
        &["run", "p", "--tokens", "1", "--arena", "-1MiB"],
        &["run", "p", "--tokens", "1", "--arena", "99999999TiB"],
        &["run", "p", "--tokens", "1", "--banks", "0"],
        &["run", "p", "--tokens", "1", "--banks", "some"],
        &["run", "p", "--tokens", "1", "--group", "0"],
        &["run", "p", "--tokens", "1", "--depth", "0"],
        &["run", "p", "--tokens", "1", "--threads", "0"],
        &["run", "p", "--tokens", "1", "--threads", "4294967296"],
        &["run", "p", "--tokens", "1", "--top-k", "0"],
        &["run", "p", "--tokens", "1", "--kernels", "quantum"],
        &["run", "p", "--tokens", "1", "--device", "abacus"],
        &["run", "p", "--tokens", "1", "--verify", "maybe"],
        &["run", "p", "--tokens", "1", "--row-chunk", "33"],
        &["run", "p", "--tokens", "1", "--scratch", "8GiB"],
    ];
    for line in lines {
        let answer = estream(line);
        assert_eq!(answer.exit, 2, "{line:?}: {answer:?}");
        assert_eq!(answer.stdout, "", "{line:?}");
        answer.no_control_bytes();
        // Without any command the help is shown; otherwise one line says what is wrong.
        assert!(line.is_empty() || answer.stderr.lines().count() == 1, "{line:?}: {answer:?}");
        let json: Vec<&str> = line.iter().copied().chain(["--json"]).collect();
        let (code, message) = estream(&json).json_error(2);
        assert_eq!(code, "usage", "{line:?}");
        assert!(!message.is_empty());
    }
    for name in ["pack", "inspect", "verify", "run", "tokenize", "demo", "synth", "man", "completions"] {
        estream(&[name, "--no-such-flag", "--json"]).json_error(2);
    }
}

#[test]
fn help_names_the_exit_codes_and_needs_no_model() {
    for line in [vec!["--help"], vec!["run", "--help"], vec!["pack", "--help"], vec!["demo", "--help"]] {
        let answer = estream(&line);
        assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{line:?}");
        assert!(answer.stdout.contains("3 bad input file"), "{line:?}: {}", answer.stdout);
    }
    let version = estream(&["--version"]);
    assert_eq!((version.exit, version.stdout.trim()), (0, concat!("estream ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn devices_that_this_build_lacks_are_not_available() {
    let (code, message) = estream(&["run", "p", "--tokens", "1", "--device", "cdsp", "--json"]).json_error(4);
    assert_eq!(code, "no-device");
    assert!(message.contains("cdsp"), "{message}");
    let (code, message) = estream(&["run", "p", "--tokens", "1", "--sim-skel", "s", "--json"]).json_error(2);
    assert_eq!(code, "usage");
    assert!(message.contains("--sim-skel"), "{message}");
}

#[test]
fn closed_outputs_are_no_panic() {
    // The reader of stdout is gone before anything is written.
    let mut child =
        command(&["run", "--help"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    // The reader of stderr is gone: the exit code still tells the error.
    let mut child = command(&["verify", "/no/such/file"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stderr.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b""[..]));
}
