//! Token ids as users write them: numbers between commas or white space.
//!
//! Nothing is clamped, skipped or cut: what is no id of the model is refused with its index, its text and the limit,
//! before anything large is read.

use estream::{Error, Exit, Model, Result, bad_token, empty, too_many};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest file of ids that is read. The longest context in use, a million tokens, takes a tenth of it.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The ids of a text, for this model.
pub fn parse(text: &str, model: &Model) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    let mut count = 0;
    let pieces: Vec<&str> = text.trim().split(',').collect();
    for (index, piece) in pieces.iter().enumerate() {
        let mut words = piece.split_whitespace().peekable();
        // One comma at the end is a habit of generated lists; between commas something must stand.
        if words.peek().is_none() && index + 1 < pieces.len() {
            return Err(bad_token(count, "", model.vocab));
        }
        for word in words {
            if count < model.context as usize {
                let id = word.parse().ok().filter(|&id: &u32| id < model.vocab);
                ids.push(id.ok_or_else(|| bad_token(count, shorten(word), model.vocab))?);
            }
            count += 1;
        }
    }
    match count {
        0 => Err(empty()),
        count if count > ids.len() => Err(too_many(count, model.context)),
        _ => Ok(ids),
    }
}

/// The ids of a file, for this model.
pub fn read(path: &Path, model: &Model) -> Result<Vec<u32>> {
    let unreadable = |error: std::io::Error| Error::unreadable(path, &error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("a file of token ids is at most {MAX_FILE_BYTES} bytes");
        return Err(Error::new("too-large", Exit::Input, message).in_file(path));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let mut bad = Error::new("not-text", Exit::Input, "the file of token ids is not text").in_file(path);
        bad.offset = Some(error.valid_up_to() as u64);
        bad
    })?;
    parse(text, model).map_err(|error| error.in_file(path))
}

/// At most 40 characters of a word that is no number: a message is no place for a file that is not what it should be.
fn shorten(word: &str) -> &str {
    word.char_indices().nth(40).map_or(word, |(end, _)| &word[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        Model {
            vocab: 512,
            context: 4,
            experts: 1,
            record_bytes: 4096,
            expert_bytes: 4096,
            dense_bytes: 0,
            layer_experts: vec![1],
        }
    }

    #[test]
    fn ids_stand_between_commas_or_white_space() {
        for text in ["1,2,511", "1 2 511", "1, 2,\n511\n", " 1\t2\r\n511 ", "1,2,511,", "1,2 511,\n"] {
            assert_eq!(parse(text, &model()).ok(), Some(vec![1, 2, 511]), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_id_is_named_with_index_and_limit() {
        for (text, index, word) in [
            ("-1", 0, "-1"),
            ("1,512", 1, "512"),
            ("1,2147483648", 1, "2147483648"),
            ("7 99999999999999999999", 1, "99999999999999999999"),
            ("1,2,x", 2, "x"),
            ("1,,2", 1, ""),
            (",1", 0, ""),
            ("1.0", 0, "1.0"),
        ] {
            let error = parse(text, &model()).expect_err(text);
            assert_eq!((error.code.as_ref(), error.exit), ("bad-token", Exit::Input), "{text:?}");
            assert_eq!(error.message, format!("token {index} is {word:?}: ids of this model are 0 to 511"));
        }
    }

    #[test]
    fn no_ids_and_too_many_are_refused() {
        for text in ["", " \n"] {
            assert_eq!(parse(text, &model()).map_err(|error| error.code), Err("empty-request".into()));
        }
        let error = parse("1,2,3,4,5,6", &model()).expect_err("six of four");
        assert_eq!(error.code, "too-many-tokens");
        assert!(
            error.message.contains("6 tokens") && error.message.contains("context is 4"),
            "{}",
            error.message
        );
    }
}
