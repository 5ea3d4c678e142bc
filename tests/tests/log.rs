//! The firmware's log arrives in order, in words, and says how each pass ended.

use estream::{Arena, Banks, Engine, Options, Request};
use estream_idl::log::{Level, Message};
use estream_tests::fixture;

#[test]
fn a_session_tells_its_life_and_each_pass_its_end() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = golden.prompts[0].ids.as_slice();
    let options =
        Options::new().arena(Arena::Group(2, Some(Banks::Count(3)))).threads(2).max_tokens(ids.len() as u32);
    let mut engine = Engine::open(&pack, options).expect("the engine opens");
    engine.prefill(&[Request::next_token(ids)]).expect("the pass runs");
    let log = engine.take_log();
    let said: Vec<_> = log.iter().map(|record| record.message).collect();
    assert_eq!(said, [Message::Started, Message::Resident, Message::PassBegins, Message::PassEnds]);
    assert!(log.is_sorted_by_key(|record| record.time_ns));
    assert_eq!(log[0].to_string(), "started with 2 threads and 3 banks of 2 experts");
    assert!(log[2].to_string().ends_with("begins with 1 requests"));

    let file = std::fs::OpenOptions::new().write(true).open(&pack).expect("the pack can be written");
    file.set_len(4096).expect("the pack can be cut");
    engine.prefill(&[Request::next_token(ids)]).expect_err("the experts are gone");
    let log = engine.take_log();
    let said: Vec<_> = log.iter().map(|record| record.message).collect();
    let failed = said.iter().filter(|&&message| message == Message::LoadFailed).count();
    assert_eq!((said[0], failed + 2), (Message::PassBegins, said.len()), "{said:?}");
    assert!(failed > 0);
    let refused = log.last().expect("the refusal is in the log");
    assert_eq!((refused.message, refused.message.level()), (Message::PassRefused, Level::Warn));
    assert!(refused.to_string().contains("refused: an extent of the pack could not be read"), "{refused}");
}
