//! Where results go: what an output may replace, what signals leave behind, and a standard output that is not there.
//!
//! Every node that could be replaced by mistake is made here, in a folder of its own; no device of the machine is named.

use crate::harness::{Answer, answer, command, estream, shell, small_pack};
use estream_pack::{Shape, SynthFormat, SynthOptions};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
}

/// Names in a folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

/// The command lines that write `output`, each in JSON.
fn writers(output: &str) -> Vec<Vec<String>> {
    let pack = text(small_pack());
    let model = text(small_gguf());
    let lines: [&[&str]; 3] = [
        &["run", &pack, "--tokens", "1,2", "--logits", output, "--json"],
        &["pack", &model, "-o", output, "--json"],
        &["synth", "--shape", "olmoe-1b-7b", "--layers", "1", "--format", "pack", "-o", output, "--json"],
    ];
    lines.map(|line| line.iter().map(|&word| word.to_owned()).collect()).into()
}

/// The small pack's kind of model before it is packed.
fn small_gguf() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outputs.gguf");
        synthesise(&path, Shape::tiny(), SynthFormat::Gguf);
        path
    })
}

fn synthesise(path: &Path, shape: Shape, format: SynthFormat) {
    let options = SynthOptions {
        shape,
        layers: None,
        seed: 7,
        skew: 0.0,
        format,
        output: path.to_owned(),
        progress: &|_, _| (),
    };
    estream_pack::synth(&options).expect("a small model");
}

#[test]
fn only_regular_files_are_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fifo(&path("fifo"));
    fs::create_dir(path("folder")).expect("a folder");
    symlink(path("fifo"), path("to-fifo")).expect("a link");
    symlink(path("nothing"), path("to-nothing")).expect("a link");
    for name in ["fifo", "folder", "to-fifo", "to-nothing"] {
        for line in writers(&text(&path(name))) {
            let (code, message) = estream(&line).json_error(1);
            assert_eq!(code, "bad-output", "{line:?}: {message}");
        }
    }
    assert!(path("fifo").symlink_metadata().expect("the pipe").file_type().is_fifo());
    assert_eq!(names(folder.path()), ["fifo", "folder", "to-fifo", "to-nothing"]);
}

#[test]
fn a_link_to_a_file_stays_and_the_file_is_replaced() {
    let (links, files) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (link, file) = (links.path().join("link"), files.path().join("file"));
    symlink(&file, &link).expect("a link");
    let ways = writers(&text(&link));
    for line in &ways[..2] {
        fs::write(&file, "old").expect("a file");
        let answer = estream(line);
        assert_eq!(answer.exit, 0, "{answer:?}");
        assert!(link.is_symlink());
        assert!(fs::metadata(&file).expect("the file").len() > 3, "{line:?}");
        assert_eq!((names(links.path()), names(files.path())), (vec!["link".into()], vec!["file".into()]));
    }
}

#[test]
fn what_is_read_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::copy(small_pack(), path("m.estream")).expect("a copy");
    fs::hard_link(path("m.estream"), path("hard")).expect("a link");
    symlink(path("m.estream"), path("soft")).expect("a link");
    fs::write(path("ids"), "1,2").expect("ids");
    fs::write(path("prompt"), "a").expect("a prompt");
    fs::write(path("order"), "[]").expect("an order");
    let model = text(small_gguf());
    let lines = [
        ["run m.estream --tokens 1,2 --logits", "m.estream"],
        ["run m.estream --tokens 1,2 --logits", "hard"],
        ["run m.estream --tokens 1,2 --logits", "soft"],
        ["run m.estream --tokens-file ids --logits", "../here/ids"],
        ["run m.estream --prompt-file prompt --logits", "prompt"],
        ["pack MODEL --order order -o", "order"],
    ];
    symlink(folder.path(), folder.path().with_extension("here")).expect("a link");
    for [line, output] in lines {
        let output = output.replace("../here", &text(&folder.path().with_extension("here")));
        let words = line.split(' ').map(|word| word.replace("MODEL", &model));
        let before = fs::read(folder.path().join(&output)).expect("the file");
        let words: Vec<String> = words.chain([output.clone(), "--json".into()]).collect();
        let answer = answer(command(&words).current_dir(folder.path()));
        assert_eq!(answer.json_error(3).0, "same-file", "{words:?}");
        assert!(fs::read(folder.path().join(&output)).expect("the file") == before, "{words:?}");
    }
    fs::remove_file(folder.path().with_extension("here")).expect("the link");
    // The file that the shell has opened for the answer.
    let script = r#"exec "$@" --logits out --json > out"#;
    let line = ["run", "m.estream", "--tokens", "1,2"];
    let answer = answer(shell(script, &line).current_dir(folder.path()));
    assert_eq!(answer.exit, 3, "{answer:?}");
    assert!(fs::read_to_string(path("out")).expect("the answer").contains("same-file"));
}

#[test]
fn a_standard_output_that_takes_nothing_is_refused_before_any_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pack, made) = (text(small_pack()), text(&folder.path().join("made")));
    let model = text(small_gguf());
    for redirection in [">&-", "1<&0"] {
        let script = format!(r#"exec "$@" {redirection}"#);
        for line in [
            &["run", &pack, "--tokens", "1,2"][..],
            &["run", &pack, "--tokens", "1,2", "--json"],
            &["pack", &model, "-o", &made],
            &["--help"],
        ] {
            let answer = answer(&mut shell(&script, line));
            assert!(answer.line_error(1).contains("standard output"), "{redirection} {line:?}: {answer:?}");
        }
    }
    assert!(names(folder.path()).is_empty());
    // A null device is a choice, whichever way it was opened.
    let line = ["run", &pack, "--tokens", "1,2"];
    for redirection in [">/dev/null", "1<>/dev/null"] {
        let answer = answer(&mut shell(&format!(r#"exec "$@" {redirection}"#), &line));
        assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{redirection}");
    }
}

/// A pass that takes seconds, and its command line but for the pack and the logits.
fn long_pass(folder: &Path) -> Vec<String> {
    const TOKENS: u32 = 8192;
    let pack = folder.join("long.estream");
    let shape = Shape { layers: 16, context: TOKENS, vocab: 512, ..Shape::tiny() };
    synthesise(&pack, shape, SynthFormat::Pack);
    let ids: Vec<String> = (0..TOKENS).map(|position| (position * 7919 % 512).to_string()).collect();
    let line = ["run", &text(&pack), "--tokens", &ids.join(" "), "--kernels", "scalar", "--threads", "1"];
    line.map(str::to_owned).into()
}

/// Waits until the binary catches signals: its thread for that bears a name.
fn until_signals_are_caught(child: &mut Child) {
    let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
    wait_for(child, || {
        let threads = fs::read_dir(&tasks).into_iter().flatten().flatten();
        threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default()).any(|name| {
            // The kernel keeps fifteen bytes.
            name.trim_end() == "estream-signals"
        })
    });
}

fn wait_for(child: &mut Child, mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert_eq!(child.try_wait().expect("a state"), None, "it ended too soon");
        assert!(begin.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(child: &Child, signal: Signal) {
    let process = Pid::from_raw(child.id().try_into().expect("a process id")).expect("a process id");
    kill_process(process, signal).expect("the signal is sent");
}

fn end(child: Child) -> Answer {
    child.wait_with_output().expect("it ends").into()
}

fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

#[test]
fn a_signal_gives_up_the_pass_and_leaves_nothing() {
    let (models, results) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut line = long_pass(models.path());
    line.extend(["--logits".into(), text(&results.path().join("logits.npy")), "--json".into()]);
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
        let mut child = spawn(&mut command(&line));
        until_signals_are_caught(&mut child);
        // Into the pass, so that it is the pass that has to be given up.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(child.try_wait().expect("a state"), None, "the pass is too short for this test");
        let sent = Instant::now();
        send(&child, signal);
        let (code, message) = end(child).json_error(1);
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("cancelled", format!("interrupted by {name}").as_str())
        );
        assert!(sent.elapsed() < Duration::from_secs(5), "{name} took {:?}", sent.elapsed());
        assert!(names(results.path()).is_empty(), "{name} left {:?}", names(results.path()));
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut line = long_pass(folder.path());
    // A shorter prompt: this pass runs to its end.
    line[3] = line[3].split(' ').take(256).collect::<Vec<_>>().join(" ");
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let mut child = spawn(&mut shell(r#"trap "" HUP; exec "$@""#, &line));
    until_signals_are_caught(&mut child);
    send(&child, Signal::HUP);
    let answer = end(child);
    assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{answer:?}");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = spawn(command(&["demo", "--json"]).env("TMPDIR", folder.path()));
    wait_for(&mut child, || !names(folder.path()).is_empty());
    send(&child, Signal::TERM);
    let (code, _) = end(child).json_error(1);
    assert_eq!(code, "cancelled");
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
}

#[test]
fn an_interrupted_model_on_its_way_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = text(&folder.path().join("large.gguf"));
    let line =
        ["synth", "--shape", "olmoe-1b-7b", "--layers", "2", "--format", "gguf", "-o", &output, "--json"];
    let mut child = spawn(&mut command(&line));
    until_signals_are_caught(&mut child);
    send(&child, Signal::INT);
    let (code, _) = end(child).json_error(1);
    assert_eq!(code, "cancelled");
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
}
