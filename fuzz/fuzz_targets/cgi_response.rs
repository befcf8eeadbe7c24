//! The headers of a response, as a CGI application behind FastCGI or SCGI sends them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::cgi_response(bytes));
