//! Errors as users meet them, and the one place where exit codes are decided.
//!
//! Every error has a short `code` that scripts can compare, a sentence, and where it applies the file, the tensor and the
//! byte offset. What a script must do next decides the exit code ([`Exit`]), not which crate noticed the error.

use estream_idl::status::Refusal;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The process's exit codes: the whole list, kept by every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// The run failed: disk full, an output that cannot be one, not enough memory, an arena without a slot, interrupted
    /// by a signal.
    Runtime = 1,
    /// The command line is wrong.
    Usage = 2,
    /// An input is missing or bad: a model, an order file, token ids.
    Input = 3,
    /// The device or the kernels asked for are not available here.
    Device = 4,
}

/// The list for `--help`.
pub const EXIT_CODES: &str = "Exit codes: 0 ok · 1 run-time failure or interrupted · 2 usage · 3 bad input file or token ids · \
                              4 device or kernels not available";

/// An error with everything that is known about its place.
#[derive(Debug)]
pub struct Error {
    /// Short id in kebab case, stable across versions.
    pub code: Cow<'static, str>,
    /// One sentence.
    pub message: String,
    /// The file concerned.
    pub file: Option<PathBuf>,
    /// The tensor concerned.
    pub tensor: Option<String>,
    /// The byte offset in the file.
    pub offset: Option<u64>,
    /// How the process ends.
    pub exit: Exit,
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that concerns no file.
    #[must_use]
    pub fn new(code: &'static str, exit: Exit, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), file: None, tensor: None, offset: None, exit }
    }

    /// The same error in a file.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// An input that cannot be read: missing, not a file, no permission.
    #[must_use]
    pub fn unreadable(file: &Path, error: &io::Error) -> Self {
        Self::new("unreadable", Exit::Input, format!("cannot be read: {error}")).in_file(file)
    }

    /// An output that cannot be written.
    #[must_use]
    pub fn unwritable(file: &Path, error: &io::Error) -> Self {
        Self::new("write", Exit::Runtime, format!("cannot be written: {error}")).in_file(file)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(tensor) = &self.tensor {
            write!(f, "tensor {tensor}: ")?;
        }
        f.write_str(&self.message)?;
        match self.offset {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// The JSON face: `{"error":{"code","message","file","tensor","offset"}}`.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            code: &'a str,
            message: &'a str,
            file: Option<Cow<'a, str>>,
            tensor: Option<&'a str>,
            offset: Option<u64>,
        }
        #[derive(Serialize)]
        struct Face<'a> {
            error: Body<'a>,
        }
        let file = self.file.as_deref().map(Path::to_string_lossy);
        let (message, tensor) = (self.message.as_str(), self.tensor.as_deref());
        Face { error: Body { code: &self.code, message, file, tensor, offset: self.offset } }
            .serialize(serializer)
    }
}

impl From<estream_pack::Error> for Error {
    fn from(error: estream_pack::Error) -> Self {
        let exit = if error.is_input() { Exit::Input } else { Exit::Runtime };
        let estream_pack::Error { code, message, file, tensor, offset, .. } = error;
        Self { code: code.into(), message, file, tensor, offset, exit }
    }
}

impl From<estream_host::Error> for Error {
    /// The host's sentences carry file and offset and its codes are in snake case; here each thing has its own field, and
    /// all codes are in kebab case.
    fn from(error: estream_host::Error) -> Self {
        let exit = match error.exit {
            estream_host::Exit::Runtime => Exit::Runtime,
            estream_host::Exit::Input => Exit::Input,
            estream_host::Exit::Device => Exit::Device,
        };
        let estream_host::Error { code, message, file, offset, .. } = error;
        let mut sentence = message.as_str();
        if let Some(file) = &file {
            sentence = sentence.strip_prefix(&format!("{}: ", file.display())).unwrap_or(sentence);
        }
        if let Some(offset) = offset {
            sentence = sentence.strip_suffix(&format!(" (byte {offset})")).unwrap_or(sentence);
        }
        Self {
            code: code.replace('_', "-").into(),
            message: sentence.to_owned(),
            file,
            tensor: None,
            offset,
            exit,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        estream_host::Error::refused(refusal).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::status::Status;

    #[test]
    fn the_json_face_has_every_key_and_nulls_where_nothing_is_known() {
        let mut error =
            Error::new("truncated", Exit::Input, "the \"data\" ends early").in_file(Path::new("a b.gguf"));
        error.offset = Some(1 << 40);
        let json = serde_json::to_string(&error).expect("it serialises");
        let expected = r#"{"error":{"code":"truncated","message":"the \"data\" ends early","file":"a b.gguf","tensor":null,"offset":1099511627776}}"#;
        assert_eq!(json, expected);
        assert_eq!(error.to_string(), "a b.gguf: the \"data\" ends early (at byte 1099511627776)");
    }

    #[test]
    fn the_host_s_errors_lose_no_fact_and_tell_none_twice() {
        let host =
            estream_host::Error::bad_pack("bad_crc", Path::new("m.estream"), 8192, "the header is damaged");
        let error = Error::from(host);
        assert_eq!((error.code.as_ref(), error.exit, error.offset), ("bad-crc", Exit::Input, Some(8192)));
        assert_eq!(error.to_string(), "m.estream: the header is damaged (at byte 8192)");
    }

    #[test]
    fn a_refusal_keeps_its_numbers() {
        let refusal = Refusal { status: Status::BadToken, needed: 70_000, limit: 50_304, detail: 3 };
        let error = Error::from(refusal);
        assert_eq!((error.code.as_ref(), error.exit), ("bad-token", Exit::Input));
        for number in ["70000", "50304", "3"] {
            assert!(error.message.contains(number), "{}", error.message);
        }
    }
}
