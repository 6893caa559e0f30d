#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| distlock::test_util::fuzz::reply(bytes));
