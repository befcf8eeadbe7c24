//! What a client sends over a WebSocket after the handshake.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::websocket_frames(bytes));
