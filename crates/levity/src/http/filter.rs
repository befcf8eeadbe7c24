//! The traits of filters: a filter changes the header of a response, and may transform the body as it is sent.

use std::fmt;

use super::fields::Fields;
use super::request::Request;

/// One change that a location makes to its responses.
pub trait Filter: Send + Sync {
    /// Changes the header of a response to `request`, once, before it is sent.
    fn header(&self, request: &Request, head: FilteredHead<'_>);

    /// Returns the filter for the body if the body is to change, and adapts the header to it. Not called for a response
    /// without content, nor for a part of a representation (RFC 9110, 14.4).
    fn body(&self, _: &Request, _: FilteredHead<'_>) -> Option<Box<dyn BodyFilter>> {
        None
    }
}

/// The header of a response, for a filter.
pub struct FilteredHead<'r> {
    /// The status code.
    pub status: u16,
    /// The header lines.
    pub fields: &'r mut Fields,
    /// No `Server` is to be added: `fields` have one, or the location removed it.
    pub has_server: &'r mut bool,
}

/// Transforms a body as it is sent. It does no I/O and does not block, and may run on any thread.
pub trait BodyFilter: fmt::Debug + Send {
    /// Consumes `input`, and appends the output that is ready to `out`; it may hold back all of it.
    fn push(&mut self, input: &[u8], out: &mut Vec<u8>);

    /// Appends to `out` everything held back that the client can decode now. More input may follow.
    fn flush(&mut self, out: &mut Vec<u8>);

    /// Appends the rest to `out`. No more input follows.
    fn finish(&mut self, out: &mut Vec<u8>);
}
