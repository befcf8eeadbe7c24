//! The head of an answer, as a CGI application behind FastCGI or SCGI sends it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::cgi_response(bytes));
