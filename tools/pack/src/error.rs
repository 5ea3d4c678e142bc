//! The one error of this crate: a stable code for machines, a sentence for people, and where it happened.
//!
//! Callers choose an exit status by [`Error::is_input`]: a file that cannot be used is the user's to replace, a full disk
//! or a failing read is the machine's. Everything else is told by the fields, so that a JSON report needs no parsing of
//! the sentence.

use crate::source::Source;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.line())]
pub struct Error {
    /// A short stable identifier, such as `truncated` or `size-overflow`.
    pub code: &'static str,
    /// One sentence for people, without the file and the tensor.
    pub message: String,
    /// The file concerned.
    pub file: Option<PathBuf>,
    /// The tensor concerned.
    pub tensor: Option<String>,
    /// The byte offset in the file.
    pub offset: Option<u64>,
    input: bool,
}

impl Error {
    /// The input cannot be used as it is.
    #[must_use]
    pub fn input(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), file: None, tensor: None, offset: None, input: true }
    }

    /// The machine failed: a disk, a permission, a full file system.
    #[must_use]
    pub fn runtime(code: &'static str, message: impl Into<String>) -> Self {
        Self { input: false, ..Self::input(code, message) }
    }

    /// A read failed. A file that ends early is bad input, anything else is the machine's failure.
    #[must_use]
    pub(crate) fn read(error: &std::io::Error, offset: u64) -> Self {
        let made = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Self::input("truncated", "the file ends before the bytes that it announces")
            }
            _ => Self::runtime("read", format!("cannot read: {error}")),
        };
        made.at(offset)
    }

    /// A write failed.
    #[must_use]
    pub(crate) fn write(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::runtime("disk-full", format!("cannot write: {error}"))
            }
            _ => Self::runtime("write", format!("cannot write: {error}")),
        }
    }

    /// The same error in this file, unless it already names one.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file.get_or_insert_with(|| file.to_path_buf());
        self
    }

    /// The same error in the file of this source, if it is one.
    #[must_use]
    pub(crate) fn in_source(self, source: &dyn Source) -> Self {
        match source.path() {
            Some(path) => self.in_file(path),
            None => self,
        }
    }

    /// The same error about this tensor.
    #[must_use]
    pub fn of(mut self, tensor: &str) -> Self {
        self.tensor = Some(tensor.to_owned());
        self
    }

    /// The same error at this byte offset.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The same error about another tensor too.
    pub(crate) fn add(&mut self, other: &Self) {
        let tensor = other.tensor.as_deref().unwrap_or_default();
        self.message += &format!("; {tensor}: {}", other.message);
    }

    /// Whether the input is to blame (exit status 3) rather than the machine (exit status 1).
    #[must_use]
    pub const fn is_input(&self) -> bool {
        self.input
    }

    fn line(&self) -> String {
        let mut line = String::new();
        if let Some(file) = &self.file {
            line += &format!("{}: ", file.display());
        }
        if let Some(tensor) = &self.tensor {
            line += &format!("tensor {tensor:?}: ");
        }
        line += &self.message;
        if let Some(offset) = self.offset {
            line += &format!(" (at byte {offset})");
        }
        line
    }
}
