//! Errors that name what people need: the file, the byte offset, the number, and how the program should exit.
//!
//! One struct and not an enum per module: nobody branches on variants here, callers print the sentence, pass the fields
//! on as JSON and leave with the exit code. `code` is the stable name for machines.

use estream_idl::status::{Refusal, Status};
use std::path::{Path, PathBuf};

/// What went wrong, once and for all readers.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// A stable name in snake case.
    pub code: &'static str,
    /// One sentence without a full stop; it names file, offset and numbers.
    pub message: String,
    /// The file concerned.
    pub file: Option<PathBuf>,
    /// The byte offset in it.
    pub offset: Option<u64>,
    /// How the program should exit.
    pub exit: Exit,
    /// The firmware's (or the limits') numbers, where it was a refusal.
    pub refusal: Option<Refusal>,
}

/// Exit codes of the command line that an error here can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A failure at run time.
    Runtime = 1,
    /// A bad input: file or request.
    Input = 3,
    /// The device or backend is not available.
    Device = 4,
}

impl Error {
    /// A failure at run time.
    #[must_use]
    pub fn runtime(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), file: None, offset: None, exit: Exit::Runtime, refusal: None }
    }

    /// A peer that broke the protocol.
    #[must_use]
    pub fn protocol(what: impl std::fmt::Display) -> Self {
        Self::runtime("protocol", format!("the firmware broke the protocol: {what}"))
    }

    /// A pack that is not what it should be, at `offset`; `what` is told after the file's name.
    #[must_use]
    pub fn bad_pack(code: &'static str, file: &Path, offset: u64, what: impl std::fmt::Display) -> Self {
        let message = format!("{}: {what} (byte {offset})", file.display());
        let (file, offset) = (Some(file.to_owned()), Some(offset));
        Self { code, message, file, offset, exit: Exit::Input, refusal: None }
    }

    /// A refusal, with its numbers.
    #[must_use]
    pub fn refused(refusal: Refusal) -> Self {
        let (code, exit) = kind(refusal.status);
        Self { code, message: refusal.to_string(), file: None, offset: None, exit, refusal: Some(refusal) }
    }

    /// The same error, told of a file.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.message = format!("{}: {}", file.display(), self.message);
        self.file = Some(file.to_owned());
        self
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::refused(status.into())
    }
}

/// The stable name of a status and the exit that it leads to.
const fn kind(status: Status) -> (&'static str, Exit) {
    match status {
        Status::Ok => ("ok", Exit::Runtime),
        Status::Protocol => ("protocol", Exit::Runtime),
        Status::Version => ("version", Exit::Device),
        Status::BadHandle => ("bad_handle", Exit::Runtime),
        Status::BadState => ("bad_state", Exit::Runtime),
        Status::ReplyTooSmall => ("reply_too_small", Exit::Runtime),
        Status::BadRecipe => ("bad_recipe", Exit::Input),
        Status::BadDirectory => ("bad_directory", Exit::Input),
        Status::NoMemory => ("no_memory", Exit::Runtime),
        Status::ArenaTooSmall => ("arena_too_small", Exit::Runtime),
        Status::ScratchTooSmall => ("scratch_too_small", Exit::Runtime),
        Status::BadConfig => ("bad_config", Exit::Runtime),
        Status::NoKernels => ("no_kernels", Exit::Device),
        Status::SelfTest => ("self_test", Exit::Device),
        Status::NoThreads => ("no_threads", Exit::Runtime),
        Status::BadToken => ("bad_token", Exit::Input),
        Status::EmptyRequest => ("empty_request", Exit::Input),
        Status::TooManyTokens => ("too_many_tokens", Exit::Input),
        Status::TooManyRequests => ("too_many_requests", Exit::Input),
        Status::TooManyOutputs => ("too_many_outputs", Exit::Input),
        Status::BadPosition => ("bad_position", Exit::Input),
        Status::Cancelled => ("cancelled", Exit::Runtime),
        Status::LoadFailed => ("load_failed", Exit::Runtime),
        Status::Checksum => ("checksum", Exit::Input),
        Status::NotFinite => ("not_finite", Exit::Runtime),
        Status::Stopped => ("stopped", Exit::Runtime),
        Status::Internal => ("internal", Exit::Runtime),
        Status::Saturated => ("saturated", Exit::Runtime),
    }
}

/// The first failure of a session: whatever comes after it is a consequence.
#[derive(Debug, Default)]
pub(crate) struct FirstError(std::sync::Mutex<Option<Error>>);

impl FirstError {
    /// Keeps `error` if it is the first.
    pub(crate) fn set(&self, error: Error) {
        let mut slot = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.get_or_insert(error);
    }

    /// `Err` with the first failure, if there was one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let slot = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.clone().map_or(Ok(()), Err)
    }

    /// Takes the failure out, if there was one.
    pub(crate) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}
