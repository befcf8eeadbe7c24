//! SCGI: the variables of a request in one netstring, then its body. The answer is that of CGI
//! ([`parse_response`](crate::cgi::parse_response)) and ends with the connection, which carries one
//! request only. There is no record around it: an answer that was cut short looks complete unless it
//! has a Content-Length.

use crate::cgi::Environment;

/// Appends what comes before the body: everything but its `body_bytes` bytes.
///
/// The protocol demands the length of the body, first and even when it is 0, so a body must have
/// arrived in full, or have told its length, before this can be written. Variables CONTENT_LENGTH
/// and SCGI of the environment give way to those of the protocol, for no name may occur twice.
pub fn write_head(environment: &Environment, body_bytes: u64, out: &mut Vec<u8>) {
    let length = body_bytes.to_string();
    let own: [(&[u8], &[u8]); 2] = [(b"CONTENT_LENGTH", length.as_bytes()), (b"SCGI", b"1")];
    let is_free = |pair: &(&[u8], &[u8])| own.iter().all(|(name, _)| *name != pair.0);
    let pairs = own.into_iter().chain(environment.pairs().filter(is_free));
    let bytes: usize = pairs
        .clone()
        .map(|(name, value)| name.len() + value.len() + 2)
        .sum();
    out.extend(format!("{bytes}:").bytes());
    for (name, value) in pairs {
        for text in [name, value] {
            out.extend_from_slice(text);
            out.push(0);
        }
    }
    out.push(b',');
}
