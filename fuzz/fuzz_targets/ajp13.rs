//! Packets of a servlet container; or a request that is sent to one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::ajp13(bytes));
