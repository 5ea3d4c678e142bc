//! Storage on paper: a read waits for a reader, then for the device's latency, then its bytes flow; reads in flight share
//! the device's rate, and none is faster than a single stream.

use std::collections::VecDeque;

/// A device's figures. The rates are in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Its name in tables.
    pub name: &'static str,
    /// From a read's begin to its first byte.
    pub latency_ns: u64,
    /// The most that one read gets.
    pub stream: f64,
    /// The most that all get together.
    pub total: f64,
    /// Multiply-adds a second of the processor beside it.
    pub macs: f64,
}

impl Device {
    /// A phone with UFS 4.1: 4.2 GB/s sequential as vendors state it, half of that for one read at a time; an NPU that
    /// sustains 2 TMAC/s on decoded 4-bit weights.
    pub const PHONE: Self =
        Self { name: "UFS 4.1", latency_ns: 90_000, stream: 2.1e9, total: 4.2e9, macs: 2e12 };
    /// A slow board: eMMC 5.1 at 300 MB/s, which one read reaches alone; 0.2 TMAC/s.
    pub const BOARD: Self =
        Self { name: "eMMC 5.1", latency_ns: 250_000, stream: 3e8, total: 3e8, macs: 2e11 };
    /// A laptop with NVMe on four lanes of PCIe 4: 7 GB/s, 2.5 GB/s for one read; 0.3 TMAC/s on the processor.
    pub const LAPTOP: Self = Self { name: "NVMe", latency_ns: 60_000, stream: 2.5e9, total: 7e9, macs: 3e11 };
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PHONE, Self::BOARD, Self::LAPTOP];
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    number: usize,
    begin_ns: u64,
    /// Bytes flow from then on.
    flows_ns: u64,
    left: f64,
}

/// Reads in simulated time: first come, first served, by so many readers.
#[derive(Clone, Debug)]
pub struct Reads {
    device: Device,
    depth: usize,
    now_ns: u64,
    submitted: usize,
    queue: VecDeque<(usize, u64)>,
    flights: Vec<Flight>,
    ended: Vec<(usize, u64, u64)>,
}

impl Reads {
    /// `depth` readers at time 0.
    #[must_use]
    pub fn new(device: Device, depth: u32) -> Self {
        let (queue, flights, ended) = (VecDeque::new(), vec![], vec![]);
        Self { device, depth: depth.max(1) as usize, now_ns: 0, submitted: 0, queue, flights, ended }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now_ns
    }

    /// Queues a read of `bytes`; its number.
    pub fn submit(&mut self, bytes: u64) -> usize {
        self.queue.push_back((self.submitted, bytes));
        self.submitted += 1;
        self.start();
        self.submitted - 1
    }

    /// Reads that have ended since the last call: number, begin and end.
    pub fn take_ended(&mut self) -> Vec<(usize, u64, u64)> {
        std::mem::take(&mut self.ended)
    }

    /// When the next read ends, if none is submitted meanwhile.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        let mut later = Self { ended: vec![], ..self.clone() };
        while later.ended.is_empty() {
            let time = later.next_change()?;
            later.step(time);
        }
        Some(later.now_ns)
    }

    /// Lets time pass until `time`.
    pub fn advance(&mut self, time: u64) {
        while let Some(change) = self.next_change().filter(|&change| change <= time) {
            self.step(change);
        }
        self.step(time);
    }

    fn start(&mut self) {
        while self.flights.len() < self.depth {
            let Some((number, bytes)) = self.queue.pop_front() else { return };
            let flows_ns = self.now_ns + self.device.latency_ns;
            self.flights.push(Flight { number, begin_ns: self.now_ns, flows_ns, left: bytes as f64 });
        }
    }

    /// Bytes a nanosecond of each read that flows.
    fn rate(&self) -> f64 {
        let flowing = self.flights.iter().filter(|flight| flight.flows_ns <= self.now_ns).count();
        self.device.stream.min(self.device.total / flowing.max(1) as f64) / 1e9
    }

    /// When a read begins to flow or ends.
    fn next_change(&self) -> Option<u64> {
        let rate = self.rate();
        let change = |flight: &Flight| match flight.flows_ns {
            flows if flows > self.now_ns => flows,
            _ => self.now_ns + ((flight.left / rate).ceil() as u64).max(1),
        };
        self.flights.iter().map(change).min()
    }

    /// Lets time pass until `time`, within which nothing changes.
    fn step(&mut self, time: u64) {
        let flown = (time - self.now_ns) as f64 * self.rate();
        for flight in self.flights.iter_mut().filter(|flight| flight.flows_ns <= self.now_ns) {
            flight.left -= flown;
        }
        self.now_ns = time;
        for flight in self.flights.extract_if(.., |flight| flight.left <= 0.0) {
            self.ended.push((flight.number, flight.begin_ns, time));
        }
        self.start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_share_the_rate_and_wait_for_readers() {
        let device = Device { latency_ns: 10, stream: 1e9, total: 1e9, ..Device::PHONE };
        let mut reads = Reads::new(device, 2);
        let numbers = [100, 100, 50].map(|bytes| reads.submit(bytes));
        assert_eq!(numbers, [0, 1, 2]);
        // Two share a byte a nanosecond from 10 on; the third begins at 210, and has the device for itself.
        assert_eq!(reads.next_end(), Some(210));
        reads.advance(300);
        assert_eq!(reads.take_ended(), [(0, 0, 210), (1, 0, 210), (2, 210, 270)]);
        assert_eq!((reads.now(), reads.next_end()), (300, None));
    }

    #[test]
    fn a_single_stream_is_no_faster_than_its_limit() {
        let device = Device { latency_ns: 0, stream: 1e9, total: 4e9, ..Device::PHONE };
        let mut reads = Reads::new(device, 8);
        for _ in 0..8 {
            reads.submit(1000);
        }
        // Eight reads share four bytes a nanosecond.
        assert_eq!(reads.next_end(), Some(2000));
        reads.advance(2000);
        assert_eq!(reads.take_ended().len(), 8);
        reads.submit(1000);
        assert_eq!(reads.next_end(), Some(3000));
    }
}
