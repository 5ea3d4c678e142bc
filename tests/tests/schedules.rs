//! Every schedule is the same engine: the same bits, and each what its name says.
//!
//! The order in which groups are asked for is a snapshot, made by the scheduler in simulated time, where it cannot depend
//! on the machine. That the firmware keeps to it is seen in real passes by the times of reads and events.

use estream::{
    Arena, Banks, DenseWeights, Engine, EventKind, Model, Options, Pass, Planning, Request, Schedule, Verify,
};
use estream_idl::address::Segment;
use estream_idl::streaming::WHOLE_GROUPS;
use estream_tests::collect::Collector;
use estream_tests::fixture;
use estream_tests::simulated::{Device, Layer, Looks, Settings, Workload, simulate};
use ndarray::Array2;
use std::path::Path;

/// Three layers of eight experts of which some have no routes; layer 1 has smaller records.
fn workload() -> Workload {
    let layer = |record_bytes, rows: [u32; 8]| Layer {
        record_bytes,
        mixer_ns: 100_000,
        unit_ns: 20_000,
        call_ns: 5_000,
        row_ns: 10_000,
        rows: rows.into(),
    };
    let layers = vec![
        layer(65_536, [3, 1, 0, 0, 2, 0, 1, 4]),
        layer(32_768, [0, 0, 0, 0, 5, 6, 0, 0]),
        layer(65_536, [1, 2, 3, 4, 5, 6, 7, 8]),
    ];
    Workload { layers, embed_ns: 50_000, head_ns: 200_000 }
}

#[test]
fn the_first_loads_of_each_schedule() {
    let device = Device { name: "", latency_ns: 20_000, stream: 1e9, total: 2e9, macs: 1.0 };
    let plain = Settings { schedule: Schedule::CrossLayer, group: 2, banks: 3, depth: 2, gap: WHOLE_GROUPS };
    let schedules = [
        ("on-demand", Settings { schedule: Schedule::OnDemand, ..plain }),
        ("after-routing", Settings { schedule: Schedule::AfterRouting, ..plain }),
        ("early", Settings { schedule: Schedule::Early, ..plain }),
        ("cross-layer", plain),
        ("naive", Settings { group: 1, banks: 3, depth: 1, ..plain }),
        ("layer-2", Settings { group: 8, banks: 2, ..plain }),
        ("layer-all", Settings { group: 8, banks: 3, ..plain }),
        ("resident", Settings { schedule: Schedule::Resident, ..plain }),
        ("after-routing, no gaps", Settings { schedule: Schedule::AfterRouting, group: 8, gap: 0, ..plain }),
    ];
    let mut text = String::new();
    for (name, settings) in schedules {
        let simulated = simulate(&device, &workload(), settings, Looks::BetweenOperators);
        text += &format!("\n{name}\n      µs  bank  page  pages     file\n");
        for (time, bank, load) in simulated.asked.iter().take(20) {
            let micros = *time as f64 / 1e3;
            text += &format!("{micros:8.1}  {bank:4}  {:4}  {:5}  {:7}\n", load.page, load.pages, load.file);
        }
    }
    insta::assert_snapshot!("first_loads", text);
}

fn run(pack: &Path, ids: &[u32], options: Options) -> (Array2<f32>, Pass) {
    let options = options.max_tokens(ids.len() as u32).max_requests(1).rows(true).verify(Verify::Never);
    let mut engine = Engine::open(pack, options).expect("the engine opens");
    let mut collector = Collector::new(&[ids.len()], engine.model().vocab as usize);
    let pass = engine.prefill_into(&[Request::new(ids).with_rows()], &mut collector).expect("the pass runs");
    engine.close().expect("the session ends well");
    (collector.finish().remove(0), pass)
}

/// Every way of bringing experts in that the command line has.
fn modes() -> Vec<(&'static str, Options)> {
    let small = || Options::new().arena(Arena::Group(2, Some(Banks::Count(3)))).threads(2);
    let mut modes: Vec<_> =
        Schedule::ALL.map(|schedule| (schedule.name(), small().schedule(schedule))).into();
    modes.extend([
        ("naive", small().arena(Arena::Group(1, Some(Banks::Count(3)))).depth(1)),
        ("layer-2", small().arena(Arena::Layers(Banks::Count(2)))),
        ("layer-all", small().arena(Arena::Layers(Banks::All))),
        ("per-expert", small().planning(Planning::PerExpert)),
        ("no gaps", small().arena(Arena::Layers(Banks::Count(2))).schedule(Schedule::AfterRouting).gap(0)),
        ("resident, no gaps", small().schedule(Schedule::Resident).gap(0)),
        ("dense streamed", small().dense(DenseWeights::Streamed)),
        (
            "all streamed, one bank",
            small().arena(Arena::Group(1, Some(Banks::Count(1)))).dense(DenseWeights::Streamed),
        ),
        (
            "dense streamed, experts resident",
            small().dense(DenseWeights::Streamed).schedule(Schedule::Resident),
        ),
        ("requests kept apart", small().arena(Arena::Group(1, Some(Banks::Count(8)))).depth(1).merge(0)),
        ("requests merged", small().arena(Arena::Group(1, Some(Banks::Count(8)))).depth(1).merge(1 << 30)),
        ("one bank, no gaps", small().arena(Arena::Group(4, Some(Banks::Count(1)))).gap(0)),
    ]);
    modes
}

#[test]
fn every_schedule_gives_the_same_bits() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for golden in fixture::goldens() {
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        // Few tokens leave most experts unrouted, many none.
        let counts = if fixture::full() || golden.name == "olmoe" { &[3, 96][..] } else { &[24] };
        for &tokens in counts {
            let ids: Vec<u32> = golden.prompts[0].ids.iter().copied().cycle().take(tokens).collect();
            let (reference, _) = run(&pack, &ids, Options::new().arena(Arena::Layers(Banks::All)).threads(1));
            for (name, options) in modes() {
                let (logits, _) = run(&pack, &ids, options);
                let same = reference.iter().zip(&logits).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same && reference.dim() == logits.dim(), "{} {tokens} {name}", golden.name);
            }
        }
        println!("{}: {} modes, the same bytes", golden.name, modes().len());
    }
}

/// When each layer began, and when its routes were known.
fn times(pass: &Pass, kind: EventKind) -> Vec<u64> {
    pass.events.iter().filter(|event| event.kind == kind).map(|event| event.time_ns).collect()
}

#[test]
fn reads_happen_when_the_schedule_says() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = &golden.prompts[0].ids[..64];
    let options = || Options::new().arena(Arena::Group(2, Some(Banks::Count(4)))).threads(1);
    let experts_at =
        estream_host::Pack::open(&pack, Verify::Never, &|_, _| ()).expect("a pack").header().experts.file;
    let model = Model::read(&pack).expect("a pack");
    let layer_bytes = u64::from(model.experts) * model.record_bytes;
    for schedule in Schedule::ALL {
        let (_, pass) = run(&pack, ids, options().schedule(schedule));
        assert_eq!(pass.report.events_dropped, 0);
        let (begun, routed) = (times(&pass, EventKind::Layer), times(&pass, EventKind::Routed));
        let (runs, ends) = (times(&pass, EventKind::BankBegin), times(&pass, EventKind::BankEnd));
        assert_eq!(begun.len(), model.layer_experts.len());
        let reads: Vec<_> = pass.reads.iter().filter(|read| read.segment == Segment::Arena).collect();
        let layer = |read: &estream::ReadSpan| ((read.file - experts_at) / layer_bytes) as usize;
        let ahead = reads.iter().filter(|read| read.begin_ns < begun[layer(read)]).count();
        let blind = reads.iter().filter(|read| read.begin_ns < routed[layer(read)]).count();
        let beside = reads.iter().filter(|read| {
            runs.iter().zip(&ends).any(|(&run, &end)| read.begin_ns < end && run < read.end_ns)
        });
        let (beside, name) = (beside.count(), schedule.name());
        println!(
            "{name}: {} reads, {ahead} ahead, {blind} blind, {beside} beside a bank at work",
            reads.len()
        );
        match schedule {
            Schedule::OnDemand => assert_eq!((ahead, blind, beside), (0, 0, 0), "{name}"),
            Schedule::AfterRouting => assert_eq!((ahead, blind), (0, 0), "{name}"),
            Schedule::Early => assert_eq!(ahead, 0, "{name}"),
            Schedule::CrossLayer => assert!(ahead > 0, "{name}"),
            Schedule::Resident => assert_eq!(reads.len(), 0, "{name}"),
        }
        // Two tokens leave most experts without routes: what was asked for before the router spoke was in vain.
        let single = options().arena(Arena::Group(1, Some(Banks::Count(6)))).schedule(schedule);
        let (_, pass) = run(&pack, &ids[..2], single);
        let speculates = matches!(schedule, Schedule::Early | Schedule::CrossLayer);
        assert_eq!(pass.report.speculative > 0, speculates, "{name}: {}", pass.report.speculative);
    }
}

/// Passes in which loads have a chance to be merged.
const TRIES: usize = 20;

#[test]
fn adjacent_groups_and_records_share_requests_where_that_is_wanted() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let model = Model::read(&pack).expect("a pack");
    let ids = &golden.prompts[0].ids[..64];
    // One reader and many banks, so that loads wait for it; whole groups, and parts of them.
    let options = || Options::new().arena(Arena::Group(1, Some(Banks::Count(12)))).depth(1).threads(1);
    let parts =
        || options().arena(Arena::Group(8, Some(Banks::Count(4)))).schedule(Schedule::AfterRouting).gap(0);
    for (what, options) in [("groups", options()), ("records", parts())] {
        let (apart, passed) = run(&pack, ids, options.clone().merge(0));
        assert_eq!(passed.io.requests, passed.io.reads, "{what}");
        let bytes = passed.io.bytes;
        let (two, passed) = run(&pack, ids, options.clone().merge(2 * model.record_bytes));
        // Loads are merged when they wait for the reader, which on a busy machine may keep up with the engine for a pass.
        let (all, merged) = (0..TRIES)
            .map(|_| run(&pack, ids, options.clone().merge(1 << 30)))
            .find(|(_, pass)| pass.io.requests < pass.io.reads)
            .unwrap_or_else(|| panic!("{what}: nothing was merged in {TRIES} passes"));
        assert_eq!((passed.io.bytes, merged.io.bytes), (bytes, bytes), "{what}: the same bytes are read");
        assert_eq!((&apart, &apart), (&two, &all), "{what}");
        println!(
            "{what}: {} reads by {} requests, {} by pairs",
            merged.io.reads, merged.io.requests, passed.io.requests
        );
        // Loads of one request begin together, and make up no more than was allowed.
        let mut requests = std::collections::BTreeMap::<_, u64>::new();
        for read in passed.reads.iter().filter(|read| read.segment == Segment::Arena) {
            *requests.entry((read.reader, read.begin_ns)).or_default() += u64::from(read.pages) * 4096;
        }
        // A load that is larger than the bound goes alone.
        let largest = passed.reads.iter().map(|read| u64::from(read.pages) * 4096).max().unwrap_or(0);
        assert!(requests.values().all(|&bytes| bytes <= largest.max(2 * model.record_bytes)), "{what}");
    }
}

#[test]
fn resident_experts_are_read_once_for_all_passes() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let options = Options::new().schedule(Schedule::Resident).max_tokens(64).verify(Verify::Never);
    let mut engine = Engine::open(&pack, options).expect("the engine opens");
    let model = engine.model().clone();
    assert_eq!(engine.memory().arena_bytes, model.expert_bytes, "there is a bank for every group");
    for tokens in [64, 2, 64] {
        let ids = golden.prompts[0].ids[..tokens].to_vec();
        let pass = engine.prefill_into(&[Request::next_token(ids)], &mut estream::NoRows).expect("a pass");
        assert!(pass.reads.iter().all(|read| read.segment == Segment::Embed));
        assert_eq!((pass.report.groups_loaded, pass.report.speculative), (0, 0));
        let expected = model.expert_bytes..model.expert_bytes + (64 << 20);
        assert!(expected.contains(&pass.io.session_bytes), "{}", pass.io.session_bytes);
    }
}

#[test]
fn a_resident_expert_that_is_damaged_fails_every_pass_and_is_named() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let header = *estream_host::Pack::open(&pack, Verify::Never, &|_, _| ()).expect("a pack").header();
    // The first of many loads: it fails while the others are still on their way, and those must have ended when the pass
    // is asked for.
    let record = header.experts.file;
    let mut bytes = std::fs::read(&pack).expect("the pack can be read");
    bytes[record as usize + 100] ^= 4;
    std::fs::write(&pack, bytes).expect("it can be written");
    let options = Options::new().schedule(Schedule::Resident).verify(Verify::Always).max_tokens(16);
    let options = options.arena(Arena::Group(1, Some(Banks::All))).depth(4).merge(0);
    let mut engine = Engine::open(&pack, options).expect("the tables are sound");
    for _ in 0..2 {
        let error = engine.prefill(&[Request::next_token([1, 2])]).expect_err("a damaged expert");
        assert_eq!((error.code.as_ref(), error.offset), ("checksum", Some(record)), "{error}");
    }
}
