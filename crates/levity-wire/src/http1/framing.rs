//! The header fields that decide where a message ends and what becomes of its connection, in
//! requests and responses alike (RFC 9112, 6 and 9; RFC 9110, 7.8).

use super::line::{is_token, list, trim_end};
use super::{Framing, HeaderSpan, Reject, Span, Version};

/// Elements of Connection in a head. Each may name a field that a proxy must look for among all
/// others; a browser sends one.
const CONNECTION_OPTIONS_MAX: usize = 64;

/// What the header lines read so far say. Any contradiction is refused at the line that makes it.
#[derive(Default)]
pub(super) struct Fields {
    length: Option<u64>,
    coded: bool,
    /// The last transfer coding so far is `chunked`.
    chunked: bool,
    coding_unknown: bool,
    /// Elements of Connection so far, and three of them that mean something to us.
    options: usize,
    close: bool,
    keep_alive: bool,
    upgrade_listed: bool,
    upgrade: Option<Span>,
}

impl Fields {
    /// Inlined by force, as [`header_line`](super::header_line) is.
    #[inline(always)]
    pub(super) fn read(&mut self, bytes: &[u8], header: HeaderSpan) -> Result<(), Reject> {
        let name = header.name.of(bytes);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            7 if is(b"upgrade") => self.upgrade(header.value),
            10 if is(b"connection") => self.connection(header.value.of(bytes)),
            14 if is(b"content-length") => self.content_length(header.value.of(bytes)),
            17 if is(b"transfer-encoding") => self.transfer_encoding(header.value.of(bytes)),
            _ => Ok(()),
        }
    }

    /// Whether the sender leaves the connection open after this message (RFC 9112, 9.3).
    pub(super) fn allows_another(&self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::Http11)
    }

    /// The protocols to switch to. Without its connection option the field was meant for another
    /// hop, and in HTTP/1.0 it is to be ignored (RFC 9110, 7.8).
    pub(super) fn protocols(&self, version: Version) -> Option<Span> {
        self.upgrade
            .filter(|_| self.upgrade_listed && version == Version::Http11)
    }

    /// RFC 9112, 6.1 and 6.3. Where both apply, the MUST of 6.3 (last coding is not chunked: 400)
    /// comes before the SHOULD of 6.1 (unknown coding: 501).
    pub(super) fn framing(&self, version: Version) -> Result<Framing, Reject> {
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

    /// RFC 9110, 8.6 allows a list of identical values to be read as one. It is refused: a peer
    /// that forwards such a message may have taken either value, or the first line only, and nobody
    /// sends one in earnest.
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
            self.options += 1;
            if self.options > CONNECTION_OPTIONS_MAX {
                return Err(Reject::new(431, "too many connection options"));
            }
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade_listed |= option.eq_ignore_ascii_case(b"upgrade");
        }
        Ok(())
    }

    /// Of several lines the first. A proxy writes the field anew with the protocol that it has
    /// understood, so the others mislead nobody.
    fn upgrade(&mut self, value: Span) -> Result<(), Reject> {
        self.upgrade.get_or_insert(value);
        Ok(())
    }
}

/// One or more digits and nothing else; `None` also when the number does not fit.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
