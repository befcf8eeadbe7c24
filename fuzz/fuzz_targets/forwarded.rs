//! Lines of Forwarded or X-Forwarded-For.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::forwarded(bytes));
