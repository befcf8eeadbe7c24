//! The headers that frame a message and control its connection, in requests and responses (RFC
//! 9112, 6 and 9; RFC 9110, 7.8).

use super::line::{is_token, list, trim_end};
use super::{Framing, HeaderSpan, Reject, Span, Version};
use crate::decimal;

/// Elements of Connection in a message. A proxy must look up each among all header names; a browser
/// sends one.
const CONNECTION_OPTIONS_MAX: usize = 64;

/// The meaning of the header lines so far. A contradiction is rejected at the line that causes it.
#[derive(Default)]
pub(super) struct Fields {
    length: Option<u64>,
    coded: bool,
    /// The last transfer coding so far is `chunked`.
    chunked: bool,
    coding_unknown: bool,
    /// Number of elements of Connection so far, and the three that have a meaning here.
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

    /// Whether the sender keeps the connection open after this message (RFC 9112, 9.3).
    pub(super) fn allows_another(&self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::Http11)
    }

    /// The protocols to switch to. Without the connection option the header was meant for another
    /// hop, and in HTTP/1.0 it must be ignored (RFC 9110, 7.8).
    pub(super) fn protocols(&self, version: Version) -> Option<Span> {
        self.upgrade
            .filter(|_| self.upgrade_listed && version == Version::Http11)
    }

    /// RFC 9112, 6.1 and 6.3. If both apply, the MUST of 6.3 (last coding is not chunked: 400)
    /// precedes the SHOULD of 6.1 (unknown coding: 501).
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

    /// RFC 9110, 8.6 allows a list of identical values to be read as one. It is rejected, because a
    /// peer that forwards such a message may use either value, or the first line only. Legitimate
    /// peers do not send it.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        let length = decimal::parse(value).ok_or(Reject::bad("bad Content-Length"))?;
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

    /// The first of several lines counts. A proxy generates the header anew with the protocol that
    /// it has understood, so the others mislead nobody.
    fn upgrade(&mut self, value: Span) -> Result<(), Reject> {
        self.upgrade.get_or_insert(value);
        Ok(())
    }
}
