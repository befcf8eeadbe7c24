//! The head of a backend's answer, whatever protocol it came by.

use levity_wire::http1::{self, Limits};
use levity_wire::sendfile_header::{self, Delegation};

use crate::http::fields::Fields;

/// Bounds on the head of an answer in the words of HTTP or CGI. Applications set long cookies and
/// policies, so it may be four times as long as that of a request.
pub const LIMITS: Limits = Limits {
    line_bytes_max: 8 * 1024,
    header_bytes_max: 16 * 1024,
    head_bytes_max: 64 * 1024,
    headers_max: 200,
};

/// Whether a head may be complete now that `input` has come, `bytes` with what came before. It ends with a
/// line, and may come byte by byte: to read it anew for each of them would keep the loop busy. One that is
/// too long is found out meanwhile.
pub fn may_end(input: &[u8], bytes: usize) -> bool {
    input.contains(&b'\n') || bytes >= LIMITS.head_bytes_max
}

/// Contents that one answer may bring for later; more are passed over.
const PRELOAD_MAX: usize = 16;

/// What an answer begins with. Fields that belong to the connection with the backend are not in it.
#[derive(Debug, Default)]
pub struct Head {
    /// 100 to 599.
    pub status: u16,
    /// As sent, often empty.
    pub reason: Vec<u8>,
    /// What the client is to get.
    pub fields: Fields,
    /// Content-Length.
    pub length: Option<u64>,
    /// Whether `fields` have a Date.
    pub has_date: bool,
    /// Whether `fields` have a Server.
    pub has_server: bool,
    /// What the application wants to have sent in place of its answer.
    pub delegations: Vec<Wished>,
    /// Where a receipt for what is sent is to go.
    pub receipt: Option<Vec<u8>>,
    /// What the application preloads.
    pub preload: Vec<Vec<u8>>,
    /// The protocol that is switched to (101).
    pub upgrade: Option<Vec<u8>>,
}

/// A field by which an application has something sent in place of its answer.
#[derive(Debug)]
pub struct Wished {
    /// What it asks for.
    pub delegation: Delegation,
    /// Its name as sent.
    pub name: Vec<u8>,
    /// Its value as sent.
    pub value: Vec<u8>,
}

impl Head {
    /// With nothing but a status.
    pub fn new(status: u16, reason: &[u8]) -> Self {
        let is_usual = reason == http1::reason(status).as_bytes();
        Self {
            status,
            // The usual one is written for an empty one, and needs no memory.
            reason: if is_usual {
                Vec::new()
            } else {
                reason.to_vec()
            },
            ..Self::default()
        }
    }

    /// Whether something is to be sent in place of the content. A status that has none goes on as it is
    /// (RFC 9110, 6.4.1).
    pub fn wants_other_content(&self) -> bool {
        !self.delegations.is_empty() && !matches!(self.status, 101 | 204 | 205 | 304)
    }

    /// Adds an end-to-end field. Those by which an application speaks to its proxy stay here.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => self.has_date = true,
            6 if name.eq_ignore_ascii_case(b"server") => self.has_server = true,
            14 if name.eq_ignore_ascii_case(b"content-length") => return,
            _ => {}
        }
        if let Some(delegation) = Delegation::of(name) {
            self.delegations.push(Wished {
                delegation,
                name: name.to_vec(),
                value: value.to_vec(),
            });
        }
        if !sendfile_header::is_reserved(name) {
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
