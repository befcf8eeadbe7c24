//! Filter: what a place changes in every answer. Bodies pass through here too, once something
//! rewrites them.

use crate::respond::Response;
use crate::route::Place;

/// Applies the place's header rules: removals first, so that what is set stays.
pub fn filter(response: &mut Response, place: &Place) {
    for name in &place.headers.remove {
        response.fields.remove(name);
    }
    for (name, value) in &place.headers.set {
        response.fields.remove(name);
        response.fields.add(name, value.as_bytes());
    }
}
