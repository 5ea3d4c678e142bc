//! Dense weights that are streamed: the same bits, far less memory, and every byte of them read once a pass.

use estream::{Arena, Banks, DenseWeights, Engine, Exit, Model, Options, Request, Top, Verify};
use estream_idl::address::Segment;
use estream_idl::message::EventKind::{self, WaitBegin, WaitEnd};
use estream_tests::collect::Collector;
use estream_tests::fixture;
use ndarray::Array2;
use std::path::Path;

/// Several requests with rows of logits, outputs and targets in one pass: the head is walked once for the outputs and
/// once for each request.
fn run(
    pack: &Path,
    prompts: &[&[u32]],
    options: Options,
) -> (Vec<Array2<f32>>, Vec<Vec<Top>>, estream::Pass) {
    let lengths: Vec<_> = prompts.iter().map(|ids| ids.len()).collect();
    let tokens: usize = lengths.iter().sum();
    let options = options.max_tokens(tokens as u32).max_requests(prompts.len() as u32).rows(true);
    let mut engine = Engine::open(pack, options).expect("the engine opens");
    let mut collector = Collector::new(&lengths, engine.model().vocab as usize);
    let request = |ids: &&[u32]| Request::new(*ids).with_rows().at_with_target(ids.len() as u32 - 1, ids[0]);
    let requests: Vec<_> = prompts.iter().map(request).collect();
    let pass = engine.prefill_into(&requests, &mut collector).expect("the pass runs");
    // A second pass finds the window as the first has left it.
    let mut again = Collector::new(&lengths, engine.model().vocab as usize);
    engine.prefill_into(&requests, &mut again).expect("the pass runs again");
    let logits = collector.finish();
    assert_eq!(logits, again.finish(), "the second pass");
    engine.close().expect("the session ends well");
    let tops = pass.responses.iter().map(|response| response.outputs[0].top.clone()).collect();
    (logits, tops, pass)
}

#[test]
fn streamed_dense_weights_give_the_same_bits() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for golden in fixture::goldens() {
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        let ids = &golden.prompts[0].ids;
        let prompts = [&ids[..], &ids[..1], &ids[ids.len() / 2..]];
        let small = || Options::new().arena(Arena::Group(2, Some(Banks::Count(3)))).threads(2);
        let reference = run(&pack, &prompts, small().dense(DenseWeights::Resident).verify(Verify::Never));
        let policies = [Verify::Always, Verify::Never];
        for &verify in if fixture::full() || golden.name == "olmoe" { &policies[..] } else { &policies[..1] }
        {
            let streamed = run(&pack, &prompts, small().dense(DenseWeights::Streamed).verify(verify));
            let same = |(a, b): (&Array2<f32>, &Array2<f32>)| {
                a.iter().map(|v| v.to_bits()).eq(b.iter().map(|v| v.to_bits()))
            };
            assert!(reference.0.iter().zip(&streamed.0).all(same), "{} {verify:?}: logits", golden.name);
            assert_eq!(reference.1, streamed.1, "{} {verify:?}: candidates", golden.name);
        }
    }
}

#[test]
fn the_window_is_smaller_and_everything_is_read_once() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let header = *estream_host::Pack::open(&pack, Verify::Never, &|_, _| ()).expect("a pack").header();
    let options =
        Options::new().arena(Arena::Group(1, Some(Banks::Count(2)))).max_tokens(96).verify(Verify::Never);
    let mut engine = Engine::open(&pack, options.dense(DenseWeights::Streamed)).expect("the engine opens");
    let window = engine.memory().dense_bytes;
    assert!(window < header.dense.bytes / 2, "{window} of {}", header.dense.bytes);
    for tokens in [96, 3] {
        let ids = golden.prompts[0].ids[..tokens].to_vec();
        let pass = engine.prefill_into(&[Request::next_token(ids)], &mut estream::NoRows).expect("a pass");
        let mut read = vec![0_u32; (header.dense.bytes / 4096) as usize];
        for span in pass.reads.iter().filter(|span| span.segment == Segment::Dense) {
            let first = ((span.file - header.dense.file) / 4096) as usize;
            read[first..first + span.pages as usize].iter_mut().for_each(|times| *times += 1);
            assert!((u64::from(span.page) + u64::from(span.pages)) * 4096 <= window);
        }
        assert!(read.iter().all(|&times| times <= 1), "a page is read twice");
        let waits = pass.events.iter().filter(|event| matches!(event.kind, WaitBegin | WaitEnd));
        let waits: Vec<_> = waits.map(|event| (event.kind, event.layer)).collect();
        let whole = |wait: &[(EventKind, u32)]| wait[0].0 == WaitBegin && wait[1] == (WaitEnd, wait[0].1);
        assert!(waits.chunks(2).all(|wait| wait.len() == 2 && whole(wait)), "{waits:?}");
        // All but the final norm, which stays.
        assert_eq!(read.iter().filter(|&&times| times == 0).count(), 1, "a page is never read");
    }
}

#[test]
fn an_arena_smaller_than_the_dense_weights_streams_them_unless_told_otherwise() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    let model = Model::read(&pack).expect("a pack");
    let dense = |options: Options| Engine::open(&pack, options).expect("the engine opens").streaming().dense;
    let sized = |bytes| Options::new().arena(Arena::Bytes(bytes)).verify(Verify::Never);
    assert_eq!(dense(sized(model.dense_bytes - 1)), DenseWeights::Streamed);
    assert_eq!(dense(sized(model.dense_bytes)), DenseWeights::Resident);
    assert_eq!(dense(sized(model.record_bytes).dense(DenseWeights::Resident)), DenseWeights::Resident);
    assert_eq!(dense(Options::new().verify(Verify::Never)), DenseWeights::Resident);
}

#[test]
fn a_flipped_byte_of_a_streamed_weight_fails_the_pass_and_names_its_extent() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let header = *estream_host::Pack::open(&pack, Verify::Never, &|_, _| ()).expect("a pack").header();
    // In the last dense extent, the head, and in the first layer's.
    for at in [header.dense.file + header.dense.bytes - 4096 - 8, header.dense.file + 8] {
        let mut bytes = std::fs::read(&pack).expect("the pack can be read");
        bytes[at as usize] ^= 1;
        let bad = folder.path().join("flipped.estream");
        std::fs::write(&bad, &bytes).expect("it can be written");
        let options = Options::new().verify(Verify::Always).dense(DenseWeights::Streamed).max_tokens(16);
        let mut engine = Engine::open(&bad, options).expect("the tables are sound");
        let request = [Request::next_token(golden.prompts[0].ids[..8].to_vec())];
        let error = engine.prefill(&request).expect_err("the byte is flipped");
        assert_eq!((error.code.as_ref(), error.exit), ("checksum", Exit::Input), "{error}");
        let offset = error.offset.expect("the extent");
        assert!(offset <= at && at < offset + header.dense.bytes, "{error}");
        assert!(engine.prefill(&request).is_err(), "it is still flipped");
    }
}
