//! Token ids as readable text, from a GGUF or from the tokenizer extent of a pack.
//!
//! Only the way back (id → text) is here. Byte-level vocabularies ("gpt2") spell each byte as a printable character, which
//! is undone; sentence-piece ones ("llama") write a space as `▁` and lone bytes as `<0x0A>`. A token may end inside a
//! character: text is lossy UTF-8, for people.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::model_files::ModelFiles;
use crate::pack_file::{self, PackFile};
use crate::source::{FileRange, Source};
use std::path::Path;

/// Bytes of all tokens together; real vocabularies take one or two MiB.
const LIMIT: usize = 64 << 20;
/// Token types that are spelled as they are.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// The texts of a vocabulary.
#[derive(Debug, Default)]
pub struct Vocabulary {
    text: Vec<u8>,
    /// Token i is `text[ends[i − 1]..ends[i]]`.
    ends: Vec<usize>,
}

impl Vocabulary {
    /// The vocabulary of a pack.
    ///
    /// # Errors
    /// As opening the pack; a pack without tokens gives an empty vocabulary.
    pub fn from_pack(path: &Path) -> Result<Self> {
        Self::read(&tokenizer_extent(path)?).map_err(|error| error.in_file(path))
    }

    /// The vocabulary of a GGUF.
    ///
    /// # Errors
    /// As reading the GGUF's metadata; a file without tokens gives an empty vocabulary.
    pub fn from_gguf(path: &Path) -> Result<Self> {
        Self::read(&FileRange::open(path)?).map_err(|error| error.in_file(path))
    }

    fn read(source: &dyn Source) -> Result<Self> {
        let gguf = Gguf::read(source)?;
        let byte_level = gguf.string("tokenizer.ggml.model")?.as_deref() == Some("gpt2");
        let types = gguf.integers("tokenizer.ggml.token_type", 1 << 24)?.unwrap_or_default();
        let mut vocabulary = Self::default();
        gguf.visit_strings("tokenizer.ggml.tokens", |token| {
            let literal = matches!(types.get(vocabulary.ends.len()), Some(&(CONTROL | USER_DEFINED)));
            if literal {
                vocabulary.text.extend(&token);
            } else if byte_level {
                append_byte_level(&token, &mut vocabulary.text);
            } else {
                append_pieces(&token, &mut vocabulary.text);
            }
            vocabulary.ends.push(vocabulary.text.len());
            if vocabulary.text.len() > LIMIT {
                return Err(Error::input("metadata-too-large", format!("tokens of more than {LIMIT} bytes")));
            }
            Ok(())
        })?;
        Ok(vocabulary)
    }

    /// Tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text of a token; empty for an id that the vocabulary does not have.
    #[must_use]
    pub fn text(&self, id: u32) -> String {
        let index = id as usize;
        let Some(&end) = self.ends.get(index) else { return String::new() };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        String::from_utf8_lossy(&self.text[start..end]).into_owned()
    }
}

/// Where the `tokenizer.*` keys of the model at `path` stand, as a source that [`Gguf::read`] takes: the tokenizer extent of
/// a pack, which is a GGUF without tensors, or else the first file of the GGUF that [`ModelFiles`] finds there.
///
/// # Errors
/// As opening the files, and for a pack as checking its header and tables.
pub fn tokenizer_source(path: &Path) -> Result<FileRange> {
    if !path.is_dir() {
        let file = FileRange::open(path)?;
        let mut first = [0; 8];
        let known = (first.len() as u64).min(file.bytes()) as usize;
        if file.read_at(0, &mut first[..known]).is_ok() && pack_file::has_magic(&first) {
            return tokenizer_extent(path);
        }
    }
    let files = ModelFiles::open(path)?;
    FileRange::open(files.paths().next().unwrap_or(path))
}

fn tokenizer_extent(path: &Path) -> Result<FileRange> {
    let pack = PackFile::open(path)?;
    let extent = pack.header.tokenizer;
    Ok(pack.file.narrow(extent.file, extent.bytes.into()))
}

/// The byte that a character of a byte-level vocabulary stands for: printable Latin-1 is itself, and the 68 others take
/// the characters from U+0100 on, in ascending order.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The character that spells a byte in a byte-level vocabulary.
#[must_use]
pub fn character_of(byte: u8) -> char {
    let code = u32::from(byte);
    let spelled = match code {
        0..=0x20 => 0x100 + code,
        0x7f..=0xa0 => 0x121 + code - 0x7f,
        0xad => 0x143,
        _ => code,
    };
    char::from_u32(spelled).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn append_byte_level(token: &[u8], text: &mut Vec<u8>) {
    let bytes: Option<Vec<u8>> =
        std::str::from_utf8(token).ok().and_then(|t| t.chars().map(byte_of).collect());
    match bytes {
        Some(bytes) => text.extend(bytes),
        // Spelled otherwise than the alphabet: it stands for itself.
        None => text.extend(token),
    }
}

fn append_pieces(token: &[u8], text: &mut Vec<u8>) {
    let token = String::from_utf8_lossy(token);
    let hex = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|hex| hex.len() == 2);
    match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) => text.push(byte),
        None => text.extend(token.replace('▁', " ").bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_printable_character() {
        let spelled: std::collections::BTreeSet<char> = (0..=255).map(character_of).collect();
        assert_eq!(spelled.len(), 256);
        assert!((0..=255).all(|byte| byte_of(character_of(byte)) == Some(byte)));
        // The published table's landmarks.
        assert_eq!((character_of(b' '), character_of(b'\n'), character_of(0xad)), ('Ġ', 'Ċ', 'Ń'));
    }

    #[test]
    fn pieces_are_undone() {
        let undo = |token: &str, with: fn(&[u8], &mut Vec<u8>)| {
            let mut text = Vec::new();
            with(token.as_bytes(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        assert_eq!(undo("Ġna", append_byte_level), " na");
        assert_eq!(undo("Ã¯", append_byte_level), "ï");
        assert_eq!(undo("▁the", append_pieces), " the");
        assert_eq!(undo("<0x0A>", append_pieces), "\n");
        assert_eq!(undo("<0xé>", append_pieces), "<0xé>");
    }
}
