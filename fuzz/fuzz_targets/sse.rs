//! A stream of server-sent events, as an application sends it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::sse(bytes));
