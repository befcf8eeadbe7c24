//! The header fields that decide where a message ends and whether another one follows (RFC 9112,
//! 3.2, 6 and 9.3).

use super::line::{is_token, list, trim_end};
use super::{Framing, HeaderSpan, Reject, RequestHead, Span, Target, Version, host};

/// What the header lines read so far say. Any contradiction is refused at the line that makes it.
#[derive(Default)]
pub(super) struct Fields {
    host: Option<Span>,
    length: Option<u64>,
    coded: bool,
    /// The last transfer coding so far is `chunked`.
    chunked: bool,
    coding_unknown: bool,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
}

impl Fields {
    pub(super) fn read(&mut self, bytes: &[u8], header: HeaderSpan) -> Result<(), Reject> {
        let name = header.name.of(bytes);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is(b"host") => self.host(bytes, header.value),
            6 if is(b"expect") => self.expect(header.value.of(bytes)),
            10 if is(b"connection") => self.connection(header.value.of(bytes)),
            14 if is(b"content-length") => self.content_length(header.value.of(bytes)),
            17 if is(b"transfer-encoding") => self.transfer_encoding(header.value.of(bytes)),
            _ => Ok(()),
        }
    }

    /// Needs the request line and every header line.
    pub(super) fn finish(self, head: &mut RequestHead) -> Result<(), Reject> {
        if self.host.is_none() && head.version == Version::Http11 {
            return Err(Reject::bad("missing Host"));
        }
        // The authority of the target wins over Host (RFC 9112, 3.2.2).
        if matches!(head.target, Target::Origin | Target::Asterisk) {
            head.host = self.host;
        }
        head.framing = self.framing(head.version)?;
        head.keep_alive = !self.close && (self.keep_alive || head.version == Version::Http11);
        // RFC 9110, 10.1.1: ignored in HTTP/1.0.
        head.expect_continue = self.expect_continue && head.version == Version::Http11;
        Ok(())
    }

    /// RFC 9112, 6.1 and 6.3. Where both apply, the MUST of 6.3 (last coding is not chunked: 400)
    /// comes before the SHOULD of 6.1 (unknown coding: 501).
    fn framing(&self, version: Version) -> Result<Framing, Reject> {
        if !self.coded {
            return Ok(self.length.map_or(Framing::None, Framing::Length));
        }
        if version == Version::Http10 {
            return Err(Reject::bad("Transfer-Encoding in HTTP/1.0"));
        }
        if self.length.is_some() {
            return Err(Reject::bad(
                "Transfer-Encoding together with Content-Length",
            ));
        }
        if !self.chunked {
            return Err(Reject::bad("chunked is not the last transfer coding"));
        }
        if self.coding_unknown {
            return Err(Reject::new(501, "unknown transfer coding"));
        }
        Ok(Framing::Chunked)
    }

    fn host(&mut self, bytes: &[u8], value: Span) -> Result<(), Reject> {
        if self.host.is_some() {
            return Err(Reject::bad("repeated Host"));
        }
        host::split(value.of(bytes))?;
        self.host = Some(value);
        Ok(())
    }

    /// RFC 9110, 8.6 allows a list of identical values to be read as one. It is refused: a peer
    /// that forwards such a message may have taken either value, or the first line only, and no
    /// client sends one in earnest.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        let length = decimal(value).ok_or(Reject::bad("bad Content-Length"))?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(before) if before == length => Err(Reject::bad("repeated Content-Length")),
            Some(_) => Err(Reject::bad("conflicting Content-Length")),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Reject> {
        self.coded = true;
        list(value).try_for_each(|coding| self.coding(coding))
    }

    fn coding(&mut self, coding: &[u8]) -> Result<(), Reject> {
        if self.chunked {
            return Err(Reject::bad("transfer coding after chunked"));
        }
        let name = coding
            .split(|&byte| byte == b';')
            .next()
            .map_or(coding, trim_end);
        if !is_token(name) {
            return Err(Reject::bad("bad Transfer-Encoding"));
        }
        if !name.eq_ignore_ascii_case(b"chunked") {
            self.coding_unknown = true;
        } else if coding.len() == name.len() {
            self.chunked = true;
        } else {
            return Err(Reject::bad("chunked with a parameter"));
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), Reject> {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        Ok(())
    }

    /// Expectations other than 100-continue are ignored, as RFC 9110, 10.1.1 allows.
    fn expect(&mut self, value: &[u8]) -> Result<(), Reject> {
        self.expect_continue |=
            list(value).any(|expectation| expectation.eq_ignore_ascii_case(b"100-continue"));
        Ok(())
    }
}

/// One or more digits and nothing else; `None` also when the number does not fit.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
