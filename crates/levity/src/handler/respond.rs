//! The handler that gives every request of a location the same response.

use levity_config::Fixed;

use crate::http::error::error;
use crate::http::response::{Body, Response};

/// The response of `fixed`.
pub fn response(fixed: &Fixed) -> Response {
    let mut response = error(fixed.status, "");
    match fixed.status {
        204 | 304 => {
            response.fields.remove("content-type");
            response.body = Body::None;
        }
        // The status and its name tell what is wrong; below 400 there is nothing to tell.
        400.. if fixed.body.is_empty() => {}
        _ => {
            response.body = Body::Text(fixed.body.clone().into_bytes());
            response.is_error_text = false;
        }
    }
    for (name, value) in &fixed.headers {
        response.fields.set(name, value.as_bytes());
    }
    response
}
