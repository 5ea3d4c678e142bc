//! The only two ways in which bytes of the shared memory become slices, each behind the proof that makes it sound.
//!
//! A [`Landing`] is a range that a read may be written to. It comes from [`Flights`], which checks a `Load` against
//! everything that the peer could have got wrong and admits no two that overlap, so each landing is exclusive on this
//! side; the peer does not look before `Loaded`. A panel is a range that the firmware has handed over with `Rows` and
//! does not write before `Taken`.

use crate::Error;
use estream_idl::address::{PAGE, Segment, SegmentPages};
use estream_idl::control::MAX_TICKETS;
use estream_idl::memory::SharedMemory;
use estream_idl::message::{Load, Rows};
use zerocopy::FromBytes as _;

/// Bytes of the largest load.
const LOAD_BYTES: u64 = 1 << 30;

/// The loads that were admitted and have not ended.
pub(crate) struct Flights {
    loads: Vec<Load>,
    pages: SegmentPages,
    file_bytes: u64,
}

/// An admitted load: the one value that may write to its range.
#[derive(Debug)]
pub(crate) struct Landing {
    load: Load,
}

impl Flights {
    /// None yet, of a pack with `file_bytes` bytes into segments of `pages`.
    pub(crate) fn new(pages: SegmentPages, file_bytes: u64) -> Self {
        Self { loads: Vec::with_capacity(MAX_TICKETS), pages, file_bytes }
    }

    /// Loads that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.loads.len()
    }

    /// Admits `load`, or says what no correct firmware would have asked for.
    pub(crate) fn begin(&mut self, load: Load) -> Result<Landing, Error> {
        let bad = |what: &str| Err(Error::protocol(format!("{load:?} {what}")));
        if !matches!(load.segment, Segment::Dense | Segment::Embed | Segment::Arena) {
            return bad("is for a segment that holds no weights");
        }
        let bytes = u64::from(load.pages) * PAGE as u64;
        let end = load.page.checked_add(load.pages).filter(|&end| end <= self.pages.of(load.segment));
        if load.pages == 0 || bytes > LOAD_BYTES {
            return bad("is empty or larger than 1 GiB");
        }
        let Some(end) = end else { return bad("leaves its segment") };
        if !load.file.is_multiple_of(PAGE as u64) {
            return bad("is not aligned in the file");
        }
        if load.file.checked_add(bytes).is_none_or(|end| end > self.file_bytes) {
            return bad("leaves the file");
        }
        if self.loads.len() >= MAX_TICKETS {
            return bad("is one more than may be outstanding");
        }
        for other in &self.loads {
            if other.ticket == load.ticket {
                return bad("repeats the ticket of a load in flight");
            }
            let apart = end <= other.page || other.page + other.pages <= load.page;
            if other.segment == load.segment && !apart {
                return bad("overlaps a load in flight");
            }
        }
        self.loads.push(load);
        Ok(Landing { load })
    }

    /// Takes note that a load has ended.
    pub(crate) fn end(&mut self, landing: Landing) {
        self.loads.retain(|load| load.ticket != landing.load.ticket);
    }
}

impl Landing {
    /// The load.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// The range to fill.
    pub(crate) fn bytes<'a>(&'a mut self, memory: &'a SharedMemory<'_>) -> Result<&'a mut [u8], Error> {
        let (at, bytes) = (self.load.page as usize * PAGE, self.load.pages as usize * PAGE);
        // SAFETY: landings in flight do not overlap (`Flights::begin`), this one is borrowed exclusively, and the
        // firmware leaves the range alone until `Loaded`.
        let slice = unsafe { memory.slice_mut(self.load.segment, at, bytes) };
        slice.ok_or_else(|| Error::protocol(format!("{:?} leaves its segment", self.load)))
    }
}

/// The panel of `rows`, if it lies in the io segment behind the tables, which end before `first_page`.
pub(crate) fn panel<'a>(memory: &'a SharedMemory<'_>, rows: &Rows, first_page: usize) -> Option<&'a [f32]> {
    let bytes = (rows.rows as usize).checked_mul(rows.columns as usize)?.checked_mul(size_of::<f32>())?;
    let page = (rows.page as usize).checked_mul(PAGE).filter(|_| rows.page as usize >= first_page)?;
    // SAFETY: the firmware has handed the panel over and does not write it before `Taken`, which is sent after this
    // borrow; what a peer that breaks that could change are numbers, and any bits are an f32.
    let slice = unsafe { memory.slice(Segment::Io, page, bytes) }?;
    <[f32]>::ref_from_bytes(slice).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Load = Load { ticket: 7, segment: Segment::Arena, page: 4, pages: 4, file: 8 * PAGE as u64 };

    fn flights() -> Flights {
        Flights::new(SegmentPages([30, 4, 8, 2, 16]), 64 * PAGE as u64)
    }

    #[test]
    fn what_no_correct_firmware_sends_is_refused_and_names_the_reason() {
        let cases: [(Load, &str); 9] = [
            (Load { segment: Segment::Control, ..GOOD }, "holds no weights"),
            (Load { segment: Segment::Io, page: 0, pages: 1, ..GOOD }, "holds no weights"),
            (Load { pages: 0, ..GOOD }, "empty"),
            (Load { pages: 13, ..GOOD }, "leaves its segment"),
            (Load { page: u32::MAX, ..GOOD }, "leaves its segment"),
            (Load { segment: Segment::Embed, page: 1, pages: 2, ..GOOD }, "leaves its segment"),
            (Load { file: 8 * PAGE as u64 + 512, ..GOOD }, "not aligned"),
            (Load { file: 61 * PAGE as u64, ..GOOD }, "leaves the file"),
            (Load { file: !0xFFF, ..GOOD }, "leaves the file"),
        ];
        for (load, word) in cases {
            let error = flights().begin(load).unwrap_err();
            assert_eq!(error.code, "protocol");
            assert!(error.message.contains(word), "{error}");
        }
        let huge = Load { pages: (1 << 18) + 1, page: 0, ..GOOD };
        let mut wide = Flights::new(SegmentPages([30, 4, 8, 2, u32::MAX]), u64::MAX);
        assert!(wide.begin(huge).unwrap_err().message.contains("larger than 1 GiB"));
    }

    #[test]
    fn loads_in_flight_never_overlap_or_share_a_ticket() {
        let mut flights = flights();
        let landing = flights.begin(GOOD).unwrap();
        let next = Load { ticket: 8, page: 8, pages: 8, ..GOOD };
        for page in [1, 3, 4, 7] {
            let error = flights.begin(Load { page, ..next }).unwrap_err();
            assert!(error.message.contains("overlaps"), "{error}");
        }
        let error = flights.begin(Load { ticket: 7, ..next }).unwrap_err();
        assert!(error.message.contains("ticket"), "{error}");
        flights.begin(next).unwrap();
        flights.begin(Load { ticket: 9, segment: Segment::Dense, ..GOOD }).unwrap();
        flights.end(landing);
        assert_eq!(flights.len(), 2);
        flights.begin(GOOD).unwrap();
    }

    #[test]
    fn outstanding_loads_are_bounded_by_the_ring() {
        let mut flights = Flights::new(SegmentPages([30, 4, 8, 2, 1000]), 64 * PAGE as u64);
        let load = |n: usize| Load { ticket: n as u32, page: n as u32, pages: 1, ..GOOD };
        assert!((0..MAX_TICKETS).all(|n| flights.begin(load(n)).is_ok()));
        assert!(flights.begin(load(MAX_TICKETS)).is_err());
    }
}
