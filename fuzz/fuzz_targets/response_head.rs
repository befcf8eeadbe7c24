//! A response head, as an upstream sends it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::response_head(bytes));
