//! What a filter is: it changes the header of a response, and may change the body on its way.

use std::fmt;

use super::fields::Fields;
use super::request::Request;

/// One thing that a location changes in its responses.
pub trait Filter: Send + Sync {
    /// Changes the header of a response to `request`, once, before it is sent. Gives what is to change the body, if
    /// anything is; a response that is a part of a content, or none, must keep its body.
    fn apply(&self, request: &Request, head: FilteredHead<'_>) -> Option<Box<dyn BodyFilter>>;
}

/// The header of a response, for a filter.
pub struct FilteredHead<'r> {
    /// The status code.
    pub status: u16,
    /// The header lines.
    pub fields: &'r mut Fields,
    /// `fields` have a Server, or are to have none.
    pub has_server: &'r mut bool,
}

/// Changes a body on its way to the client. Computes, and does nothing else: it may run on any thread.
pub trait BodyFilter: fmt::Debug + Send {
    /// Takes `input`, and adds what is ready to `out`: all, a part or nothing of it.
    fn push(&mut self, input: &[u8], out: &mut Vec<u8>);

    /// Adds to `out` all that the client can make use of now. More input may follow.
    fn flush(&mut self, out: &mut Vec<u8>);

    /// Adds the rest to `out`. No more input follows.
    fn finish(&mut self, out: &mut Vec<u8>);
}
