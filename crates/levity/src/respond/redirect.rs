//! The redirect of a directory path without its trailing slash, which relative links need.

use levity_wire::path;

use crate::http::error::error;
use crate::http::response::Response;

/// Redirects to `path`, which is decoded, with a slash and this query; bytes from 0x80, which URIs do not allow, are
/// escaped.
///
/// The result starts with exactly one slash because the path is normalised: two would start a host name.
pub fn to_directory(path: &[u8], query: Option<&[u8]>) -> Response {
    let mut location = Vec::new();
    path::encode(path, &mut location);
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(&path::forwarded_query(query));
    }
    let mut response = error(301, "");
    response.fields.add("Location", &location);
    response
}
