//! A request of Durable Streams.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::durable_streams(bytes));
