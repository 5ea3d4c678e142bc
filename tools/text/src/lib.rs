//! Text to token ids by a model's own vocabulary, id for id as llama.cpp does it.
//!
//! [`Tokenizer::open`] reads the `tokenizer.*` keys of a GGUF or of a pack (`keys`), and [`Tokenizer::encode`] takes a text
//! through three steps: user-defined tokens are cut out wherever they stand (`literals`), what lies between is split into
//! words where the vocabulary is a byte-level one (`split`), and the characters of a word are merged in the order that the
//! vocabulary gives (`merge`, fed by `bpe` or `spm`). Control tokens are never read out of a text: what a user types
//! cannot end a turn.
//!
//! The registry's `tokenizers` is not used. It knows neither merging by score nor what llama.cpp does with words that no
//! merge completes, so that half of this crate would stand beside it; its next version no longer takes a vocabulary
//! that is not a `tokenizer.json`; and it brings some eighty crates. Regular expressions are `regex-automata`'s, which
//! take linear time on any text.
#![forbid(unsafe_code)]

mod bpe;
mod keys;
mod literals;
mod merge;
mod split;
mod spm;
mod tokenizer;

pub use estream_pack::{Error, Result};
pub use tokenizer::{TEXT_LIMIT, Tokenizer};
