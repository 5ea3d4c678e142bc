//! What the matrix path refuses, and how the program names it.

use crate::prompts::options;
use estream_tests::{fixture, program};

#[test]
fn a_scratchpad_that_is_too_small_is_refused_with_the_bytes_needed() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    let open = |bytes: u32| {
        estream::Engine::open(&pack, options().scratch(bytes).max_tokens(64))
            .map(|engine| engine.plan().scratch_bytes)
    };
    let refused = open(16 << 10).expect_err("16 KiB hold no tile of anything");
    assert_eq!(refused.code, "scratch-too-small");
    assert_eq!(open(2 << 20).expect("2 MiB are enough"), 2 << 20);
}

#[test]
fn the_program_names_the_kernels_and_their_activations() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let mut command = program::estream();
    command.arg("run").arg(&pack).args(["--tokens", "1,2,3", "--kernels", "hmx-model"]);
    let report = program::report(&mut command);
    assert_eq!(
        (report["kernels"].as_str(), report["activations"].as_str()),
        (Some("hmx-model"), Some("fp16"))
    );
}
