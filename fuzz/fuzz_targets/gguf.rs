//! GGUF files. The body is `estream_tests::fuzz::gguf`, which ordinary tests replay.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| estream_tests::fuzz::gguf(bytes));
