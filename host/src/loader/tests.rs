//! The loader over a disk that misbehaves on purpose, with the test as the firmware at the other end of the rings.

use super::*;
use crate::read::ReadAt;
use estream_idl::address::{PAGE, SegmentPages};
use estream_idl::control::CONTROL_PAGES;
use estream_idl::pack::{ChecksumHeader, ExtentSum, Header, Range};
use estream_idl::ring::Consumer;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes as _;

const FILE_PAGES: usize = 64;

/// Byte `at` of the file.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// A disk that counts the reads that overlap, and fails in some ranges.
#[derive(Default)]
struct Disk {
    reading: AtomicUsize,
    most: AtomicUsize,
    started: Mutex<Vec<u64>>,
    broken_from: Option<u64>,
    deadly: Option<u64>,
    flipped: Option<usize>,
    nap: Duration,
}

impl ReadAt for Arc<Disk> {
    fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.started.lock().unwrap().push(offset);
        let now = self.reading.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        thread::sleep(self.nap);
        self.reading.fetch_sub(1, Ordering::SeqCst);
        let end = offset + into.iter().map(|slice| slice.len() as u64).sum::<u64>();
        assert!(self.deadly.is_none_or(|at| !(offset..end).contains(&at)), "the disk that kills its readers");
        if self.broken_from.is_some_and(|from| end > from) {
            return Err(rustix::io::Errno::IO.into());
        }
        let bytes = into.iter_mut().flat_map(|slice| slice.iter_mut());
        for (at, byte_read) in (offset as usize..).zip(bytes) {
            *byte_read = byte(at) ^ u8::from(self.flipped == Some(at));
        }
        Ok((end - offset) as usize)
    }
}

struct Bench {
    arena: Arena,
    loader: Loader,
    failure: Arc<FirstError>,
}

fn bench(disk: &Arc<Disk>, depth: u32, sums: Option<Sums>) -> Bench {
    merging(disk, depth, sums, 0)
}

/// A loader that merges adjacent loads up to `merge_bytes`.
fn merging(disk: &Arc<Disk>, depth: u32, sums: Option<Sums>, merge_bytes: u64) -> Bench {
    let arena = Arena::make(SegmentPages([CONTROL_PAGES, 1, 16, 4, 64]), false).unwrap();
    let outbox = Arc::new(Outbox::new(arena.clone()).unwrap());
    let failure = Arc::new(FirstError::default());
    let reader = Reader::new(Some(Box::new(disk.clone())), Box::new(disk.clone()));
    let file_bytes = (FILE_PAGES * PAGE) as u64;
    let path = Path::new("synthetic.estream").into();
    let source = Source { path, reader, sums, identity: None, merge_bytes, file_bytes };
    let loader = Loader::start(source, depth, &arena, &outbox, &failure).unwrap();
    Bench { arena, loader, failure }
}

/// Waits for `count` completions.
fn completions(consumer: &mut Consumer<'_>, count: usize) -> Vec<(u32, Status)> {
    let (mut seen, begin) = (Vec::new(), Instant::now());
    while seen.len() < count {
        assert!(begin.elapsed() < Duration::from_secs(20), "only {seen:?}");
        match consumer.pop().unwrap().map(|entry| ToDsp::decode(&entry)) {
            Some(Some(ToDsp::Loaded { ticket, status })) => seen.push((ticket, status)),
            Some(other) => panic!("{other:?}"),
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    seen
}

fn load(ticket: u32, page: u32, pages: u32, file_page: u64) -> Load {
    Load { ticket, segment: Segment::Arena, page, pages, file: file_page * PAGE as u64 }
}

#[test]
fn loads_land_whole_in_their_places_and_never_more_than_q_at_once() {
    for depth in [1, 3] {
        let disk = Arc::new(Disk { nap: Duration::from_millis(4), ..Disk::default() });
        let Bench { arena, loader, failure } = bench(&disk, depth, None);
        let submitter = loader.submitter();
        for n in 0..20 {
            submitter.submit(load(n, 3 * n, 3, u64::from(40 - 2 * n))).unwrap();
        }
        let memory = arena.memory();
        let mut consumer = memory.control().unwrap().to_dsp().consumer();
        let mut seen = completions(&mut consumer, 20);
        seen.sort_by_key(|&(ticket, _)| ticket);
        assert_eq!(seen, (0..20).map(|n| (n, Status::Ok)).collect::<Vec<_>>());
        assert_eq!(loader.pending(), 0);
        assert_eq!(disk.most.load(Ordering::SeqCst), depth as usize);
        let words = memory.words(Segment::Arena);
        for n in 0..20usize {
            for at in (0..3 * PAGE).step_by(4) {
                let file = (40 - 2 * n) * PAGE + at;
                let expected =
                    u32::from_le_bytes([byte(file), byte(file + 1), byte(file + 2), byte(file + 3)]);
                assert_eq!(words[(3 * n * PAGE + at) / 4].load(Ordering::Relaxed), expected);
            }
        }
        if depth == 1 {
            let order: Vec<u64> = (0..20).map(|n| (40 - 2 * n) * PAGE as u64).collect();
            assert_eq!(*disk.started.lock().unwrap(), order, "reads start in the firmware's order");
        }
        let (io, spans) = loader.take_reads();
        assert_eq!((io.reads, io.bytes, spans.len()), (20, 60 * PAGE as u64, 20));
        assert!(spans.iter().all(|span| span.begin_ns <= span.end_ns));
        failure.check().unwrap();
    }
}

#[test]
fn adjacent_loads_come_by_fewer_requests_each_in_its_own_place() {
    let disk = Arc::new(Disk { nap: Duration::from_millis(20), ..Disk::default() });
    let Bench { arena, loader, .. } = merging(&disk, 1, None, 8 * PAGE as u64);
    // End to end in the file from page 1 on, the other way round in memory. While the first is read, the others queue.
    for n in 0..12 {
        loader.submitter().submit(load(n, 3 * (11 - n), 3, u64::from(1 + 3 * n))).unwrap();
    }
    let memory = arena.memory();
    let mut consumer = memory.control().unwrap().to_dsp().consumer();
    let seen = completions(&mut consumer, 12);
    assert_eq!(seen, (0..12).map(|n| (n, Status::Ok)).collect::<Vec<_>>(), "in the firmware's order");
    let words = memory.words(Segment::Arena);
    for n in 0..12usize {
        for at in (0..3 * PAGE).step_by(64) {
            let file = (1 + 3 * n) * PAGE + at;
            let expected = u32::from_le_bytes([byte(file), byte(file + 1), byte(file + 2), byte(file + 3)]);
            assert_eq!(words[(3 * (11 - n) * PAGE + at) / 4].load(Ordering::Relaxed), expected);
        }
    }
    let (io, spans) = loader.take_reads();
    assert_eq!((io.reads, io.bytes), (12, 36 * PAGE as u64));
    // Two loads of three pages fit into eight; the first may have been taken alone.
    assert_eq!(io.requests, disk.started.lock().unwrap().len() as u64);
    assert!((6..=7).contains(&io.requests), "{}", io.requests);
    assert!(spans.iter().all(|span| span.reader == 0));
}

#[test]
fn of_loads_that_share_a_request_only_the_broken_one_fails() {
    let disk = Arc::new(Disk {
        broken_from: Some(9 * PAGE as u64),
        nap: Duration::from_millis(20),
        ..Disk::default()
    });
    let Bench { arena, loader, .. } = merging(&disk, 1, None, 64 * PAGE as u64);
    let mut consumer = arena.memory().control().unwrap().to_dsp().consumer();
    loader.begin_pass();
    for n in 0..4 {
        loader.submitter().submit(load(n, 3 * n, 3, u64::from(3 * n))).unwrap();
    }
    let failed = |n| if n == 3 { Status::LoadFailed } else { Status::Ok };
    assert_eq!(completions(&mut consumer, 4), (0..4).map(|n| (n, failed(n))).collect::<Vec<_>>());
    let error = loader.fault().unwrap();
    assert_eq!(error.offset, Some(9 * 4096));
    assert!(error.message.contains("synthetic.estream: bytes 36864..49152 cannot be read"), "{error}");
}

#[test]
fn a_reader_that_panics_ends_the_session_and_says_at_what_and_all_loads_are_answered() {
    let disk = Arc::new(Disk { deadly: Some(20 * PAGE as u64), ..Disk::default() });
    let Bench { arena, loader, failure } = bench(&disk, 1, None);
    let mut consumer = arena.memory().control().unwrap().to_dsp().consumer();
    loader.begin_pass();
    loader.submitter().submit(load(1, 0, 2, 20)).unwrap();
    loader.submitter().submit(load(2, 2, 2, 3)).unwrap();
    assert_eq!(completions(&mut consumer, 2), [(1, Status::LoadFailed), (2, Status::Ok)]);
    for error in [failure.check().unwrap_err(), loader.fault().unwrap()] {
        assert_eq!((error.code, error.offset, error.exit), ("reader", Some(20 * 4096), Exit::Runtime));
        assert!(error.message.contains("synthetic.estream: bytes 81920..90112 were being read"), "{error}");
    }
    assert_eq!(loader.pending(), 0);
}

#[test]
fn a_range_may_be_asked_for_again_as_soon_as_it_was_loaded() {
    let disk = Arc::new(Disk::default());
    let Bench { arena, loader, .. } = bench(&disk, 2, None);
    let mut consumer = arena.memory().control().unwrap().to_dsp().consumer();
    for round in 0..200 {
        loader.submitter().submit(load(5, 0, 4, round % 60)).unwrap();
        assert_eq!(completions(&mut consumer, 1), [(5, Status::Ok)]);
    }
}

#[test]
fn a_read_that_fails_is_a_status_for_the_firmware_and_a_sentence_for_the_user() {
    let disk = Arc::new(Disk { broken_from: Some(16 * PAGE as u64), ..Disk::default() });
    let Bench { arena, loader, .. } = bench(&disk, 1, None);
    let mut consumer = arena.memory().control().unwrap().to_dsp().consumer();
    loader.begin_pass();
    loader.submitter().submit(load(1, 0, 2, 3)).unwrap();
    loader.submitter().submit(load(2, 2, 2, 20)).unwrap();
    assert_eq!(completions(&mut consumer, 2), [(1, Status::Ok), (2, Status::LoadFailed)]);
    let error = loader.fault().unwrap();
    assert_eq!((error.code, error.offset, error.exit), ("load_failed", Some(20 * 4096), Exit::Runtime));
    for part in ["synthetic.estream", "81920..90112", "os error 5"] {
        assert!(error.message.contains(part), "{error}");
    }
    loader.begin_pass();
    assert!(loader.fault().is_none());
}

#[test]
fn what_fails_before_the_first_pass_is_told_in_every_pass() {
    let disk = Arc::new(Disk { broken_from: Some(16 * PAGE as u64), ..Disk::default() });
    let Bench { arena, loader, .. } = bench(&disk, 1, None);
    let mut consumer = arena.memory().control().unwrap().to_dsp().consumer();
    loader.submitter().submit(load(1, 0, 2, 20)).unwrap();
    assert_eq!(completions(&mut consumer, 1), [(1, Status::LoadFailed)]);
    for _ in 0..2 {
        loader.begin_pass();
        assert_eq!(loader.fault().unwrap().offset, Some(20 * 4096));
    }
}

#[test]
fn a_flipped_byte_is_reported_before_use_where_every_load_is_checked() {
    let page = |n: usize| -> Vec<u8> { (n * PAGE..(n + 1) * PAGE).map(byte).collect() };
    let sum = |first: usize, pages: usize| ExtentSum {
        file: (first * PAGE) as u64,
        bytes: (pages * PAGE) as u64,
        crc: crc32c::crc32c(&(first..first + pages).flat_map(page).collect::<Vec<_>>()),
        reserved: 0,
    };
    let mut header = Header::empty();
    header.experts = Range { file: 8 * PAGE as u64, bytes: 6 * PAGE as u64 };
    let extents = [sum(8, 3), sum(11, 3)];
    let head = ChecksumHeader { extents: 2, embedding_pages: 0 };
    let table = [head.as_bytes(), extents.as_bytes()].concat();
    let sums = Sums::new(table, &header).unwrap();

    let disk = Arc::new(Disk { flipped: Some(13 * PAGE + 1000), ..Disk::default() });
    let Bench { arena, loader, .. } = bench(&disk, 1, Some(sums));
    let mut consumer = arena.memory().control().unwrap().to_dsp().consumer();
    loader.submitter().submit(load(1, 0, 3, 8)).unwrap();
    loader.submitter().submit(load(2, 3, 3, 11)).unwrap();
    assert_eq!(completions(&mut consumer, 2), [(1, Status::Ok), (2, Status::Checksum)]);
    let error = loader.fault().unwrap();
    assert_eq!((error.code, error.offset, error.exit), ("checksum", Some(11 * 4096), Exit::Input));
}
