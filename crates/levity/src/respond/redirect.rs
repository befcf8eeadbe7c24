//! A directory asked for without its slash: the client must ask again, or relative links break.

use levity_wire::path;

use crate::http::error::error;
use crate::http::request::Request;
use crate::http::response::Response;

/// Points to the same path with a slash, query kept; bytes from 0x80, which no URI has, are escaped.
///
/// A normalised path starts with exactly one slash: two would name another host.
pub fn to_directory(request: &Request) -> Response {
    let mut location = Vec::new();
    path::encode(&request.path, &mut location);
    location.push(b'/');
    if let Some(query) = request.query() {
        location.push(b'?');
        location.extend_from_slice(&path::forwarded_query(query));
    }
    let mut response = error(301, "");
    response.fields.add("Location", &location);
    response
}
