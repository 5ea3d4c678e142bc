//! Ring entries and indices. The body is `estream_tests::fuzz::ring`, which ordinary tests replay.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| estream_tests::fuzz::ring(bytes));
