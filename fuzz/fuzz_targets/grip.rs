//! A header of GRIP with its name in the first line, or the JSON of an instruction or of items.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::grip(bytes));
