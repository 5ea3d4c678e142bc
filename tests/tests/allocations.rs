//! Law 6: between start and stop the firmware allocates nothing, on any of its threads.
//!
//! The test is alone in its file, since the allocator counts for the whole process.

use estream::{Arena, Banks, Engine, Options, Request};
use estream_tests::collect::Collector;
use estream_tests::counting::Counting;
use estream_tests::fixture;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

#[test]
fn the_firmware_allocates_nothing_between_start_and_stop() {
    // What counts as the firmware's is shown first: one box made on a thread of its kind.
    let before = ALLOCATOR.firmware();
    let boxed = |argument| drop(std::hint::black_box(Box::new(argument)));
    estream_dsp::platform::spawn("boxed", boxed, 1).expect("a thread can be made").join();
    assert_eq!(ALLOCATOR.firmware() - before, 1, "the box is not counted");

    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = golden.prompts[0].ids.as_slice();
    let options = Options::new()
        .arena(Arena::Group(2, Some(Banks::Count(3))))
        .threads(2)
        .rows(true)
        .max_tokens(ids.len() as u32)
        .max_outputs(ids.len() as u32);
    let mut engine = Engine::open(&pack, options).expect("the engine opens");
    let started = ALLOCATOR.firmware();
    for length in [ids.len(), 1, 40] {
        let mut collector = Collector::new(&[length], engine.model().vocab as usize);
        let request = Request::score(&ids[..length]).with_rows();
        engine.prefill_into(&[request], &mut collector).expect("the pass runs");
        drop(collector.finish());
    }
    let before_stop = ALLOCATOR.firmware();
    engine.close().expect("the session ends well");
    assert_eq!(before_stop - started, 0, "allocations of the firmware's threads");
}
