//! Text to ids: against llama.cpp's ids for 7,500 strings, against our own fixture, and what files that take no text say.

use estream_pack::gguf::Gguf;
use estream_tests::fixture;
use estream_tests::gguf::Bytes;
use estream_tests::program;
use estream_text::{Error, Tokenizer};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

/// Strings of each of the five vocabularies.
const STRINGS: usize = 1500;

/// The text and the ids of each line.
fn lines(path: &Path) -> Vec<(String, Vec<u32>)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let ids = value["ids"].as_array().expect("ids").iter();
        let ids = ids.map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id"));
        (value["text"].as_str().expect("text").to_owned(), ids.collect())
    };
    text.lines().map(line).collect()
}

/// How many lines the tokenizer gets right; the first few wrong ones are shown.
fn equal(tokenizer: &Tokenizer, lines: &[(String, Vec<u32>)]) -> usize {
    let mut shown = 0;
    let mut right = |(text, ids): &(String, Vec<u32>)| {
        let got = tokenizer.encode(text).expect("ids");
        if got != *ids && shown < 5 {
            shown += 1;
            eprintln!("{text:?}:\n  expected {ids:?}\n  got      {got:?}");
        }
        got == *ids
    };
    lines.iter().filter(|line| right(line)).count()
}

#[test]
fn ids_are_those_of_llama_cpp() {
    let Some(shared) = fixture::shared() else { return };
    let folder = shared.join("goldens/tokenizers");
    let mut total = 0;
    for name in ["olmo", "lfm2", "qwen2", "deepseek-llm", "spm"] {
        let lines = lines(&folder.join(format!("{name}.jsonl")));
        assert_eq!(lines.len(), STRINGS, "{name}");
        let before = Instant::now();
        let tokenizer = Tokenizer::open(&folder.join(format!("{name}.vocab.gguf"))).expect("a tokenizer");
        let built = before.elapsed();
        let before = Instant::now();
        let right = equal(&tokenizer, &lines);
        println!("{name}: {right} of {STRINGS} equal; built in {built:?}, encoded in {:?}", before.elapsed());
        total += right;
    }
    assert_eq!(total, 5 * STRINGS);
}

/// A file of `tests/data`.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

#[test]
fn ids_of_our_own_model_are_those_of_another_implementation_from_gguf_and_pack() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let lines = lines(&data("olmoe.texts.jsonl"));
    assert!(lines.len() > 40);
    let gguf = data("olmoe.gguf");
    for model in [&fixture::pack(&gguf, folder.path(), None), &gguf] {
        let tokenizer = Tokenizer::open(model).expect("a tokenizer");
        assert_eq!(equal(&tokenizer, &lines), lines.len(), "{}", model.display());
    }
}

/// A vocabulary with what `keys` adds; each key is one entry. Ids are 0 `a`, 1 `b`, 2 `ab`, then `more` with their types.
fn vocabulary(model: &str, more: &[(&str, u32)], keys: &[Bytes]) -> Result<Tokenizer, Error> {
    let tokens: Vec<(&str, u32)> =
        [("a", 1), ("b", 1), ("ab", 1)].into_iter().chain(more.iter().copied()).collect();
    let count = tokens.len() as u64;
    let array = |bytes: Bytes, key: &str, kind: u32| bytes.text(key).u32(9).u32(kind).u64(count);
    let mut bytes = Bytes::header(0, 5 + keys.len() as u64).text_key("tokenizer.ggml.model", model);
    bytes = tokens.iter().fold(array(bytes, "tokenizer.ggml.tokens", 8), |bytes, (text, _)| bytes.text(text));
    bytes =
        tokens.iter().fold(array(bytes, "tokenizer.ggml.token_type", 5), |bytes, &(_, kind)| bytes.u32(kind));
    bytes = tokens.iter().fold(array(bytes, "tokenizer.ggml.scores", 6), |bytes, _| bytes.u32(0));
    bytes = bytes.text("tokenizer.ggml.merges").u32(9).u32(8).u64(1).text("a b");
    for key in keys {
        bytes.0.extend(&key.0);
    }
    let bytes = bytes.data(32, 0).0;
    Gguf::read(&bytes).and_then(|gguf| Tokenizer::read(&gguf))
}

fn pre(name: &str) -> Bytes {
    Bytes::default().text_key("tokenizer.ggml.pre", name)
}

fn special(name: &str, id: u32) -> Bytes {
    Bytes::default().u32_key(&format!("tokenizer.ggml.{name}"), id)
}

fn flag(name: &str, value: bool) -> Bytes {
    let mut bytes = Bytes::default().text(&format!("tokenizer.ggml.{name}")).u32(7);
    bytes.0.push(value.into());
    bytes
}

#[test]
fn the_file_says_what_stands_before_and_after_a_text() {
    let more = [("<s>", 3), ("</s>", 3)];
    let ids = |model: &str, keys: &[Bytes]| {
        vocabulary(model, &more, keys).and_then(|tokenizer| tokenizer.encode("ab")).expect("ids")
    };
    let (begin, end) = (|| special("bos_token_id", 3), || special("eos_token_id", 4));
    let add = |begin, end| [flag("add_bos_token", begin), flag("add_eos_token", end)];
    assert_eq!(ids("gpt2", &[pre("olmo"), begin(), end()]), [2]);
    assert_eq!(ids("gpt2", &[&[pre("olmo"), begin(), end()][..], &add(true, true)].concat()), [3, 2, 4]);
    // Llama 3's kind begins with its token unless the file says otherwise.
    assert_eq!(ids("gpt2", &[pre("lfm2"), begin()]), [3, 2]);
    assert_eq!(ids("gpt2", &[&[pre("lfm2")][..], &add(false, false)].concat()), [2]);
    // So do sentence pieces, with token 1 unless the file says which, and a space that is put before the text.
    let unspaced = flag("add_space_prefix", false);
    assert_eq!(ids("llama", &[pre("default"), begin(), unspaced.clone()]), [3, 2]);
    assert_eq!(ids("llama", &[unspaced.clone(), flag("add_eos_token", true), end()]), [1, 2, 4]);
    assert_eq!(ids("llama", &[special("unknown_token_id", 4)]), [1, 4, 4, 4, 2]);
}

#[test]
fn user_defined_tokens_are_read_from_the_text_and_control_tokens_are_not() {
    let more = [("b a", 4), ("ba", 3), ("<|im_end|>", 4), ("<", 1), ("", 4)];
    let tokenizer = vocabulary("gpt2", &more, &[pre("gpt-2")]).expect("a tokenizer");
    assert_eq!(tokenizer.encode("ab ab").expect("ids"), [0, 3, 1]);
    assert_eq!(tokenizer.encode("ba").expect("ids"), [1, 0]);
    // A marker of turns is a control token even where the file calls it user-defined: it is spelled, or not at all.
    assert_eq!(tokenizer.encode("<").expect("ids"), [6]);
    let error = tokenizer.encode("a<|im_end|>").expect_err("it cannot be spelled");
    assert_eq!(error.code, "no-token");
}

#[test]
fn vocabularies_that_cannot_be_right_are_refused() {
    /// Model, tokens, keys, the error's code, and a part of its sentence.
    type Case<'a> = (&'a str, &'a [(&'a str, u32)], &'a [Bytes], &'a str, &'a str);
    let cases: [Case<'_>; 10] = [
        ("gpt2", &[], &[pre("falcon")], "unsupported-pre-tokenizer", "\"falcon\""),
        ("gpt2", &[], &[pre("default")], "unsupported-pre-tokenizer", "\"default\""),
        ("gpt2", &[], &[], "unsupported-pre-tokenizer", "does not name"),
        ("llama", &[], &[pre("tekken")], "unsupported-pre-tokenizer", "\"tekken\""),
        ("bert", &[], &[], "unsupported-tokenizer", "\"bert\""),
        ("gpt2", &[("a", 1)], &[pre("olmo")], "duplicate-token", "0 and 3"),
        ("gpt2", &[], &[pre("lfm2"), special("bos_token_id", 3)], "bad-special-token", "bos_token_id"),
        ("gpt2", &[], &[pre("olmo"), flag("add_bos_token", true)], "bad-special-token", "bos_token_id"),
        ("gpt2", &[], &[pre("olmo"), special("add_bos_token", 1)], "bad-key", "add_bos_token"),
        ("llama", &[], &[special("unknown_token_id", u32::MAX)], "bad-special-token", "unknown_token_id"),
    ];
    for (model, more, keys, code, part) in cases {
        let error = vocabulary(model, more, keys).expect_err(code);
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(part) && error.is_input(), "{error}");
    }
}

/// Our model with another pre-tokenizer's name in place of its own.
fn renamed(folder: &Path, name: [u8; 4]) -> PathBuf {
    let mut bytes = std::fs::read(data("olmoe.gguf")).expect("the model");
    let key = b"tokenizer.ggml.pre";
    let at = bytes.windows(key.len()).position(|window| window == key).expect("the key") + key.len() + 12;
    assert_eq!(&bytes[at..at + 4], b"olmo");
    bytes[at..at + 4].copy_from_slice(&name);
    let path = folder.join("renamed.gguf");
    std::fs::write(&path, bytes).expect("a copy");
    path
}

#[test]
fn a_model_with_an_unknown_pre_tokenizer_runs_on_ids_only() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&renamed(folder.path(), *b"what"), folder.path(), None);
    let run = |flag: &str, value: &str| {
        program::finish(program::estream().arg("run").arg(&pack).args([flag, value, "--json"]))
    };
    assert_eq!(run("--tokens", "510,5").code, 0);
    for ended in
        [run("-p", "text"), program::finish(program::estream().arg("tokenize").arg(&pack).args(["-p", "x"]))]
    {
        assert_eq!(ended.code, 3);
        assert!(ended.stdout.contains("\\\"what\\\"") || ended.stderr.contains("\"what\""), "{ended:?}");
    }
}

#[test]
fn a_text_runs_as_its_ids_do() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&data("olmoe.gguf"), folder.path(), None);
    let text = "- The quick brown fox,\n";
    let ids = Tokenizer::open(&pack).and_then(|tokenizer| tokenizer.encode(text)).expect("ids");
    let file = folder.path().join("prompt.txt");
    std::fs::write(&file, text).expect("a prompt");
    let run = |flag: &str, value: &str| {
        let report = program::report(program::estream().arg("run").arg(&pack).args([flag, value]));
        (report["tokens"].as_u64(), report["top"].clone())
    };
    let by_ids = run("--tokens", &program::ids(&ids));
    assert_eq!(by_ids.0, Some(ids.len() as u64));
    assert_eq!(run("-p", text), by_ids);
    assert_eq!(run("--prompt-file", &file.display().to_string()), by_ids);
    std::fs::write(&file, b"ab\xffc").expect("a prompt");
    let mut command = program::estream();
    command.arg("run").arg(&pack).arg("--prompt-file").arg(&file);
    let ended = program::finish(&mut command);
    assert_eq!(ended.code, 3);
    assert!(ended.stderr.contains("prompt.txt") && ended.stderr.contains("at byte 2"), "{ended:?}");
}

/// Feeds `input` to `tokenize --jsonl -`: exit code, stdout, stderr.
fn piped(input: &str) -> (Option<i32>, String, String) {
    let mut command = program::estream();
    command.arg("tokenize").arg(data("olmoe.gguf")).args(["--jsonl", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_stream_is_answered_line_by_line_and_a_bad_line_is_named() {
    let path = data("olmoe.texts.jsonl");
    let expected: String =
        lines(&path).iter().map(|(_, ids)| format!("{{\"ids\":[{}]}}\n", program::ids(ids))).collect();
    // The fixture's own ids are keys that are none of ours.
    let input = std::fs::read_to_string(&path).expect("the fixture");
    assert_eq!(piped(&input), (Some(0), expected.clone(), String::new()));
    // Without a newline at the end, too.
    assert_eq!(piped(input.trim_end()).1, expected);
    assert_eq!(piped(""), (Some(0), String::new(), String::new()));
    for bad in ["{\"text\":5}", "{}", "[]", "", "{\"text\":\"\\ud800\"}", "{\"text\":\"a\"", "\u{0}"] {
        let (code, out, err) = piped(&format!("{{\"text\":\" hello\"}}\n{bad}\n{{\"text\":\"x\"}}\n"));
        assert_eq!((code, out.as_str()), (Some(3), "{\"ids\":[344,620,80]}\n"), "{bad:?}: {err}");
        assert!(err.contains("stdin: line 2: ") && err.lines().count() == 1, "{bad:?}: {err}");
    }
}

#[test]
fn manual_and_completions_need_no_model() {
    let man = program::finish(program::estream().arg("man"));
    assert_eq!((man.code, man.stderr.as_str()), (0, ""));
    for part in [".TH estream 1", ".TH estream-tokenize 1", "prompt\\-file", "Exit codes"] {
        assert!(man.stdout.contains(part), "{part}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = program::finish(program::estream().args(["completions", shell]));
        assert_eq!((script.code, script.stderr.as_str()), (0, ""), "{shell}");
        assert!(script.stdout.contains("prompt-file") && script.stdout.contains("tokenize"), "{shell}");
    }
    let json = program::report(program::estream().args(["completions", "bash"]));
    assert!(json["script"].as_str().is_some_and(|script| script.contains("_estream()")));
}
