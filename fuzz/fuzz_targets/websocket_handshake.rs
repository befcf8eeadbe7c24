//! A header of the opening handshake: its name in the first line, its value in the rest.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::websocket_handshake(bytes));
