//! A session against firmwares written here: an honest one that checks every byte it asked for, and hostile ones.

#[path = "support/firmware.rs"]
mod firmware;
mod support;

use estream_host::transport::Native;
use estream_host::{Canceller, Error, Exit, Output, Pack, Request, RowSink, Session, Top, Verify};
use estream_idl::address::{PAGE, Segment};
use estream_idl::call::{Config, KernelSet, Reply, Request as Call};
use estream_idl::io::{FLAG_ROWS, IoLayout, NO_TARGET, report};
use estream_idl::log::{Message, Record};
use estream_idl::memory::SharedMemory;
use estream_idl::message::{Event, EventKind, Load, Rows, ToDsp, ToHost};
use estream_idl::status::{Refusal, Status};
use estream_idl::sync::Ordering;
use firmware::{BANKS, Behaviour, Peer, firmware};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use support::{EMBEDDING_AT, EXPERTS_AT, RECORD_PAGES, RECORDS};

const CONFIG: Config = Config {
    max_tokens: 8,
    max_requests: 2,
    max_outputs: 3,
    top_k: 2,
    rows: true,
    group: 2,
    banks: 2,
    depth: 2,
    threads: 1,
    kernels: KernelSet::empty(),
    scratch: 0,
    row_chunk: 0,
    streaming: estream_idl::streaming::Streaming::new(),
};

struct Open {
    session: Session,
    path: PathBuf,
    folder: tempfile::TempDir,
}

fn open_with<B: Behaviour>(policy: Verify, spoil: impl FnOnce(&mut Vec<u8>)) -> Result<Open, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = support::write(folder.path());
    let mut bytes = support::bytes();
    spoil(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    let pack = Pack::open(&path, policy, &|_, _| ())?;
    let session = Session::open(pack, Box::new(Native::open(firmware::<B>())?), CONFIG)?;
    Ok(Open { session, path, folder })
}

fn open<B: Behaviour>() -> Open {
    open_with::<B>(Verify::Never, |_| ()).expect("a session")
}

fn layout() -> IoLayout {
    IoLayout::new(&CONFIG, 64).unwrap()
}

fn put(memory: &SharedMemory<'_>, at: usize, values: &[u32]) {
    for (word, &value) in memory.words(Segment::Io)[at..].iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

fn get(memory: &SharedMemory<'_>, at: usize, count: usize) -> Vec<u32> {
    memory.words(Segment::Io)[at..at + count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

/// Asserts that pages of a segment hold the bytes of the file from `file_page` on.
fn assert_weights(memory: &SharedMemory<'_>, segment: Segment, page: usize, pages: usize, file_page: usize) {
    let words = &memory.words(segment)[page * PAGE / 4..(page + pages) * PAGE / 4];
    for (number, word) in words.iter().enumerate() {
        let at = file_page * PAGE + 4 * number;
        let expected = u32::from_le_bytes(std::array::from_fn(|n| support::weight(at + n)));
        assert_eq!(word.load(Ordering::Relaxed), expected, "{segment:?} page {page}, file byte {at}");
    }
}

/// Streams everything once through two banks, checks it, and leaves known results.
struct Honest;

impl Behaviour for Honest {
    fn pass(peer: &mut Peer, pass: u32, requests: u32) {
        let io = layout();
        let memory = peer.memory;
        assert_eq!(requests, 2);
        assert_eq!(get(&memory, io.requests, 16), [3, 2, 0, 0, 0, 0, 0, 0, 2, 1, FLAG_ROWS, 0, 0, 0, 0, 0]);
        assert_eq!(get(&memory, io.ids, 5), [11, 12, 13, 14, 15]);
        assert_eq!(get(&memory, io.positions, 3), [0, 2, 1]);
        assert_eq!(get(&memory, io.targets, 3), [NO_TARGET, 5, 6]);
        assert_weights(&memory, Segment::Dense, 0, support::DENSE_PAGES, support::DENSE_AT);

        let embed = Load {
            ticket: 100,
            segment: Segment::Embed,
            page: 1,
            pages: 2,
            file: (EMBEDDING_AT * PAGE) as u64,
        };
        peer.load(embed);
        assert_eq!(peer.wait(), Some(ToDsp::Loaded { ticket: 100, status: Status::Ok }));
        assert_weights(&memory, Segment::Embed, 1, 2, EMBEDDING_AT);

        let group = 2 * RECORD_PAGES;
        for first in (0..RECORDS / 2).step_by(BANKS) {
            for bank in 0..BANKS {
                let file = ((EXPERTS_AT + (first + bank) * group) * PAGE) as u64;
                let (page, pages) = ((bank * group) as u32, group as u32);
                peer.load(Load { ticket: 200 + bank as u32, segment: Segment::Arena, page, pages, file });
            }
            for _ in 0..BANKS {
                assert!(matches!(peer.wait(), Some(ToDsp::Loaded { ticket: 200..202, status: Status::Ok })));
            }
            for bank in 0..BANKS {
                assert_weights(
                    &memory,
                    Segment::Arena,
                    bank * group,
                    group,
                    EXPERTS_AT + (first + bank) * group,
                );
            }
        }

        let panel = io.panel_page * PAGE / 4;
        put(&memory, panel, &[1.0f32, 2.0, 3.0, 4.0].map(f32::to_bits));
        let rows = Rows {
            ticket: 300,
            request: 1,
            first_row: 0,
            rows: 2,
            first_column: 0,
            columns: 2,
            page: io.panel_page as u32,
        };
        peer.send(ToHost::Rows(rows));
        assert_eq!(peer.wait(), Some(ToDsp::Taken { ticket: 300 }));
        assert!(peer.was_rung(), "a message without its bell");

        let event = Event { kind: EventKind::Head, layer: 3, index: 2, group: 1, time_ns: 99 };
        peer.control.events().producer().push(&event.encode()).unwrap();
        for output in 0..3u32 {
            let top =
                |rank: u32| [output * 10 + rank, (-(rank as f32)).to_bits(), (-1.0 - rank as f32).to_bits()];
            put(&memory, io.tops + 6 * output as usize, &[top(0), top(1)].concat());
            put(&memory, io.target_logprobs + output as usize, &[(-(output as f32)).to_bits()]);
        }
        put(&memory, io.report + report::PAIRS_TOTAL, &[8, 7, 0.5f32.to_bits(), 1, 4]);
        put(&memory, io.report + report::WAIT_NS, &[5, 1]);
        put(&memory, io.report + report::HIST + 3, &[42]);
        peer.done(pass, Status::Ok);
    }
}

/// Keeps what it is given, or fails.
#[derive(Default)]
struct Sink {
    seen: Vec<(Rows, Vec<f32>)>,
    full: bool,
}

impl RowSink for Sink {
    fn rows(&mut self, rows: &Rows, panel: &[f32]) -> std::io::Result<()> {
        if self.full {
            return Err(std::io::Error::other("disk full"));
        }
        self.seen.push((*rows, panel.to_vec()));
        Ok(())
    }
}

const FIRST: [Output; 2] = [Output { position: 0, target: None }, Output { position: 2, target: Some(5) }];
const SECOND: [Output; 1] = [Output { position: 1, target: Some(6) }];
const BATCH: [Request<'static>; 2] = [
    Request { ids: &[11, 12, 13], outputs: &FIRST, rows: false },
    Request { ids: &[14, 15], outputs: &SECOND, rows: true },
];

#[test]
fn loads_land_where_they_were_asked_for_and_results_come_back() {
    for policy in [Verify::Once, Verify::Always, Verify::Never] {
        let Open { mut session, .. } = open_with::<Honest>(policy, |_| ()).unwrap();
        session.set_silence_limit(Duration::from_secs(5));
        let mut sink = Sink::default();
        let outcome = session.prefill(&BATCH, &mut sink).unwrap();
        let top = |id: u32, rank: f32| Top { id, logit: -rank, logprob: -1.0 - rank };
        assert_eq!(outcome.tops[1], [top(10, 0.0), top(11, 1.0)]);
        assert_eq!(outcome.tops.len(), 3);
        assert_eq!(outcome.target_logprobs, [None, Some(-1.0), Some(-2.0)]);
        assert_eq!(sink.seen.len(), 1);
        assert_eq!(sink.seen[0].1, [1.0, 2.0, 3.0, 4.0]);
        let report = &outcome.report;
        assert_eq!((report.pairs_total, report.pairs_routed, report.max_share), (8, 7, 0.5));
        assert_eq!((report.wait_ns, report.routes_hist[3], report.groups_loaded), ((1 << 32) + 5, 42, 4));
        assert_eq!(outcome.events.iter().map(|event| event.time_ns).collect::<Vec<_>>(), [99]);
        let streamed = (2 + RECORDS * RECORD_PAGES) * PAGE;
        assert!(outcome.io.reads >= 5 && outcome.io.bytes >= streamed as u64);
        assert_eq!(outcome.io.session_bytes as usize, streamed + support::DENSE_PAGES * PAGE);
        let arena = outcome.reads.iter().filter(|read| read.segment == Segment::Arena).count();
        assert_eq!(arena, RECORDS / 2);
        let memory = session.memory();
        assert_eq!(memory.arena_bytes, (BANKS * 2 * RECORD_PAGES * PAGE) as u64);
        assert_eq!(memory.total_bytes(), session.plan().segments.total_bytes() + 3000);
        session.close().unwrap();
    }
}

#[test]
fn a_sink_that_fails_ends_the_pass_and_not_the_session() {
    struct Patient;
    impl Behaviour for Patient {
        fn pass(peer: &mut Peer, pass: u32, _: u32) {
            let page = layout().panel_page as u32;
            let rows =
                Rows { ticket: 1, request: 1, first_row: 0, rows: 1, first_column: 0, columns: 4, page };
            peer.send(ToHost::Rows(rows));
            match (pass, peer.wait()) {
                (1, Some(ToDsp::Cancel { pass: 1 })) => {
                    assert_eq!(peer.wait(), Some(ToDsp::Taken { ticket: 1 }));
                    peer.done(pass, Status::Cancelled);
                }
                (_, Some(ToDsp::Taken { ticket: 1 })) => peer.done(pass, Status::Ok),
                other => panic!("{other:?}"),
            }
        }
    }
    let Open { mut session, .. } = open::<Patient>();
    let error = session.prefill(&BATCH, &mut Sink { full: true, ..Sink::default() }).unwrap_err();
    assert_eq!((error.code, error.exit), ("sink", Exit::Runtime));
    assert!(error.message.contains("disk full"), "{error}");
    session.prefill(&BATCH, &mut Sink::default()).unwrap();
    session.close().unwrap();
}

#[test]
fn a_pass_is_given_up_from_another_thread_and_the_next_one_runs() {
    struct Endless;
    impl Behaviour for Endless {
        fn pass(peer: &mut Peer, pass: u32, _: u32) {
            let cancelled = matches!(peer.wait(), Some(ToDsp::Cancel { pass: given_up }) if given_up == pass);
            peer.done(pass, if cancelled { Status::Cancelled } else { Status::Stopped });
        }
    }
    let Open { mut session, .. } = open::<Endless>();
    let canceller: Canceller = session.canceller();
    canceller.cancel();
    for _ in 0..2 {
        let other = canceller.clone();
        let late = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            other.cancel();
        });
        let error = session.prefill(&BATCH, &mut Sink::default()).unwrap_err();
        assert_eq!((error.code, error.refusal.unwrap().status), ("cancelled", Status::Cancelled));
        late.join().unwrap();
    }
    session.close().unwrap();
    canceller.cancel();
}

/// Loads all records as one group after another and passes on how that went.
struct Loading;

impl Behaviour for Loading {
    fn pass(peer: &mut Peer, pass: u32, _: u32) {
        let mut status = Status::Ok;
        for record in 0..RECORDS {
            let file = ((EXPERTS_AT + record * RECORD_PAGES) * PAGE) as u64;
            let pages = RECORD_PAGES as u32;
            peer.load(Load { ticket: 7, segment: Segment::Arena, page: 0, pages, file });
            let Some(ToDsp::Loaded { status: loaded, .. }) = peer.wait() else { return };
            status = if status == Status::Ok { loaded } else { status };
        }
        peer.done(pass, status);
    }
}

#[test]
fn a_pack_that_shrinks_under_the_session_names_file_and_bytes() {
    let Open { mut session, path, folder: _folder } = open::<Loading>();
    let broken = EXPERTS_AT + 5 * RECORD_PAGES;
    std::fs::File::options().write(true).open(&path).unwrap().set_len((broken * PAGE) as u64).unwrap();
    let error = session.prefill(&BATCH, &mut Sink::default()).unwrap_err();
    assert_eq!((error.code, error.exit), ("load_failed", Exit::Runtime));
    assert_eq!((error.offset, error.file), (Some((broken * PAGE) as u64), Some(path)));
    assert!(error.message.contains(&(broken * PAGE).to_string()), "{}", error.message);
    session.close().unwrap();
}

/// Loads a record in two parts, the second one first, and where the token is 1 only that one.
struct Cutting;

impl Behaviour for Cutting {
    fn pass(peer: &mut Peer, pass: u32, _: u32) {
        let mut status = Status::Ok;
        let parts = if get(&peer.memory, layout().ids, 1) == [1] { 1 } else { 2 };
        for (page, pages) in [(1, 2), (0, 1)].into_iter().take(parts) {
            let file = ((EXPERTS_AT + 3 * RECORD_PAGES + page) * PAGE) as u64;
            peer.load(Load { ticket: 7, segment: Segment::Arena, page: page as u32, pages, file });
            let Some(ToDsp::Loaded { status: loaded, .. }) = peer.wait() else { return };
            status = if status == Status::Ok { loaded } else { status };
        }
        peer.done(pass, status);
    }
}

#[test]
fn under_always_an_extent_that_comes_in_parts_is_checked_whole_or_the_pass_fails() {
    let record = (EXPERTS_AT + 3 * RECORD_PAGES) * PAGE;
    let Open { mut session, .. } = open_with::<Cutting>(Verify::Always, |_| ()).unwrap();
    session.prefill(&BATCH, &mut Sink::default()).unwrap();
    let part = [Request { ids: &[1, 1, 1], ..BATCH[0] }, BATCH[1]];
    let error = session.prefill(&part, &mut Sink::default()).unwrap_err();
    assert_eq!((error.code, error.offset), ("unchecked", Some((record + PAGE) as u64)));
    session.prefill(&BATCH, &mut Sink::default()).unwrap();

    for at in [record, record + PAGE, record + 3 * PAGE - 1] {
        let spoilt = open_with::<Cutting>(Verify::Always, |bytes| bytes[at] ^= 0x80);
        let error = spoilt.unwrap().session.prefill(&BATCH, &mut Sink::default()).unwrap_err();
        assert_eq!((error.code, error.exit), ("checksum", Exit::Input), "byte {at}");
        assert_eq!(error.offset, Some(record as u64), "byte {at}");
    }
}

#[test]
fn under_always_a_flipped_byte_is_found_when_it_is_read_and_named() {
    let at = (EXPERTS_AT + 3 * RECORD_PAGES + 1) * PAGE + 5;
    let Open { mut session, .. } = open_with::<Loading>(Verify::Always, |bytes| bytes[at] ^= 0x80).unwrap();
    let error = session.prefill(&BATCH, &mut Sink::default()).unwrap_err();
    assert_eq!((error.code, error.exit), ("checksum", Exit::Input));
    assert_eq!(error.offset, Some(((EXPERTS_AT + 3 * RECORD_PAGES) * PAGE) as u64));
    assert!(open_with::<Loading>(Verify::Once, |bytes| bytes[at] ^= 0x80).is_err());
}

/// Does one wrong thing in every pass: which one is the token id.
struct Hostile;

impl Behaviour for Hostile {
    fn pass(peer: &mut Peer, pass: u32, _: u32) {
        let page = layout().panel_page as u32;
        let load = Load { ticket: 9, segment: Segment::Arena, page: 0, pages: 1, file: 0 };
        let rows = Rows { ticket: 1, request: 1, first_row: 0, rows: 1, first_column: 0, columns: 4, page };
        match get(&peer.memory, layout().ids, 1)[0] {
            0 => peer.load(Load { segment: Segment::Control, ..load }),
            1 => peer.load(Load { page: 12, ..load }),
            2 => peer.load(Load { pages: 0, ..load }),
            3 => peer.load(Load { file: 1 << 40, ..load }),
            4 => peer.load(Load { file: 100, ..load }),
            5 => peer.send_raw([77; 16]),
            6 => {
                let mut entry = ToHost::Load(load).encode();
                entry[2] = 0x0104;
                peer.send_raw(entry);
            }
            7 => {
                // The producer's index of the ring to the host: line 5.
                peer.memory.words(Segment::Control)[5 * 32].store(0x8000_0000, Ordering::Release);
                peer.ring();
            }
            // The consumer's index of the ring to the firmware: line 4. The completion finds it.
            8 => {
                peer.memory.words(Segment::Control)[4 * 32].store(0x7000_0000, Ordering::Release);
                peer.load(load);
            }
            9 => peer.done(pass + 1, Status::Ok),
            10 => peer.send(ToHost::Rows(Rows { page: 0, ..rows })),
            11 => peer.send(ToHost::Rows(Rows { page: u32::MAX, ..rows })),
            12 => peer.send(ToHost::Rows(Rows { columns: u32::MAX, ..rows })),
            13 => peer.send(ToHost::Rows(Rows { request: 0, ..rows })),
            14 => (0..200).for_each(|_| peer.send(ToHost::Rows(rows))),
            15 => peer.done(pass, Status::Protocol),
            16 => {
                let mut trace = peer.control.events().producer();
                trace.push(&[0xFFFF; 16]).unwrap();
                peer.ring();
            }
            _ => {
                peer.load(Load { pages: 12, ..load });
                peer.load(Load { ticket: 10, page: 11, ..load });
                // Whichever comes first: the overlap, or the end of the first read.
                peer.load(Load { ticket: 10, segment: Segment::Io, ..load });
            }
        }
        while !peer.stopped() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn what_no_correct_firmware_sends_fails_the_session_quickly_and_for_good() {
    for kind in 0..18 {
        let Open { mut session, .. } = open::<Hostile>();
        let ids = [kind, 1, 1];
        let batch = [Request { ids: &ids, ..BATCH[0] }, BATCH[1]];
        let begin = Instant::now();
        let first = session.prefill(&batch, &mut Sink::default()).expect_err("a breach");
        assert_eq!((first.code, first.exit), ("protocol", Exit::Runtime), "{kind}: {first}");
        let second = session.prefill(&batch, &mut Sink::default()).expect_err("a failed session");
        assert_eq!(second.message, first.message, "{kind}");
        assert!(session.close().is_err());
        assert!(begin.elapsed() < Duration::from_secs(5), "{kind}: {:?}", begin.elapsed());
    }
}

/// Falls silent; with token 1 it goes on beating for a while, then ends the pass.
struct Silent;

impl Behaviour for Silent {
    fn pass(peer: &mut Peer, pass: u32, _: u32) {
        let [beats, layer, bank] = peer.control.heartbeat();
        layer.store(6, Ordering::Relaxed);
        bank.store(2, Ordering::Relaxed);
        if get(&peer.memory, layout().ids, 1) == [1] {
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(50));
                beats.fetch_add(1, Ordering::Release);
            }
            return peer.done(pass, Status::Ok);
        }
        while !peer.stopped() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_firmware_may_take_long_but_not_in_silence() {
    let Open { mut session, .. } = open::<Silent>();
    session.set_silence_limit(Duration::from_millis(400));
    let ids = [1, 1, 1];
    session.prefill(&[Request { ids: &ids, ..BATCH[0] }], &mut Sink::default()).unwrap();
    let begin = Instant::now();
    let error = session.prefill(&BATCH, &mut Sink::default()).unwrap_err();
    assert_eq!((error.code, error.exit), ("silent", Exit::Runtime));
    assert!(error.message.contains("layer 6, bank 2"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(3));
    assert!(session.close().is_err());
}

#[test]
fn a_session_settles_when_the_firmware_says_so_and_does_not_wait_for_ever() {
    struct Ready;
    impl Behaviour for Ready {
        fn pass(peer: &mut Peer, pass: u32, _: u32) {
            peer.done(pass, Status::Ok);
        }
        fn started(peer: &mut Peer) {
            let record = Record { message: Message::Resident, values: [0; 3], time_ns: 0 };
            peer.control.events().producer().push(&record.encode()).expect("room");
            peer.ring();
        }
    }
    /// Beats for ever and is never ready.
    struct Idle;
    impl Behaviour for Idle {
        fn pass(_: &mut Peer, _: u32, _: u32) {}
        fn started(peer: &mut Peer) {
            let [beats, ..] = peer.control.heartbeat();
            while !peer.stopped() {
                beats.fetch_add(1, Ordering::Release);
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let begin = Instant::now();
    let Open { session, .. } = open::<Ready>();
    session.settle().expect("it is ready");
    session.settle().expect("it still is");
    session.close().expect("it ends well");

    let Open { mut session, .. } = open::<Idle>();
    session.set_silence_limit(Duration::from_millis(300));
    let error = session.settle().expect_err("it is never ready");
    assert_eq!((error.code, error.exit), ("silent", Exit::Runtime), "{error}");
    assert!(session.close().is_err());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn a_firmware_that_says_where_it_is_without_a_beat_is_silent() {
    struct Stalled;
    impl Behaviour for Stalled {
        fn pass(peer: &mut Peer, _: u32, _: u32) {
            let [_, layer, bank] = peer.control.heartbeat();
            while !peer.stopped() {
                layer.fetch_add(1, Ordering::Relaxed);
                bank.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let Open { mut session, .. } = open::<Stalled>();
    session.set_silence_limit(Duration::from_millis(300));
    let begin = Instant::now();
    assert_eq!(session.prefill(&BATCH, &mut Sink::default()).unwrap_err().code, "silent");
    assert!(begin.elapsed() < Duration::from_secs(3));
}

/// An engine that ends by itself, in one of the ways that it can still tell.
struct Dying;

impl Behaviour for Dying {
    fn pass(peer: &mut Peer, pass: u32, _: u32) {
        match get(&peer.memory, layout().ids, 1)[0] {
            0 => peer.done(pass, Status::Protocol),
            1 => peer.done(pass, Status::Internal),
            // Before the pass: it has no number to tell.
            2 => peer.done(0, Status::Internal),
            _ => {
                let values = [Status::Internal as u64, 0, 0];
                let record = Record { message: Message::SessionFails, values, time_ns: 0 };
                peer.control.events().producer().push(&record.encode()).unwrap();
            }
        }
        while !peer.stopped() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn an_engine_that_has_ended_is_noticed_at_once_and_for_good() {
    for (kind, code) in [(0, "protocol"), (1, "internal"), (2, "internal"), (3, "internal")] {
        // Far below the 30 s of silence.
        let Open { mut session, .. } = open::<Dying>();
        let ids = [kind, 1, 1];
        let batch = [Request { ids: &ids, ..BATCH[0] }, BATCH[1]];
        let begin = Instant::now();
        for _ in 0..2 {
            let error = session.prefill(&batch, &mut Sink::default()).expect_err("an end");
            assert_eq!((error.code, error.exit), (code, Exit::Runtime), "{kind}: {error}");
        }
        assert!(session.close().is_err());
        assert!(begin.elapsed() < Duration::from_secs(2), "{kind}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_plan_beyond_the_memory_is_refused_with_both_numbers() {
    struct Greedy;
    impl Behaviour for Greedy {
        fn pass(_: &mut Peer, _: u32, _: u32) {}
        fn answer(call: &Call<'_>) -> Option<Reply> {
            let Call::Plan(prepare) = call else { return None };
            let plan = firmware::plan(prepare.config.depth);
            Some(Reply::Plan(estream_idl::call::Plan { private_bytes: 1 << 50, ..plan }))
        }
    }
    let error = open_with::<Greedy>(Verify::Never, |_| ()).err().expect("a refusal");
    let refusal = error.refusal.unwrap();
    let segments = firmware::plan(2).segments.total_bytes();
    assert_eq!((error.code, error.exit), ("no_memory", Exit::Runtime));
    assert_eq!(refusal.needed, segments + (1 << 50) + 2000);
    assert!((1..1 << 50).contains(&refusal.limit), "{refusal:?}");
    for number in [refusal.needed, refusal.limit] {
        assert!(error.message.contains(&number.to_string()), "{error}");
    }
}

#[test]
fn a_firmware_that_never_stops_is_left_behind() {
    struct Stuck;
    impl Behaviour for Stuck {
        fn pass(_: &mut Peer, _: u32, _: u32) {
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        }
    }
    let Open { mut session, .. } = open::<Stuck>();
    session.set_silence_limit(Duration::from_millis(200));
    let begin = Instant::now();
    assert_eq!(session.prefill(&BATCH, &mut Sink::default()).unwrap_err().code, "silent");
    drop(session);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn versions_refusals_and_impossible_plans_are_told_before_anything_starts() {
    macro_rules! answering {
        ($name:ident, $call:pat => $reply:expr) => {
            struct $name;
            impl Behaviour for $name {
                fn pass(_: &mut Peer, _: u32, _: u32) {}
                fn answer(call: &Call<'_>) -> Option<Reply> {
                    match call {
                        $call => Some($reply),
                        _ => None,
                    }
                }
            }
        };
    }
    const NEEDS: Refusal = Refusal { status: Status::ArenaTooSmall, needed: 12_288, limit: 4096, detail: 0 };
    answering!(Newer, Call::Hello { .. } => Reply::Hello(estream_idl::call::Hello {
        protocol: 99, kernels: KernelSet::SCALAR, processors: 1, scratch: 0 }));
    answering!(Poor, Call::Plan(_) => Reply::Refused(NEEDS));
    answering!(Damaged, Call::Plan(_) => Reply::Refused(Status::BadDirectory.into()));
    answering!(Eager, Call::Plan(_) => Reply::Plan(firmware::plan(500)));
    answering!(Tiny, Call::Plan(_) => Reply::Plan(estream_idl::call::Plan {
        segments: estream_idl::address::SegmentPages([1, 16, 8, 4, 12]), ..firmware::plan(2) }));
    answering!(Fickle, Call::Start(_) => Reply::Plan(estream_idl::call::Plan {
        private_bytes: 1, ..firmware::plan(2) }));
    answering!(Confused, Call::Plan(_) => Reply::Stopped(Status::Ok));
    let error = |result: Result<Open, Error>| result.err().expect("a refusal");
    let told = error(open_with::<Newer>(Verify::Never, |_| ()));
    assert_eq!((told.code, told.exit), ("version", Exit::Device));
    let told = error(open_with::<Poor>(Verify::Never, |_| ()));
    assert_eq!((told.code, told.refusal), ("arena_too_small", Some(NEEDS)));
    let told = error(open_with::<Damaged>(Verify::Never, |_| ()));
    assert_eq!((told.code, told.exit), ("bad_directory", Exit::Input));
    assert!(told.message.contains("small.estream"), "{told}");
    for told in [
        error(open_with::<Eager>(Verify::Never, |_| ())),
        error(open_with::<Tiny>(Verify::Never, |_| ())),
        error(open_with::<Fickle>(Verify::Never, |_| ())),
        error(open_with::<Confused>(Verify::Never, |_| ())),
    ] {
        assert_eq!(told.code, "protocol", "{told}");
    }
}

#[test]
fn a_batch_beyond_the_limits_never_reaches_the_firmware() {
    let Open { mut session, .. } = open::<Hostile>();
    let ids = [0; 9];
    let error = session.prefill(&[Request { ids: &ids, ..Request::default() }], &mut Sink::default());
    let error = error.unwrap_err();
    assert_eq!((error.code, error.exit), ("too_many_tokens", Exit::Input));
    assert!(error.message.contains('9') && error.message.contains('8'), "{error}");
    session.close().unwrap();
}
