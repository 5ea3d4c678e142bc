//! What a file says about its tokenizer: the `tokenizer.ggml.*` keys, checked.
//!
//! Defaults for what a file leaves out are llama.cpp's where they carry a meaning (a sentence-piece vocabulary begins
//! with token 1, Llama 3's kind adds it). Where llama.cpp warns and goes on with what can only give wrong ids (an unknown
//! or missing pre-tokenizer, an id outside of the vocabulary, a token that stands twice) the file is refused for text; it
//! still runs on token ids.

use crate::split::Pre;
use estream_pack::gguf::{Gguf, Value};
use estream_pack::{Error, Result};
use std::collections::HashMap;

/// Limits far above any vocabulary (the largest in use have 262,144 tokens and half a million merges): they bound memory.
const MAX_TOKENS: u64 = 1 << 20;
const MAX_MERGES: u64 = 1 << 21;
const TEXT_BYTES: usize = 32 << 20;
const LITERAL_BYTES: usize = 1 << 20;

/// Token types with a meaning here.
const USER_DEFINED: i64 = 4;

/// Tokens that end or frame a turn or a gap: control tokens, even where an old converter made them user-defined.
const FRAMING: [&str; 49] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<reponame>",
    "<|file_sep|>",
];

/// The texts of a vocabulary.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// Ids by text; empty texts have none.
    pub(crate) ids: HashMap<Box<[u8]>, u32>,
    /// Ids are below it.
    pub(crate) count: u32,
}

/// How texts become pieces.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `gpt2`: bytes, split into words and merged by rules in ascending rank.
    ByteLevel { pre: Pre, merges: Vec<Vec<u8>> },
    /// `llama`: characters, merged by the scores of tokens.
    SentencePiece { scores: Vec<f32>, unknown: Option<u32>, leading_space: bool },
}

/// All that a tokenizer is made of.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) kind: Kind,
    pub(crate) tokens: Tokens,
    /// User-defined tokens, by text.
    pub(crate) literals: Vec<(String, u32)>,
    /// The token put before every text.
    pub(crate) begin: Option<u32>,
    /// The token put after it.
    pub(crate) end: Option<u32>,
}

impl Keys {
    pub(crate) fn read(gguf: &Gguf<'_>) -> Result<Self> {
        let model = gguf.string("tokenizer.ggml.model")?;
        let pre = gguf.string("tokenizer.ggml.pre")?;
        let pre = pre.as_deref().filter(|pre| !pre.is_empty());
        let byte_level = match model.as_deref() {
            None => {
                return Err(Error::input(
                    "no-vocabulary",
                    "the file has no tokenizer, only token ids can be run",
                ));
            }
            Some("gpt2") => Some(known_pre(pre)?),
            Some("llama") if matches!(pre, None | Some("default")) => None,
            Some("llama") => return Err(unknown_pre(pre)),
            Some(other) => {
                let message = format!(
                    "the tokenizer model is {other:?}; text can be taken for \"gpt2\" and \"llama\", token ids always"
                );
                return Err(Error::input("unsupported-tokenizer", message));
            }
        };
        let (tokens, literals) = read_tokens(gguf)?;
        let sentence_piece = byte_level.is_none();
        // Sentence-piece files may leave ids out, and mean the usual ones.
        let usual = |id: u32| Some(id).filter(|&id| sentence_piece && id < tokens.count);
        let begin =
            if truth(gguf, "add_bos_token")?.unwrap_or(sentence_piece || byte_level == Some(Pre::Llama3)) {
                Some(added(gguf, "bos_token_id", tokens.count, usual(1))?)
            } else {
                None
            };
        let end = if truth(gguf, "add_eos_token")?.unwrap_or(false) {
            Some(added(gguf, "eos_token_id", tokens.count, usual(2))?)
        } else {
            None
        };
        let kind = match byte_level {
            Some(pre) => Kind::ByteLevel { pre, merges: read_merges(gguf)? },
            None => Kind::SentencePiece {
                scores: read_scores(gguf, tokens.count)?,
                unknown: special(gguf, "unknown_token_id", tokens.count)?.or(usual(0)),
                leading_space: truth(gguf, "add_space_prefix")?.unwrap_or(true),
            },
        };
        Ok(Self { kind, tokens, literals, begin, end })
    }
}

fn known_pre(pre: Option<&str>) -> Result<Pre> {
    pre.and_then(Pre::named).ok_or_else(|| unknown_pre(pre))
}

fn unknown_pre(pre: Option<&str>) -> Error {
    let message = match pre {
        Some(pre) => format!("the pre-tokenizer {pre:?} is not known: the model runs on token ids, not on text"),
        None => "the file does not name its pre-tokenizer (tokenizer.ggml.pre), as old files do not: the model runs on \
                 token ids, not on text"
            .to_owned(),
    };
    Error::input("unsupported-pre-tokenizer", message)
}

fn too_large(what: &str) -> Error {
    Error::input("vocabulary-too-large", format!("{what} beyond any vocabulary in use"))
}

fn read_tokens(gguf: &Gguf<'_>) -> Result<(Tokens, Vec<(String, u32)>)> {
    let key = "tokenizer.ggml.tokens";
    let count = gguf.array_len(key).unwrap_or(0);
    if count == 0 {
        return Err(Error::input("no-vocabulary", "the file has no tokens, only token ids can be run"));
    }
    if count > MAX_TOKENS {
        return Err(too_large(&format!("{count} tokens are")));
    }
    let types = match gguf.array_len("tokenizer.ggml.token_type") {
        None => Vec::new(),
        Some(_) => gguf
            .integers("tokenizer.ggml.token_type", MAX_TOKENS)?
            .filter(|types| types.len() as u64 >= count)
            .ok_or_else(|| {
                Error::input(
                    "bad-token-types",
                    format!("tokenizer.ggml.token_type is no list of {count} integers"),
                )
            })?,
    };
    let mut tokens = Tokens { ids: HashMap::with_capacity(count as usize), count: 0 };
    let mut literals = Vec::new();
    let (mut bytes, mut literal_bytes) = (0, 0);
    gguf.visit_strings(key, |text| {
        let id = tokens.count;
        tokens.count += 1;
        bytes += text.len();
        if bytes > TEXT_BYTES {
            return Err(too_large("the tokens' texts are"));
        }
        if types.get(id as usize) == Some(&USER_DEFINED)
            && let Some(text) = literal(&text)
        {
            literal_bytes += text.len();
            if literal_bytes > LITERAL_BYTES {
                return Err(too_large("the user-defined tokens are"));
            }
            literals.push((text.to_owned(), id));
        }
        if text.is_empty() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&text).into_owned();
        match tokens.ids.insert(text.into(), id) {
            None => Ok(()),
            Some(first) => {
                let message = format!("the tokens {first} and {id} are both {name:?}");
                Err(Error::input("duplicate-token", message))
            }
        }
    })?;
    if u64::from(tokens.count) != count {
        return Err(Error::input("no-vocabulary", format!("{key} is no list of texts")));
    }
    Ok((tokens, literals))
}

/// A user-defined token that can stand in a text and does not frame one.
fn literal(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    (!text.is_empty() && !FRAMING.contains(&text)).then_some(text)
}

fn read_merges(gguf: &Gguf<'_>) -> Result<Vec<Vec<u8>>> {
    let key = "tokenizer.ggml.merges";
    let count =
        gguf.array_len(key).ok_or_else(|| Error::input("no-merges", format!("the file has no {key}")))?;
    if count > MAX_MERGES {
        return Err(too_large(&format!("{count} merges are")));
    }
    let (mut merges, mut bytes) = (Vec::new(), 0);
    gguf.visit_strings(key, |merge| {
        bytes += merge.len();
        if bytes > TEXT_BYTES {
            return Err(too_large("the merges are"));
        }
        merges.push(merge);
        Ok(())
    })?;
    if merges.len() as u64 != count {
        return Err(Error::input("no-merges", format!("{key} is no list of texts")));
    }
    Ok(merges)
}

fn read_scores(gguf: &Gguf<'_>, tokens: u32) -> Result<Vec<f32>> {
    let scores = gguf.floats("tokenizer.ggml.scores", MAX_TOKENS)?;
    scores.filter(|scores| scores.len() >= tokens as usize).ok_or_else(|| {
        Error::input("no-scores", format!("tokenizer.ggml.scores is no list of {tokens} floats"))
    })
}

/// The id of a token that the file wants added to every text.
fn added(gguf: &Gguf<'_>, key: &str, tokens: u32, usual: Option<u32>) -> Result<u32> {
    special(gguf, key, tokens)?.or(usual).ok_or_else(|| {
        let message =
            format!("the file wants tokenizer.ggml.{key} added to every text and does not say which it is");
        Error::input("bad-special-token", message)
    })
}

/// The id under `key`, which must be one of `tokens`.
fn special(gguf: &Gguf<'_>, key: &str, tokens: u32) -> Result<Option<u32>> {
    let Some(entry) = gguf.entry(&format!("tokenizer.ggml.{key}")) else { return Ok(None) };
    let id = entry.value.unsigned().and_then(|id| u32::try_from(id).ok()).filter(|&id| id < tokens);
    match id {
        Some(id) => Ok(Some(id)),
        None => {
            let message = format!("{} is no token of the vocabulary's {tokens}", entry.key);
            Err(Error::input("bad-special-token", message).at(entry.start))
        }
    }
}

fn truth(gguf: &Gguf<'_>, key: &str) -> Result<Option<bool>> {
    let Some(entry) = gguf.entry(&format!("tokenizer.ggml.{key}")) else { return Ok(None) };
    match entry.value {
        Value::Bool(value) => Ok(Some(value)),
        other => {
            let message = format!("{} is {}, not a truth value", entry.key, other.name());
            Err(Error::input("bad-key", message).at(entry.start))
        }
    }
}
