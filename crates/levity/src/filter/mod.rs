//! Filter: what a location changes in its responses. A filter changes the header, and may add a
//! [`BodyFilter`](crate::http::response::BodyFilter) that changes the body on its way.

pub mod header_rules;

use crate::http::request::Request;
use crate::http::response::Response;

/// One thing that a location changes in its responses. A further filter is a file here, and one line where locations
/// are compiled.
pub trait Filter: Send + Sync {
    /// Changes `response` before it is sent; called once for each.
    fn apply(&self, request: &Request, response: &mut Response);
}

/// Applies `filters` in their order.
pub fn apply(filters: &[Box<dyn Filter>], request: &Request, response: &mut Response) {
    for filter in filters {
        filter.apply(request, response);
    }
}
