//! What the storage gives at its best, measured in the run that is judged by it.
//!
//! The pack itself is read in order, past the page cache, with requests of several sizes and several in flight; the best
//! point is then measured again, longer, and once more into memory on 4 KiB pages, which shows what huge pages gain. Every
//! measurement goes on in the file where the last one has ended, so that none profits from another's bytes in a cache of
//! the drive, and a small pack is not read more than [`ROUNDS`] times. Slow storage does not see all points: the sweep ends
//! after [`PATIENCE`].

use crate::interrupt::Interrupt;
use estream::{PageKind, Result};
use estream_host::{FileRange, Pack, time_reads};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Bytes of a request, the most likely ones first.
const SIZES: [u64; 5] = [4 << 20, 1 << 20, 16 << 20, 256 << 10, 64 << 10];
/// Requests in flight.
const DEPTHS: [u32; 4] = [2, 4, 1, 8];
/// Bytes of a point of the sweep, for requests of a mebibyte and more; smaller ones read a quarter.
const POINT_BYTES: u64 = 64 << 20;
/// Bytes of the measurements that count.
const BEST_BYTES: u64 = 512 << 20;
/// How often a measurement may go through the whole pack.
const ROUNDS: u64 = 4;
/// How long the sweep may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Storage {
    /// Bytes a second, into memory on large pages where the system has them.
    pub best_bytes_per_second: f64,
    /// Bytes of a request there.
    pub request_bytes: u64,
    /// Requests in flight there.
    pub depth: u32,
    /// The same requests into memory on 4 KiB pages.
    pub small_pages_bytes_per_second: f64,
    /// The sweep.
    pub points: Vec<Point>,
}

/// A point of the sweep.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// Measures the storage under `pack`.
pub fn measure(pack: &Pack, interrupt: &Interrupt) -> Result<Storage> {
    let file_bytes = pack.header().file_bytes;
    let mut place = Place { next: 0, end: file_bytes };
    let most = |bytes: u64| bytes.min(ROUNDS * file_bytes);
    let began = Instant::now();
    let mut points = Vec::new();
    for request_bytes in SIZES {
        for depth in DEPTHS {
            interrupt.check()?;
            if points.is_empty() || began.elapsed() < PATIENCE {
                let bytes = if request_bytes < 1 << 20 { POINT_BYTES / 4 } else { POINT_BYTES };
                let ranges = place.ranges(request_bytes, most(bytes));
                let bytes_per_second = rate(pack, &ranges, depth, PageKind::Huge)?;
                points.push(Point { request_bytes, depth, bytes_per_second });
            }
        }
    }
    let best = points.iter().copied().max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second));
    let Point { request_bytes, depth, .. } =
        best.unwrap_or(Point { request_bytes: SIZES[0], depth: DEPTHS[0], bytes_per_second: 0.0 });
    let mut again = |pages| rate(pack, &place.ranges(request_bytes, most(BEST_BYTES)), depth, pages);
    Ok(Storage {
        best_bytes_per_second: again(PageKind::Huge)?,
        small_pages_bytes_per_second: again(PageKind::Small)?,
        request_bytes,
        depth,
        points,
    })
}

/// Bytes a second of `ranges` with `depth` in flight.
fn rate(pack: &Pack, ranges: &[FileRange], depth: u32, pages: PageKind) -> Result<f64> {
    let bytes: usize = ranges.iter().map(|&(_, bytes)| bytes).sum();
    let taken = time_reads(pack, ranges, depth, pages)?;
    Ok(bytes as f64 / taken.as_secs_f64().max(1e-9))
}

/// Where the next measurement begins.
struct Place {
    next: u64,
    end: u64,
}

impl Place {
    /// Requests of `size` in the file's order, `bytes` in all; from its end on it begins anew.
    fn ranges(&mut self, size: u64, bytes: u64) -> Vec<FileRange> {
        let mut ranges = Vec::new();
        let mut left = bytes;
        while left > 0 {
            if self.next >= self.end {
                self.next = 0;
            }
            let here = size.min(self.end - self.next).max(1);
            ranges.push((self.next, here as usize));
            self.next += here;
            left = left.saturating_sub(here);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_go_on_where_the_last_one_ended_and_stay_in_the_file() {
        let mut place = Place { next: 0, end: 10 };
        assert_eq!(place.ranges(4, 12), [(0, 4), (4, 4), (8, 2), (0, 4)]);
        assert_eq!(place.ranges(4, 4), [(4, 4)]);
        assert_eq!(place.ranges(16, 2), [(8, 2)]);
    }
}
