//! The frames of a client of HTTP/2, after its preface.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::http2(bytes));
