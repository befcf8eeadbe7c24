//! The start of a connection from a proxy.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::proxy_protocol(bytes));
