//! The host shim: it makes the memory that host and firmware share, reads byte ranges of the pack into it, and rings
//! doorbells. It knows nothing about models: the recipe passes through unread, of the directory only sizes and places are
//! checked, and of the rest only checksums are looked at.
//!
//! Read in this order: [`Pack`] (open, check, verify), `arena` (the one mapping), [`transport`] (how calls travel),
//! [`Session`] (one prefill, end to end), with `pump` and `loader` as its two kinds of threads.
//!
//! # Rules
//! What the firmware writes is hostile until checked: an index, range, ticket or number that no correct firmware sends
//! fails the session with an error and is never acted on. Memory is fixed when a session opens. Nothing here reads the
//! environment.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arena;
mod batch;
mod cancel;
mod error;
mod identity;
#[allow(unsafe_code)]
mod link;
mod loader;
#[allow(unsafe_code)]
mod mapping;
mod pack;
mod probe;
mod pump;
mod rate;
mod read;
mod report;
mod room;
mod session;
mod sidecar;
mod sums;
pub mod transport;
mod verify;
mod watch;
#[allow(unsafe_code)]
mod window;

pub use arena::PageKind;
pub use batch::{Output, Request, RowSink};
pub use cancel::Canceller;
pub use error::{Error, Exit};
pub use pack::{MERGE_BYTES, Pack};
pub use probe::IoMode;
pub use rate::{FileRange, time_reads};
pub use report::{IoReport, MemoryReport, Outcome, ReadSpan, Report, Top};
pub use session::Session;
pub use transport::Transport;
pub use verify::{Verify, VerifyReport};
