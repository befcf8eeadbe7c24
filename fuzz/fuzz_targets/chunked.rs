//! A chunked body, as a client sends it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::chunked(bytes));
