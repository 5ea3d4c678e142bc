//! How fast ranges of a pack come in with so many reads in flight: what the tuner asks of the storage.
//!
//! The reads are those of a session: the same descriptors, whole ranges, into memory on large pages (or on small ones, to
//! show what the large ones gain). Checksums are left out, since they are the processor's work and not the storage's.

use crate::arena::PageKind;
use crate::mapping::Buffer;
use crate::pack::unreadable;
use crate::{Error, Pack};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A range of a pack: byte offset and bytes, whole pages both.
pub type FileRange = (u64, usize);

/// Reads `ranges` in their order with `depth` of them in flight, and tells how long it took. Where `pages` are not
/// [`PageKind::Small`], memory is on the largest pages that the system gives.
///
/// # Errors
/// When a range cannot be read, or there is no memory for it.
pub fn time_reads(pack: &Pack, ranges: &[FileRange], depth: u32, pages: PageKind) -> Result<Duration, Error> {
    let readers = (depth.max(1) as usize).min(ranges.len().max(1));
    let largest = ranges.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    let (next, start) = (AtomicUsize::new(0), Barrier::new(readers + 1));
    thread::scope(|scope| {
        let read = || {
            let memory = match pages {
                PageKind::Small => Buffer::on_small_pages(largest),
                PageKind::Huge | PageKind::Thp => Buffer::new(largest),
            };
            let memory = memory.map(|mut buffer| {
                // The pages are there before the clock runs.
                buffer.bytes().fill(1);
                buffer
            });
            start.wait();
            let mut buffer = memory.map_err(|error| {
                Error::runtime(
                    "no_memory",
                    format!("{largest} bytes to read into were not to be had: {error}"),
                )
            })?;
            while let Some(&(file, bytes)) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                let into = &mut buffer.bytes()[..bytes];
                pack.reader.fill(into, file).map_err(|error| unreadable(&pack.path, file, &error))?;
            }
            Ok::<_, Error>(())
        };
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        start.wait();
        let began = Instant::now();
        for thread in threads {
            // A panic there has been printed; it is this thread's as well.
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(began.elapsed())
    })
}
