//! A tokenizer as its users see it: made from a model, asked for the ids of texts.

use crate::bpe::Bpe;
use crate::keys::{Keys, Kind};
use crate::literals::{Fragment, Literals};
use crate::merge::Merger;
use crate::spm::Spm;
use estream_pack::gguf::Gguf;
use estream_pack::{Error, Result, tokenizer_source};
use std::path::Path;

/// Bytes that one text may have: four times the longest context in use, at four bytes a token. Merging a text takes about
/// forty times its bytes where it has no word borders, so this also bounds memory.
pub const TEXT_LIMIT: usize = 16 << 20;

/// Text to token ids.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    literals: Literals,
    begin: Option<u32>,
    end: Option<u32>,
}

#[derive(Debug)]
enum Vocabulary {
    ByteLevel(Box<Bpe>),
    SentencePiece(Box<Spm>),
}

impl Tokenizer {
    /// The tokenizer of the GGUF or pack at `path`.
    ///
    /// # Errors
    /// As reading the file; `no-vocabulary`, `unsupported-tokenizer` or `unsupported-pre-tokenizer` (by name) where it takes
    /// no text; and where its vocabulary contradicts itself.
    pub fn open(path: &Path) -> Result<Self> {
        let source = tokenizer_source(path)?;
        Gguf::read(&source).and_then(|gguf| Self::read(&gguf)).map_err(|error| error.in_file(path))
    }

    /// The tokenizer that the keys of `gguf` describe.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(gguf: &Gguf<'_>) -> Result<Self> {
        let Keys { kind, tokens, literals, begin, end } = Keys::read(gguf)?;
        let vocabulary = match kind {
            Kind::ByteLevel { pre, merges } => {
                Vocabulary::ByteLevel(Box::new(Bpe::new(pre, tokens, &merges)?))
            }
            Kind::SentencePiece { scores, unknown, leading_space } => {
                Vocabulary::SentencePiece(Box::new(Spm::new(tokens, &scores, unknown, leading_space)?))
            }
        };
        Ok(Self { vocabulary, literals: Literals::new(literals)?, begin, end })
    }

    /// The ids of `text`, between the tokens that the model wants before and after a text.
    ///
    /// # Errors
    /// `text-too-long` beyond [`TEXT_LIMIT`], and `no-token` where the vocabulary cannot spell a byte.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        if text.len() > TEXT_LIMIT {
            let message = format!("a text of {} bytes; the most is {TEXT_LIMIT}", text.len());
            return Err(Error::input("text-too-long", message));
        }
        let mut ids = Vec::from_iter(self.begin);
        let mut merger = Merger::default();
        let mut first = true;
        for fragment in self.literals.cut(text) {
            match (fragment, &self.vocabulary) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Vocabulary::ByteLevel(bpe)) => {
                    bpe.encode(text, &mut merger, &mut ids)?
                }
                (Fragment::Text(text), Vocabulary::SentencePiece(spm)) => {
                    spm.encode(text, first, &mut merger, &mut ids)?;
                }
            }
            first = matches!(fragment, Fragment::Token(_));
        }
        ids.extend(self.end);
        Ok(ids)
    }
}
