//! Request line and headers, as a client sends them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::request_head(bytes));
