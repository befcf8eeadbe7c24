//! Filters: changes of a location to its responses. A new filter is a file here, and one line where locations
//! are compiled.

pub mod header_rules;

use crate::http::filter::{Filter, FilteredHead};
use crate::http::request::Request;
use crate::http::response::Response;

/// Applies `filters` in order.
pub fn apply(filters: &[Box<dyn Filter>], request: &Request, response: &mut Response) {
    for filter in filters {
        response.merge_base();
        let head = FilteredHead {
            status: response.status,
            fields: &mut response.fields,
            has_server: &mut response.has_server,
        };
        response.filters.extend(filter.apply(request, head));
    }
}
