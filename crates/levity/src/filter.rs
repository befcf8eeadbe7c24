//! Filter: what a place changes in its answers. Bodies pass through here too, once something rewrites
//! them.

use crate::respond::Response;
use crate::route::Place;

/// Applies the place's header rules: removals first, so that what is set stays.
///
/// Errors go out as they are: a `Cache-Control` meant for a place's files would have a client keep a 404
/// for a year.
pub fn filter(response: &mut Response, place: &Place) {
    if response.status >= 400 {
        return;
    }
    for name in &place.headers.remove {
        response.fields.remove(name);
    }
    for (name, value) in &place.headers.set {
        // A cache must be told all that an answer depends on, ours and theirs (RFC 9110, 12.5.5).
        if !name.eq_ignore_ascii_case("vary") {
            response.fields.remove(name);
        }
        response.fields.add(name, value.as_bytes());
    }
    for (name, value) in &place.headers.add {
        response.fields.add(name, value.as_bytes());
    }
}
