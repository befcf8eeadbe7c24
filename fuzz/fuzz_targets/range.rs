//! A size in the first line, a Range value in the rest.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::range(bytes));
