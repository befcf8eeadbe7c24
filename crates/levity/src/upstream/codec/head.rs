//! The header section of a backend's response, the same for all protocols.

use levity_config::upstream::ResponseLimits;
use levity_wire::http1::{self, Limits};
use levity_wire::sendfile_header::{self, Delegation};
use levity_wire::{grip, mailbox_header, mime};

use crate::message::fields::Fields;

/// The maximum size of a status line, in bytes.
const STATUS_LINE_BYTES_MAX: usize = 8 * 1024;

/// Limits of a response header in HTTP or CGI syntax.
pub fn limits(of: ResponseLimits) -> Limits {
    Limits {
        line_bytes_max: STATUS_LINE_BYTES_MAX,
        header_bytes_max: of.line_bytes,
        head_bytes_max: of.head_bytes,
        headers_max: of.headers,
    }
}

/// Whether the header may be complete after `input`, with `bytes` in total. A header ends with a newline;
/// parsing again after every byte would take quadratic time. A header that is too long is parsed too, to be
/// rejected.
pub fn may_end(input: &[u8], bytes: usize, limits: &Limits) -> bool {
    input.contains(&b'\n') || bytes >= limits.head_bytes_max
}

/// The maximum number of preloaded files per response; more are ignored.
const PRELOAD_MAX: usize = 16;

/// The start of a response, without hop-by-hop headers.
#[derive(Debug, Default)]
pub struct Head {
    /// 100 to 999. From 600 it is an error that HTTP does not know.
    pub status: u16,
    /// As sent; empty for the usual one.
    pub reason: Vec<u8>,
    /// The headers for the client.
    pub fields: Fields,
    /// The value of Content-Length.
    pub length: Option<u64>,
    /// Whether `fields` have a Date.
    pub has_date: bool,
    /// Whether `fields` have a Server.
    pub has_server: bool,
    /// Delegations of the body to this server.
    pub delegations: Vec<DelegationHeader>,
    /// The path for a receipt.
    pub receipt: Option<Vec<u8>>,
    /// Headers about mailboxes.
    pub mailbox: Fields,
    /// Values of X-Sendfile-Preload.
    pub preload: Vec<Vec<u8>>,
    /// The new protocol of a 101.
    pub upgrade: Option<Vec<u8>>,
}

/// A header that delegates the body.
#[derive(Debug)]
pub struct DelegationHeader {
    /// The kind of delegation.
    pub delegation: Delegation,
    /// Its name as sent.
    pub name: Vec<u8>,
    /// Its value as sent.
    pub value: Vec<u8>,
}

impl Head {
    /// A response with only a status.
    pub fn new(status: u16, reason: &[u8]) -> Self {
        let is_usual = reason == http1::reason(status).as_bytes();
        Self {
            status,
            // The usual reason is stored as an empty one, which needs no allocation.
            reason: if is_usual {
                Vec::new()
            } else {
                reason.to_vec()
            },
            ..Self::default()
        }
    }

    /// Whether the body is delegated. A status without a body is forwarded unchanged (RFC 9110, 6.4.1).
    pub fn delegates(&self) -> bool {
        !self.delegations.is_empty() && !matches!(self.status, 101 | 204 | 205 | 304)
    }

    /// Whether the response says what to do with mailboxes: it is a success, and may have content.
    pub fn uses_mailboxes(&self) -> bool {
        let names = [mailbox_header::OPEN, mailbox_header::DELIVER, grip::HOLD];
        let has = |name| self.mailbox.value(name).is_some();
        let is_success = (200..300).contains(&self.status);
        is_success && (names.into_iter().any(has) || self.is_grip_instruct())
    }

    /// Whether the content says how the client is held.
    pub fn is_grip_instruct(&self) -> bool {
        let media_type = self.fields.value("content-type").unwrap_or_default();
        mime::essence(media_type).eq_ignore_ascii_case(grip::INSTRUCT_TYPE.as_bytes())
    }

    /// Adds the Upgrade of a 426, which has to say what the client is to change to (RFC 9110, 15.5.22), although the
    /// header is about the connection.
    pub fn upgrade_required(&mut self, protocols: Option<&[u8]>) {
        if let Some(protocols) = protocols.filter(|_| self.status == 426) {
            self.fields.add("Upgrade", protocols);
        }
    }

    /// Adds an end-to-end header. Headers that are meant for this server are consumed here.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => self.has_date = true,
            6 if name.eq_ignore_ascii_case(b"server") => self.has_server = true,
            14 if name.eq_ignore_ascii_case(b"content-length") => return,
            _ => {}
        }
        if let Some(delegation) = Delegation::of(name) {
            self.delegations.push(DelegationHeader {
                delegation,
                name: name.to_vec(),
                value: value.to_vec(),
            });
        }
        let is_about_buffering =
            || name.eq_ignore_ascii_case(sendfile_header::BUFFERING.as_bytes());
        if mailbox_header::is_reserved(name) {
            self.mailbox.add(name, value);
        } else if !sendfile_header::is_reserved(name) || is_about_buffering() {
            self.fields.add(name, value);
        } else if name.eq_ignore_ascii_case(b"x-sendfile-receipt") {
            self.receipt = Some(value.to_vec());
        } else if name.eq_ignore_ascii_case(b"x-sendfile-preload")
            && self.preload.len() < PRELOAD_MAX
        {
            self.preload.push(value.to_vec());
        }
    }
}
