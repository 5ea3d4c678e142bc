//! Pre-tokenizers: how a text falls into words before anything is merged.
//!
//! A pre-tokenizer is a chain of stages. Each stage cuts every word of the one before at the matches of its patterns, of
//! which the first that matches counts; text between matches stays a word. The patterns are the published ones but for
//! the look-ahead `\s+(?!\S)`, which an automaton cannot have: a run of white space that does not end the text gives up
//! its last character instead, if it has more than one, and that is the same.

use estream_pack::{Error, Result};
use regex_automata::Input;
use regex_automata::meta::Regex;

/// The pre-tokenizers that this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pre {
    /// GPT-2's, which OLMo and the NeoX family took over.
    Gpt2,
    /// Llama 3's, also LFM2's: digits by three.
    Llama3,
    /// Qwen 2's: as Llama 3's with single digits.
    Qwen2,
    /// DeepSeek LLM's (V2 and V2-Lite among them).
    DeepSeekLlm,
}

impl Pre {
    /// The pre-tokenizer that a file calls `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "gpt-2" | "olmo" => Some(Self::Gpt2),
            "llama-bpe" | "llama3" | "llama-v3" | "lfm2" => Some(Self::Llama3),
            "qwen2" => Some(Self::Qwen2),
            "deepseek-llm" => Some(Self::DeepSeekLlm),
            _ => None,
        }
    }

    const fn stages(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Gpt2 => &[&GPT2],
            Self::Llama3 => &[&LLAMA3],
            Self::Qwen2 => &[&QWEN2],
            Self::DeepSeekLlm => &DEEPSEEK_LLM,
        }
    }
}

/// The pattern whose matches give up their last character.
const SPACES: &str = r"\s+";

const GPT2: [&str; 5] = [r"'(?:s|t|re|ve|m|ll|d)", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", SPACES];

/// Spelled out: `(?i)` would also take the long s and the Kelvin sign for letters of a contraction.
const CONTRACTION: &str = r"'(?:[sStTmMdD]|[rRvV][eE]|[lL][lL])";

const LLAMA3: [&str; 6] = [
    CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    SPACES,
];

const QWEN2: [&str; 6] = [LLAMA3[0], LLAMA3[1], r"\p{N}", LLAMA3[3], LLAMA3[4], SPACES];

/// White space counts as nothing else: U+3000 is taken out of the punctuation, and what lies between U+0800 and U+4E00
/// out of the ideographs, as llama.cpp reads the published patterns.
const DEEPSEEK_LLM: [&[&str]; 6] = [
    &[r"[\r\n]"],
    &[CASED],
    &[r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3001}\u{3002}]+"],
    &[r"\s+$"],
    &[r"[[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]--\s]+"],
    &[r"\p{N}+"],
];

/// DeepSeek's letters: a list of cased ones of some older Unicode version, with gaps (Armenian's small letters, say).
const CASED: &str = concat!(
    r"\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}",
    r"\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}",
    r"\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}",
    r"\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}",
    r"\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}",
    r"\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}",
    r"\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}",
    r"\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}",
    r"\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}",
    r"\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}",
    r"\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}",
    r"\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+",
);

/// A pre-tokenizer, ready to split.
#[derive(Debug)]
pub(crate) struct Splitter(Vec<Stage>);

#[derive(Debug)]
struct Stage {
    regex: Regex,
    /// Which of the patterns is [`SPACES`].
    spaces: Option<usize>,
}

impl Splitter {
    pub(crate) fn new(pre: Pre) -> Result<Self> {
        let stage = |patterns: &&[&str]| {
            let regex = Regex::new_many(patterns).map_err(|error| {
                Error::runtime("pre-tokenizer", format!("{pre:?} does not build: {error}"))
            })?;
            Ok(Stage { regex, spaces: patterns.iter().position(|&pattern| pattern == SPACES) })
        };
        pre.stages().iter().map(stage).collect::<Result<_>>().map(Self)
    }

    /// Hands the words of `text` to `word` in order; together they are the text.
    pub(crate) fn split(&self, text: &str, word: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        cut(&self.0, text, word)
    }
}

fn cut(stages: &[Stage], text: &str, word: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let Some((stage, later)) = stages.split_first() else { return word(text) };
    let mut at = 0;
    while let Some(found) = stage.regex.find(Input::new(text).span(at..text.len())) {
        let mut end = found.end();
        if stage.spaces == Some(found.pattern().as_usize()) && end < text.len() {
            let last = text[found.range()].char_indices().next_back();
            // A single character is kept: the look-ahead fails, and `\s+` alone takes it.
            end = last.filter(|&(last, _)| last > 0).map_or(end, |(last, _)| found.start() + last);
        }
        if at < found.start() {
            cut(later, &text[at..found.start()], word)?;
        }
        cut(later, &text[found.start()..end], word)?;
        at = end;
    }
    if at < text.len() { cut(later, &text[at..], word) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
