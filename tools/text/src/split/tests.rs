//! Words against those of the PyPI package `tokenizers` with the published patterns, look-aheads included.

use super::*;

const WORDS: &str = include_str!("../../../../tests/data/words.jsonl");

fn words(splitter: &Splitter, text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut keep = |word: &str| {
        words.push(word.to_owned());
        Ok(())
    };
    splitter.split(text, &mut keep).expect("it only keeps");
    words
}

#[test]
fn words_are_those_of_the_published_patterns() {
    let mut lines = 0;
    for name in ["gpt-2", "llama3", "qwen2", "deepseek-llm"] {
        let splitter = Splitter::new(Pre::named(name).expect("a known name")).expect("patterns that build");
        for line in WORDS.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            if line["pre"] == name {
                let text = line["text"].as_str().expect("text");
                assert_eq!(serde_json::json!(words(&splitter, text)), line["words"], "{name}: {text:?}");
                lines += 1;
            }
        }
    }
    assert_eq!(lines, WORDS.lines().count());
}

#[test]
fn a_contraction_has_ascii_letters() {
    let splitter = Splitter::new(Pre::Llama3).expect("patterns that build");
    assert_eq!(words(&splitter, "it'S"), ["it", "'S"]);
    assert_eq!(words(&splitter, "it'\u{17f}o"), ["it", "'\u{17f}o"]);
}

#[test]
fn any_text_is_split_into_itself_in_linear_time() {
    let hostile = [" ".repeat(1 << 20), " \n ".repeat(1 << 18), "'".repeat(1 << 20), "a1 ".repeat(1 << 18)];
    for pre in [Pre::Gpt2, Pre::Llama3, Pre::Qwen2, Pre::DeepSeekLlm] {
        let splitter = Splitter::new(pre).expect("patterns that build");
        for text in hostile.iter().flat_map(|text| [text.clone(), format!("{text}x")]) {
            let before = std::time::Instant::now();
            assert!(words(&splitter, &text).concat() == text, "{pre:?}");
            assert!(before.elapsed() < std::time::Duration::from_secs(5), "{pre:?}: {:?}", before.elapsed());
        }
    }
}
