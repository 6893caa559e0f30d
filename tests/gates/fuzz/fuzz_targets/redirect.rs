#![no_main]

use distlock_test_backends::hostile_nodes::attempt_at_hostile_nodes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attempt_at_hostile_nodes(bytes));
