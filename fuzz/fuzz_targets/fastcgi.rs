//! The response of a FastCGI application; and a request with these lines as headers and these bytes
//! as body.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::fastcgi(bytes));
