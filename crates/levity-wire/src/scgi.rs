//! SCGI: the variables of a request in one netstring, followed by its body. The response is that of
//! CGI ([`parse_response`](crate::cgi::parse_response)) and ends with the connection, which carries
//! only one request. There is no framing around it: a truncated response looks complete unless it
//! has a Content-Length.

use crate::cgi::Environment;

/// Appends everything before the body, which has `body_bytes` bytes.
///
/// The protocol requires the length of the body, first and even if it is 0. So the body must have
/// arrived in full, or its length must be known, before this can be written. The protocol's own
/// CONTENT_LENGTH and SCGI replace variables of these names in the environment, because no name may
/// be repeated.
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
