//! The firmware's hold on shared bytes: dense weights, bank records, embedding pages and panels.
//!
//! A fence: bytes of shared memory become slices here and nowhere else. What makes each of them sound is the protocol:
//! dense weights after their loads until stop, a record while its bank is in use (the caller shows the token), an
//! embedding wave after its loads, a panel while it is not lent.

use crate::model::{Matrix, Vector};
use crate::residency::Ready;
use estream_idl::address::{PAGE, Segment};
use estream_idl::format::Format;
use estream_idl::memory::SharedMemory;
use estream_idl::status::Status;
use estream_idl::sync::AtomicU32;
use zerocopy::FromBytes;

/// The memory, once every dense weight is in.
#[derive(Debug)]
pub struct Shared<'a> {
    memory: SharedMemory<'a>,
    bank_bytes: usize,
}

impl<'a> Shared<'a> {
    /// A hold on the mapping, whose arena is cut into banks of `bank_bytes`. One a session: `panel` relies on it.
    #[must_use]
    pub const fn new(memory: SharedMemory<'a>, bank_bytes: usize) -> Self {
        Self { memory, bank_bytes }
    }

    /// The io segment's words.
    #[must_use]
    pub fn io(&self) -> &'a [AtomicU32] {
        self.memory.words(Segment::Io)
    }

    /// The bytes of a dense matrix. The engine asks only after the dense loads have ended, and the host writes the dense
    /// segment for nothing else.
    ///
    /// # Errors
    /// `Protocol` where the segment is smaller than the plan said.
    pub fn matrix(&self, matrix: &Matrix) -> Result<&'a [u8], Status> {
        // SAFETY: dense bytes are written by loads that ended before the first pass, and never again.
        unsafe { self.memory.slice(Segment::Dense, matrix.at, matrix.bytes()) }.ok_or(Status::Protocol)
    }

    /// The elements of a dense vector.
    ///
    /// # Errors
    /// As [`Self::matrix`].
    pub fn vector(&self, vector: &Vector) -> Result<&'a [f32], Status> {
        // SAFETY: as in `matrix`.
        let bytes = unsafe { self.memory.slice(Segment::Dense, vector.at, vector.len * 4) };
        <[f32]>::ref_from_bytes(bytes.ok_or(Status::Protocol)?).map_err(|_| Status::Protocol)
    }

    /// Bytes `at..at + bytes` of the bank that `bank` proves to be in use; the slice ends with that borrow.
    ///
    /// # Errors
    /// As [`Self::matrix`].
    pub fn record<'b>(&self, bank: &'b Ready, at: usize, bytes: usize) -> Result<&'b [u8], Status>
    where
        'a: 'b,
    {
        if at.checked_add(bytes).is_none_or(|end| end > self.bank_bytes) {
            return Err(Status::Protocol);
        }
        let at = bank.bank() as usize * self.bank_bytes + at;
        // SAFETY: the bank is published (all its loads ended, acquired through the ring) and not yet released: the host
        // writes it only when the firmware asks for another load, which needs the token back.
        unsafe { self.memory.slice(Segment::Arena, at, bytes) }.ok_or(Status::Protocol)
    }

    /// Page `page` of the embedding's staging segment, after its load has ended and before the next wave is asked for.
    ///
    /// # Errors
    /// As [`Self::matrix`].
    pub fn embedding_page(&self, page: usize) -> Result<&[u8], Status> {
        // SAFETY: the wave's loads have ended, and the next wave is asked for after the slices' last use.
        unsafe { self.memory.slice(Segment::Embed, page * PAGE, PAGE) }.ok_or(Status::Protocol)
    }

    /// A panel to fill, `pages` pages from `page` of the io segment.
    ///
    /// # Errors
    /// As [`Self::matrix`].
    pub fn panel(&mut self, page: usize, pages: usize) -> Result<&mut [f32], Status> {
        // SAFETY: the panel is not lent (the head asks only for panels that came back), and the exclusive borrow of self
        // keeps this side to one panel at a time.
        let bytes = unsafe { self.memory.slice_mut(Segment::Io, page * PAGE, pages * PAGE) };
        <[f32]>::mut_from_bytes(bytes.ok_or(Status::Protocol)?).map_err(|_| Status::Protocol)
    }
}

/// The strip `index` of a matrix of `k` inputs stored at `bytes`.
///
/// # Panics
/// Past the last strip.
#[must_use]
pub fn strip(format: Format, k: usize, bytes: &[u8], index: usize) -> crate::kernels::Strip<'_> {
    let size = format.strip(k).bytes;
    crate::kernels::Strip { format, k, bytes: &bytes[index * size..(index + 1) * size] }
}
