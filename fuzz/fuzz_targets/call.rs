//! Bytes of the firmware's `call`. The body is `estream_tests::fuzz::call`, which ordinary tests replay.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| estream_tests::fuzz::call(bytes));
