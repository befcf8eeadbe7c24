//! The traits of filters: a filter changes the header of a response, and may transform the body as it is sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::fields::Fields;
use crate::message::request::Request;
use crate::shares::Held;
use crate::shares::claim::Claims;

/// One change that a location makes to its responses.
pub trait Filter: Send + Sync {
    /// The key of the configuration that asks for it.
    fn key(&self) -> &'static str;

    /// Changes the header of a response to `request`, once, before it is sent.
    fn header(&self, request: &Request, head: FilteredHead<'_>);

    /// Returns the filter for the body if the body is to change, and adapts the header to it. Not called for a response
    /// without content, nor for a part of a representation (RFC 9110, 14.4). By `claims` it takes what it shares with other
    /// clients; it cannot wait for it here.
    fn body(
        &self,
        _: &Request,
        _: FilteredHead<'_>,
        _claims: &Claims,
    ) -> Option<Box<dyn BodyFilter>> {
        None
    }

    /// Whether it may transform the body of a file for `request` whose media type is `media_type`. If so, the file is not read
    /// in a form that only a socket takes.
    fn transforms(&self, _request: &Request, _media_type: &str) -> bool {
        false
    }

    /// Whether it would change nothing in a response of 200 whose header begins with `base`, that of a file. Such a header
    /// need not be copied, and may be encoded already.
    fn passes(&self, _base: &Fields) -> bool {
        false
    }
}

/// The filters of a location, in order.
pub struct Filters {
    list: Vec<Box<dyn Filter>>,
    number: u64,
}

impl Filters {
    /// These filters.
    pub fn new(list: Vec<Box<dyn Filter>>) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { list, number }
    }

    /// The filters.
    pub fn list(&self) -> &[Box<dyn Filter>] {
        &self.list
    }

    /// Whether one of them may transform the body of a file for `request` whose media type is `media_type`.
    pub fn transform(&self, request: &Request, media_type: &str) -> bool {
        let mut filters = self.list.iter();
        filters.any(|filter| filter.transforms(request, media_type))
    }

    /// A number that no other ones of the process have, by which files remember that these change nothing in their header.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A filter that other parts of its location use too.
impl<F: Filter> Filter for Arc<F> {
    fn key(&self) -> &'static str {
        (**self).key()
    }

    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        (**self).header(request, head);
    }

    fn body(
        &self,
        request: &Request,
        head: FilteredHead<'_>,
        claims: &Claims,
    ) -> Option<Box<dyn BodyFilter>> {
        (**self).body(request, head, claims)
    }

    fn transforms(&self, request: &Request, media_type: &str) -> bool {
        (**self).transforms(request, media_type)
    }

    fn passes(&self, base: &Fields) -> bool {
        (**self).passes(base)
    }
}

/// The header of a response, for a filter.
pub struct FilteredHead<'r> {
    /// The status code.
    pub status: u16,
    /// The length of the content in bytes; `None` if it is unknown, or there is none.
    pub length: Option<u64>,
    /// The header lines.
    pub fields: &'r mut Fields,
    /// No `Server` is to be added: `fields` have one, or the location removed it.
    pub has_server: &'r mut bool,
    /// The path for which rules about paths are looked up: that of the request, or of the page that stands in for it.
    pub path: &'r [u8],
    /// An application has made the response, or has handed over what is sent.
    pub is_of_application: bool,
}

/// Transforms a body as it is sent. It does no I/O and does not block, and may run on any thread. After an error it is
/// not called again.
pub trait BodyFilter: fmt::Debug + Send {
    /// Consumes `input`, and appends the output that is ready to `out`; it may hold back all of it.
    ///
    /// # Errors
    /// When the content is not what its header announces.
    fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError>;

    /// Appends to `out` everything held back that the client can decode now. More input may follow.
    ///
    /// # Errors
    /// As for `push`.
    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), FilterError>;

    /// Consumes `input`, the last of the content, and appends the rest of the output to `out`.
    ///
    /// # Errors
    /// As for `push`; also when the content is incomplete.
    fn finish(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError>;

    /// The processor time per byte of input in nanoseconds, estimated.
    fn ns_per_byte(&self) -> u32;

    /// What the next job may need of what clients share: the part to which it is added before the job, after a wait if need be,
    /// and how much. The job gives back what it does not need.
    fn needs(&mut self) -> Option<(&mut Held, usize)> {
        None
    }

    /// The maximum number of bytes that one job may filter, at most [`JOB_BYTES`]: less where a byte may become many.
    fn job_bytes(&self) -> usize {
        JOB_BYTES
    }
}

/// The maximum number of bytes that one job filters.
pub const JOB_BYTES: usize = 64 * 1024;

/// Why a filter cannot transform a body, as a sentence for the operator. It is the fault of the content.
#[derive(Debug)]
pub struct FilterError(pub String);
