//! `estream tokenize`: text to token ids, one text or a stream of JSON lines.
//!
//! A stream is answered line by line, so that memory is bounded by the longest line and a program at the other end of the
//! pipe gets each answer as soon as it can be given. The first line that is not right ends the stream and is named; the
//! answers to those before it stand.

use crate::cli::Tokenize;
use crate::console::Console;
use estream::{Error, Exit, Result};
use estream_text::{TEXT_LIMIT, Tokenizer};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

/// Bytes of a line: a text at its limit may be written with escapes.
const LINE_LIMIT: usize = 2 * TEXT_LIMIT;

/// A line of input; keys other than the text are somebody else's.
#[derive(Deserialize)]
struct Line {
    text: String,
}

/// An answer.
#[derive(Serialize)]
struct Ids {
    ids: Vec<u32>,
}

/// Runs the command.
pub fn run(arguments: &Tokenize, console: &Console) -> Result<()> {
    let tokenizer = Tokenizer::open(&arguments.model)?;
    match (&arguments.prompt, &arguments.jsonl) {
        (Some(text), _) => {
            let ids = tokenizer.encode(text)?;
            let line: Vec<String> = ids.iter().map(u32::to_string).collect();
            console.answer(&Ids { ids }, || line.join(",") + "\n")
        }
        (None, Some(path)) if path.as_os_str() == "-" => {
            stream(&tokenizer, io::stdin().lock(), Path::new("stdin"))
        }
        (None, Some(path)) => {
            let file = open(path)?;
            stream(&tokenizer, BufReader::new(file), path)
        }
        (None, None) => Err(Error::new("usage", Exit::Usage, "neither --prompt nor --jsonl was given")),
    }
}

/// The text in a file, as it is.
pub fn read_text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(TEXT_LIMIT as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::unreadable(path, &error))?;
    if bytes.len() > TEXT_LIMIT {
        let message = format!("a prompt is at most {TEXT_LIMIT} bytes");
        return Err(Error::new("text-too-long", Exit::Input, message).in_file(path));
    }
    String::from_utf8(bytes).map_err(|error| {
        let mut bad = Error::new("not-text", Exit::Input, "the prompt is not UTF-8 text").in_file(path);
        bad.offset = Some(error.utf8_error().valid_up_to() as u64);
        bad
    })
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| Error::unreadable(path, &error))
}

fn stream(tokenizer: &Tokenizer, mut input: impl BufRead, path: &Path) -> Result<()> {
    let mut output = io::stdout().lock();
    let mut line = Vec::new();
    for number in 1u64.. {
        let bad =
            |code, why: String| Error::new(code, Exit::Input, format!("line {number}: {why}")).in_file(path);
        line.clear();
        let read = input.by_ref().take(LINE_LIMIT as u64 + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| Error::unreadable(path, &error))? == 0 {
            break;
        }
        if line.len() > LINE_LIMIT {
            return Err(bad("line-too-long", format!("more than {LINE_LIMIT} bytes")));
        }
        let Line { text } = serde_json::from_slice(&line)
            .map_err(|error| bad("bad-line", format!("not a JSON object with a \"text\": {error}")))?;
        let ids = tokenizer.encode(&text).map_err(|error| bad(error.code, error.message))?;
        let mut answer = serde_json::to_vec(&Ids { ids }).map_err(|error| {
            Error::new("output", Exit::Runtime, format!("ids cannot be written: {error}"))
        })?;
        answer.push(b'\n');
        match output.write_all(&answer) {
            // The reader has got what it wanted.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written.map_err(|error| Error::unwritable(Path::new("stdout"), &error))?,
        }
    }
    Ok(())
}
