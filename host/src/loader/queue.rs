//! The loads that wait for a reader, and which of them go to the device as one request.
//!
//! Loads that go on where the one before them ends in the file share a request, wherever they land: small records and
//! parts of groups would otherwise each pay the device's price for a request. Two bounds keep that from costing what it
//! gains. A request has at most so many bytes as the device needs for its full rate, since its first load is told of only
//! with its last. And a load is left for every reader that has none, since two requests at once beat one of twice the
//! size. The firmware's bound on loads outstanding bounds the queue.

use crate::Error;
use crate::window::{Flights, Landing};
use estream_idl::address::PAGE;
use estream_idl::message::Load;
use std::collections::VecDeque;

/// Loads of one request, at most: far below the system's limit of pieces (1024).
const MERGED: usize = 64;

/// What waits, what is in flight, and how many readers sleep.
pub(super) struct Queue {
    flights: Flights,
    waiting: VecDeque<Landing>,
    /// Readers that have nothing to do.
    pub(super) idle: usize,
    closed: bool,
}

impl Queue {
    /// An empty queue of loads that `flights` admits.
    pub(super) const fn new(flights: Flights) -> Self {
        Self { flights, waiting: VecDeque::new(), idle: 0, closed: false }
    }

    /// Admits a load and has it wait.
    pub(super) fn push(&mut self, load: Load) -> Result<(), Error> {
        let landing = self.flights.begin(load)?;
        self.waiting.push_back(landing);
        Ok(())
    }

    /// Whether a reader has to sleep.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.closed
    }

    /// The next request: the load that waits longest, and those behind it that adjoin, with at most `most` bytes. Empty
    /// when the queue was closed.
    pub(super) fn take(&mut self, most: u64) -> Vec<Landing> {
        let mut taken: Vec<Landing> = self.waiting.pop_front().into_iter().collect();
        let Some(first) = taken.first().map(Landing::load) else { return taken };
        let mut end = first.file + bytes(&first);
        while let Some(next) = self.waiting.front().map(Landing::load) {
            let fits = next.file == end && end + bytes(&next) - first.file <= most;
            if !fits || taken.len() == MERGED || self.waiting.len() <= self.idle {
                break;
            }
            end += bytes(&next);
            taken.extend(self.waiting.pop_front());
        }
        taken
    }

    /// Takes note that a load has ended.
    pub(super) fn end(&mut self, landing: Landing) {
        self.flights.end(landing);
    }

    /// Loads that were admitted and have not ended.
    pub(super) fn pending(&self) -> usize {
        self.flights.len()
    }

    /// Drops what waits, and has every reader end.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.waiting.clear();
    }
}

/// Bytes of a load, which is in bounds since it was admitted.
fn bytes(load: &Load) -> u64 {
    u64::from(load.pages) * PAGE as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::address::{Segment, SegmentPages};

    /// A queue of loads given as (first page in the arena, pages, first page in the file), tickets from 0.
    fn queue(loads: &[(u32, u32, u64)]) -> Queue {
        let mut queue = Queue::new(Flights::new(SegmentPages([30, 1, 1, 1, 4096]), 1 << 30));
        for (ticket, &(page, pages, file)) in (0..).zip(loads) {
            let load = Load { ticket, segment: Segment::Arena, page, pages, file: file * PAGE as u64 };
            queue.push(load).unwrap();
        }
        queue
    }

    /// Tickets of the requests that a lone reader makes.
    fn requests(queue: &mut Queue, most: u64) -> Vec<Vec<u32>> {
        let take = || {
            let taken = queue.take(most * PAGE as u64);
            (!taken.is_empty()).then(|| taken.iter().map(|landing| landing.load().ticket).collect())
        };
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn loads_that_adjoin_in_the_file_share_a_request_up_to_its_bound() {
        // Scattered in the arena; a hole in the file before 3, and 5 goes back.
        let loads = [(8, 2, 10), (0, 2, 12), (16, 3, 14), (24, 1, 20), (32, 1, 21), (40, 1, 10)];
        let together = |most| requests(&mut queue(&loads), most);
        assert_eq!(together(100), [vec![0, 1, 2], vec![3, 4], vec![5]]);
        assert_eq!(together(7), [vec![0, 1, 2], vec![3, 4], vec![5]]);
        assert_eq!(together(6), [vec![0, 1], vec![2], vec![3, 4], vec![5]]);
        assert_eq!(together(0), [vec![0], vec![1], vec![2], vec![3], vec![4], vec![5]]);
        let many: Vec<_> = (0..100).map(|n| (n, 1, u64::from(n))).collect();
        let lengths: Vec<_> = requests(&mut queue(&many), 1000).iter().map(Vec::len).collect();
        assert_eq!(lengths, [64, 36]);
    }

    #[test]
    fn every_idle_reader_finds_a_load() {
        let loads: Vec<_> = (0..6).map(|n| (n, 1, u64::from(n))).collect();
        let mut queue = queue(&loads);
        queue.idle = 2;
        assert_eq!(queue.take(u64::MAX).len(), 4);
        queue.idle = 1;
        assert_eq!(queue.take(u64::MAX).len(), 1);
        queue.idle = 0;
        assert_eq!(queue.take(u64::MAX).len(), 1);
        assert!(queue.is_idle() && queue.pending() == 6);
        queue.close();
        assert!(!queue.is_idle() && queue.take(u64::MAX).is_empty());
    }
}
