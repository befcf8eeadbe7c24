//! The tables of header fields that both sides know (RFC 7541, 2.3).

use std::collections::VecDeque;

use crate::http2::Failure;

/// The size of an entry besides its text, in bytes (RFC 7541, 4.1).
const ENTRY_BYTES: usize = 32;

/// The fields of appendix A, from index 1 on.
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// A name and a value.
pub(super) type Field<'t> = (&'t [u8], &'t [u8]);

/// The fields that the other side has added, the newest first.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name_bytes: usize,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.text.len() + ENTRY_BYTES
    }

    fn field(&self) -> Field<'_> {
        self.text.split_at(self.name_bytes)
    }
}

impl Table {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// The field at `index`, from 1 on, of both tables.
    pub(super) fn field(&self, index: usize) -> Option<Field<'_>> {
        let index = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(index - STATIC.len())?;
        Some(entry.field())
    }

    /// Writes the name of the field at `index` to `name`.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn copy_name(&self, index: usize, name: &mut Vec<u8>) -> Result<(), Failure> {
        let field = self.field(index);
        let (known, _) = field.ok_or(Failure::compression("no such name"))?;
        name.clear();
        name.extend_from_slice(known);
        Ok(())
    }

    /// Adds a field. One that is larger than the table empties it (RFC 7541, 4.4).
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        let entry = Entry {
            text: [name, value].concat().into(),
            name_bytes: name.len(),
        };
        let bytes = entry.bytes();
        self.evict(self.bytes_max.saturating_sub(bytes));
        if bytes <= self.bytes_max {
            self.bytes += bytes;
            self.entries.push_front(entry);
        }
    }

    pub(super) fn resize(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.evict(bytes_max);
    }

    /// Removes the oldest fields until the others take at most `bytes`.
    fn evict(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let oldest = self.entries.pop_back().expect("it takes bytes");
            self.bytes -= oldest.bytes();
        }
    }
}
