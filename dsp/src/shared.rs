//! The firmware's hold on shared bytes: dense weights, bank records, embedding pages and panels.
//!
//! A fence: bytes of shared memory become slices here and nowhere else. What makes each of them sound is the protocol:
//! dense weights after their loads (until stop where they are resident; where they are streamed, while their stage is
//! the one at work: another can only be put in its place through a borrow that no slice outlives), a record while its bank
//! is in use (the caller shows the token), an embedding wave after its loads, a panel while it is not lent.

use crate::model::{Matrix, Vector};
use crate::residency::Ready;
use core::ops::Range;
use estream_idl::address::{PAGE, Segment};
use estream_idl::format::Format;
use estream_idl::memory::SharedMemory;
use estream_idl::status::Status;
use estream_idl::sync::AtomicU32;
use zerocopy::FromBytes;

/// A range of the dense weights that is in memory, and where.
#[derive(Clone, Debug)]
struct Place {
    /// Bytes from the beginning of the dense range.
    range: Range<usize>,
    /// Bytes from the beginning of the segment.
    at: usize,
}

/// The memory, once every dense weight that stays is in.
#[derive(Debug)]
pub struct Shared<'a> {
    memory: SharedMemory<'a>,
    bank_bytes: usize,
    /// Dense weights that stay.
    resident: Place,
    /// The stage at work, where the others are streamed.
    stage: Place,
}

impl<'a> Shared<'a> {
    /// A hold on the mapping, whose arena is cut into banks of `bank_bytes`, and whose dense segment begins with the range
    /// `resident` of the dense weights.
    #[must_use]
    pub const fn new(memory: SharedMemory<'a>, bank_bytes: usize, resident: Range<usize>) -> Self {
        let (resident, stage) = (Place { range: resident, at: 0 }, Place { range: 0..0, at: 0 });
        Self { memory, bank_bytes, resident, stage }
    }

    /// Puts another stage in place of the one at work: the range of the dense weights whose loads have ended, and where
    /// they went in the segment. Slices of the stage before are gone by now, or this would not be a program.
    pub const fn work_on(&mut self, range: Range<usize>, at: usize) {
        self.stage = Place { range, at };
    }

    /// The io segment's words.
    #[must_use]
    pub fn io(&self) -> &'a [AtomicU32] {
        self.memory.words(Segment::Io)
    }

    /// The bytes `range` of the dense weights. The engine asks only after their loads have ended.
    ///
    /// # Errors
    /// `Protocol` where the segment is smaller than the plan said, or another stage is at work.
    pub fn dense(&self, range: Range<usize>) -> Result<&[u8], Status> {
        let holds = |place: &&Place| place.range.start <= range.start && range.end <= place.range.end;
        let place = [&self.resident, &self.stage].into_iter().find(holds).ok_or(Status::Protocol)?;
        let at = place.at + (range.start - place.range.start);
        // SAFETY: the loads of the place ended before it became this value's, and it is not written while it is: loads go
        // into the half that holds no stage at work, and putting one to work takes this borrow exclusively.
        unsafe { self.memory.slice(Segment::Dense, at, range.len()) }.ok_or(Status::Protocol)
    }

    /// The bytes of a dense matrix.
    ///
    /// # Errors
    /// As [`Self::dense`].
    pub fn matrix(&self, matrix: &Matrix) -> Result<&[u8], Status> {
        self.dense(matrix.at..matrix.at.checked_add(matrix.bytes()).ok_or(Status::Protocol)?)
    }

    /// The elements of a dense vector.
    ///
    /// # Errors
    /// As [`Self::dense`].
    pub fn vector(&self, vector: &Vector) -> Result<&[f32], Status> {
        let bytes = self.dense(vector.at..vector.at + vector.len * 4)?;
        <[f32]>::ref_from_bytes(bytes).map_err(|_| Status::Protocol)
    }

    /// Bytes `at..at + bytes` of the bank that `bank` proves to be in use; the slice ends with that borrow.
    ///
    /// # Errors
    /// As [`Self::dense`].
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
    /// As [`Self::dense`].
    pub fn embedding_page(&self, page: usize) -> Result<&[u8], Status> {
        // SAFETY: the wave's loads have ended, and the next wave is asked for after the slices' last use.
        unsafe { self.memory.slice(Segment::Embed, page * PAGE, PAGE) }.ok_or(Status::Protocol)
    }
}

/// The panels of the io segment: apart from the rest, because one is filled while weights are read. One a session.
#[derive(Debug)]
pub struct Panels<'a> {
    memory: SharedMemory<'a>,
}

impl<'a> Panels<'a> {
    /// The panels of the mapping.
    #[must_use]
    pub const fn new(memory: SharedMemory<'a>) -> Self {
        Self { memory }
    }

    /// A panel to fill, `pages` pages from `page` of the io segment.
    ///
    /// # Errors
    /// `Protocol` where the segment is smaller than the plan said.
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
