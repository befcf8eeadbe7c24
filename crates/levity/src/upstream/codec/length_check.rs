//! What the head of an answer has promised of its body, for protocols that tell the end of an answer
//! apart from its length.

use levity_wire::http1::Method;

use super::head::Head;

/// How much of a body is still to come.
#[derive(Debug, Clone, Copy)]
pub struct LengthCheck {
    /// Bytes; `None` when the end of the answer is that of the body.
    left: Option<u64>,
}

impl LengthCheck {
    /// Of the answer that begins with `head`, to a request of `method`. Where no body follows (RFC 9110,
    /// 6.4.1), whatever comes is handed over as one: the gateway reads it to the end, within bounds, and
    /// drops it. So it is with an answer in whose place a file is to be sent: frameworks announce the
    /// file's bytes there.
    pub fn of(head: &Head, method: Method) -> Self {
        let has_body = method != Method::Head && !matches!(head.status, 204 | 304);
        let has_body = has_body && !head.wants_other_content();
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
    pub fn is_kept(&self) -> bool {
        matches!(self.left, None | Some(0))
    }

    /// Whether the body ends here, however the answer goes on.
    pub fn is_fulfilled(&self) -> bool {
        self.left == Some(0)
    }
}
