//! Text to ids: against llama.cpp's ids for 7,500 strings, against our own fixture, and what files that take no text say.

use estream_tests::fixture;
use estream_text::Tokenizer;
use std::path::Path;
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
