//! Status codes: what went wrong, as one number on the wire and one sentence for people.

use serde::{Deserialize, Serialize};

macro_rules! statuses {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $text:literal;)+) => {
        /// The outcome of a call, a load or a pass. Numbers are never reused; an unknown one reads as [`Status::Protocol`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u32)]
        pub enum Status { $($(#[doc = $doc])+ $name = $number,)+ }

        impl Status {
            /// The status with this wire number.
            #[must_use]
            pub const fn from_wire(number: u32) -> Self {
                match number { $($number => Self::$name,)+ _ => Self::Protocol }
            }

            /// One sentence for people, without a full stop.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

statuses! {
    /// All is well.
    Ok = 0, "ok";
    /// The peer broke the protocol: an index, length, number or order that no correct peer sends.
    Protocol = 1, "the peer broke the protocol";
    /// Host and firmware speak different protocol versions.
    Version = 2, "host and firmware have different protocol versions";
    /// A handle that was never opened, or is closed.
    BadHandle = 3, "the handle was never opened";
    /// The call does not fit the session's state: started twice, or not started.
    BadState = 4, "the call does not fit the session's state";
    /// The reply does not fit the caller's buffer.
    ReplyTooSmall = 5, "the reply does not fit the caller's buffer";
    /// The recipe's bytes do not decode or describe something that this firmware cannot run.
    BadRecipe = 16, "the recipe is damaged or asks for what this firmware does not have";
    /// The directory's tables are damaged, or do not match the recipe.
    BadDirectory = 17, "the pack's directory is damaged or does not match its recipe";
    /// The memory that the configuration needs was not to be had; `needed` says how much.
    NoMemory = 18, "the device does not have the memory that this configuration needs";
    /// The arena holds no slot; `needed` is one slot.
    ArenaTooSmall = 19, "the arena is smaller than one expert record";
    /// Even 32 rows do not fit the scratchpad; `needed` is the minimum.
    ScratchTooSmall = 20, "the scratchpad is too small for this recipe";
    /// A limit of the configuration is zero or beyond what tables can hold.
    BadConfig = 21, "a limit in the configuration is out of range";
    /// The kernels asked for do not run on this processor.
    NoKernels = 22, "the kernels asked for are not available on this processor";
    /// The backend computed its start-up check wrongly.
    SelfTest = 23, "the kernels failed their start-up self-test";
    /// Worker threads could not be made.
    NoThreads = 24, "worker threads could not be made";
    /// A token id is not in the vocabulary; `detail` is its index, `needed` the id, `limit` the vocabulary.
    BadToken = 32, "a token id is outside the vocabulary";
    /// A request is empty; `detail` is its index.
    EmptyRequest = 33, "a request has no tokens";
    /// More tokens than the configuration (or the model's context) holds.
    TooManyTokens = 34, "more tokens than the session was planned for";
    /// More requests than the configuration holds.
    TooManyRequests = 35, "more requests than the session was planned for";
    /// More outputs than the configuration holds.
    TooManyOutputs = 36, "more outputs than the session was planned for";
    /// A requested position lies outside its request.
    BadPosition = 37, "a requested position lies outside its request";
    /// The pass was cancelled.
    Cancelled = 48, "cancelled";
    /// The host could not read an extent.
    LoadFailed = 49, "an extent of the pack could not be read";
    /// An extent's checksum is not the recorded one.
    Checksum = 50, "an extent of the pack is damaged: its checksum differs";
    /// A result is not finite.
    NotFinite = 51, "the computation gave a value that is not finite";
    /// The firmware stopped.
    Stopped = 52, "the firmware stopped";
    /// The firmware failed in a way that only a bug of its own explains.
    Internal = 53, "the firmware failed: this is a bug";
    /// Products or weights left the range of the matrix unit; `needed` says how many.
    Saturated = 54, "values left the range of the matrix unit's halves";
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

/// A refusal with its numbers: what was needed, what the limit is, and which item (a token's index, a layer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub status: Status,
    /// Bytes, count or value that would have been needed.
    pub needed: u64,
    /// The limit that it met.
    pub limit: u64,
    /// Index of the item concerned, or 0.
    pub detail: u32,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { status, needed: 0, limit: 0, detail: 0 }
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.status)?;
        match self.status {
            Status::NoMemory | Status::ArenaTooSmall | Status::ScratchTooSmall => {
                write!(f, " (needs {} bytes, has {})", self.needed, self.limit)
            }
            Status::BadToken => {
                write!(f, " (token {} is {}, the vocabulary has {})", self.detail, self.needed, self.limit)
            }
            Status::BadPosition => {
                write!(f, " (output {} asks for {} of {})", self.detail, self.needed, self.limit)
            }
            Status::EmptyRequest => write!(f, " (request {})", self.detail),
            Status::TooManyTokens | Status::TooManyRequests | Status::TooManyOutputs | Status::BadConfig => {
                write!(f, " ({} asked, {} possible)", self.needed, self.limit)
            }
            Status::BadDirectory | Status::BadRecipe | Status::LoadFailed | Status::Checksum => {
                write!(f, " (item {})", self.detail)
            }
            _ => Ok(()),
        }
    }
}
