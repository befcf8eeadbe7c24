//! Checks a response body against its Content-Length, for protocols that mark the end of a response
//! themselves.

use levity_wire::http1::Method;

use super::head::Head;

/// The remaining length of a body.
#[derive(Debug, Clone, Copy)]
pub struct LengthCheck {
    /// In bytes; `None` when the end of the response ends the body.
    left: Option<u64>,
}

impl LengthCheck {
    /// For the response `head` to a request of `method`. Without a limit where no body should follow (RFC
    /// 9110, 6.4.1): the gateway reads such a body within bounds and drops it. The same holds for a response
    /// whose body is delegated, because frameworks set Content-Length to the size of the file.
    pub fn of(head: &Head, method: Method) -> Self {
        let has_body = method != Method::Head && !matches!(head.status, 204 | 304);
        let has_body = has_body && !head.delegates();
        Self {
            left: head.length.filter(|_| has_body),
        }
    }

    /// The part of `data` that belongs to the body.
    pub fn take<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let Some(left) = &mut self.left else {
            return data;
        };
        let len = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= len as u64;
        &data[..len]
    }

    /// Whether the body may end here.
    pub fn may_end(&self) -> bool {
        matches!(self.left, None | Some(0))
    }

    /// Whether the body is complete, even if more data follows.
    pub fn is_fulfilled(&self) -> bool {
        self.left == Some(0)
    }
}
