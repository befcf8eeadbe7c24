//! What a server makes of the frames of a client.

use std::collections::BTreeMap;

/// What has become of a connection so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The code with which it was ended.
    pub ended: Option<u32>,
    /// The codes with which streams were ended.
    pub resets: BTreeMap<u32, u32>,
    /// Streams that got a response without having been asked for one: theirs says so that a header section is too long.
    pub answered: Vec<u32>,
    /// The pings that were answered.
    pub pings: Vec<Vec<u8>>,
    /// The settings that were.
    pub settings: usize,
    pub requests: BTreeMap<u32, Request>,
}

/// A request that was accepted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method, the target, and the fields with Host.
    pub head: Vec<String>,
    /// The body, once it has ended.
    pub body: Option<Vec<u8>>,
    pub trailers: Vec<String>,
}

/// The fields of a header section as they are compared: sorted, and cookies joined (RFC 9113, 8.2.3).
pub fn comparable<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (name, value) in fields {
        let value = value.escape_ascii();
        let before = lines.iter_mut().find(|line| line.starts_with("cookie: "));
        match before {
            Some(cookies) if name == "cookie" => *cookies += &format!("; {value}"),
            _ => lines.push(format!("{name}: {value}")),
        }
    }
    lines.sort();
    lines
}

impl Verdict {
    /// Takes the frames that a server has sent.
    pub fn take(&mut self, sent: &[crate::support::Sent]) {
        use crate::support::{ACK, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS};
        for frame in sent {
            match frame.kind {
                GOAWAY => {
                    let code = frame.payload[4..8].try_into().expect("a number");
                    self.ended = Some(u32::from_be_bytes(code));
                }
                RST_STREAM => {
                    self.resets.entry(frame.stream).or_insert(frame.number());
                }
                HEADERS => self.answered.push(frame.stream),
                PING if frame.flags & ACK != 0 => self.pings.push(frame.payload.clone()),
                SETTINGS if frame.flags & ACK != 0 => self.settings += 1,
                _ => {}
            }
        }
    }
}
