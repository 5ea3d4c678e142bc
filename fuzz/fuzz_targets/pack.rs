//! Headers and tables of packs. The body is `estream_tests::fuzz::pack`, which ordinary tests replay.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| estream_tests::fuzz::pack(bytes));
