//! Responses: from a resolved entry to status, headers and body. No system calls.

pub mod archive;
pub mod error_page;
pub mod file;
pub mod generated;
pub mod grpc;
pub mod listing;
pub mod redirect;

use crate::http::error::ALLOW;
use crate::http::response::Response;

/// The response to OPTIONS.
pub fn options() -> Response {
    let mut response = Response::new(204);
    response.fields.add("Allow", ALLOW);
    response
}
