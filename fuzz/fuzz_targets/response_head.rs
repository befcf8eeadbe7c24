//! Status line and headers of a response, as an upstream sends them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::response_head(bytes));
