//! The header fields of a response, as lines of HTTP/1.

use std::borrow::Cow;
use std::mem;

use levity_wire::http1::is_one_of;
use memchr::memchr3;

/// Header lines in order, each with its CRLF. Names and values are checked on insertion, so that none of them can
/// inject a line.
#[derive(Debug, Default, Clone)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// Reserves room for `bytes` more bytes of lines.
    pub fn reserve(&mut self, bytes: usize) {
        self.0.reserve(bytes);
    }

    /// Appends a line. CR, LF and NUL in `value` become spaces (RFC 9110, 5.5). An invalid name adds nothing; debug
    /// builds panic.
    pub fn add(&mut self, name: impl AsRef<[u8]>, value: &[u8]) {
        let name = name.as_ref();
        if !is_name(name) {
            return debug_assert!(false, "a header name: {}", name.escape_ascii());
        }
        push_line(&mut self.0, name, value);
    }

    /// Appends the lines of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Appends the lines of `other`, except those whose names are in `except`. Case is ignored.
    pub fn extend_except(&mut self, other: &Self, except: &[&str]) {
        for line in lines(&other.0) {
            if !is_one_of(line.name, except) {
                self.0.extend_from_slice(line.bytes);
            }
        }
    }

    /// Replaces all lines called `name` with one.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        self.add(name, value);
    }

    /// The names of all lines, in order.
    pub fn names(&self) -> Vec<String> {
        let names = lines(&self.0).map(|line| String::from_utf8_lossy(line.name));
        names.map(Cow::into_owned).collect()
    }

    /// Removes all lines called `name`. Case is ignored.
    pub fn remove(&mut self, name: &str) {
        let before = mem::take(self);
        self.reserve(before.0.len());
        self.extend_except(&before, &[name]);
    }

    /// Removes all lines whose names are in `names`, and returns them. Case is ignored.
    pub fn take(&mut self, names: &[&str]) -> Self {
        let before = mem::take(self);
        let mut taken = Self::default();
        for line in lines(&before.0) {
            let lines = match is_one_of(line.name, names) {
                true => &mut taken,
                false => &mut *self,
            };
            lines.0.extend_from_slice(line.bytes);
        }
        taken
    }

    /// The value of the first line called `name`. Case is ignored.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let line = lines(&self.0).find(|line| line.is_called(name));
        line.map(|line| line.value)
    }

    /// Calls `edit` with the value of each line called `name`, and replaces the values for which it returns another.
    /// Case is ignored.
    pub fn edit(&mut self, name: &str, mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        let mut edited: Option<Vec<u8>> = None;
        let mut offset = 0;
        for line in lines(&self.0) {
            let matches = line.is_called(name);
            let new_value = if matches { edit(line.value) } else { None };
            match (&mut edited, new_value) {
                (lines, Some(new_value)) => {
                    let lines = lines.get_or_insert_with(|| self.0[..offset].to_vec());
                    push_line(lines, line.name, &new_value);
                }
                (Some(lines), None) => lines.extend_from_slice(line.bytes),
                (None, None) => {}
            }
            offset += line.bytes.len();
        }
        if let Some(edited) = edited {
            self.0 = edited;
        }
    }

    /// The lines, without their ends, that `other` lacks (`-`), and then those that only it has (`+`).
    pub fn changes<'a>(&'a self, other: &'a Self) -> Vec<(char, &'a [u8])> {
        let missing_in =
            |those: &Self, line: &Line<'_>| !lines(&those.0).any(|that| that.bytes == line.bytes);
        let gone = lines(&self.0).filter(|line| missing_in(other, line));
        let gone = gone.map(|line| ('-', line.bytes.trim_ascii_end()));
        let new = lines(&other.0).filter(|line| missing_in(self, line));
        gone.chain(new.map(|line| ('+', line.bytes.trim_ascii_end())))
            .collect()
    }

    /// All lines.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A header line.
pub struct Line<'a> {
    /// All of it, with its CRLF.
    bytes: &'a [u8],
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl Line<'_> {
    fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Splits header lines.
pub fn lines(lines: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let lines = lines.split_inclusive(|&byte| byte == b'\n');
    lines.filter_map(|bytes| {
        let colon = bytes.iter().position(|&byte| byte == b':')?;
        Some(Line {
            bytes,
            name: &bytes[..colon],
            value: bytes[colon + 1..].trim_ascii(),
        })
    })
}

/// Headers that describe the content, and are left out of a 304 (RFC 9110, 15.4.5). Last-Modified is not one of
/// them: it is the only validator if a route has removed the ETag.
pub const CONTENT_HEADERS: &[&str] = &["content-type", "content-encoding", "content-language"];

fn push_line(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", &sanitized(value), b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

fn is_name(name: &[u8]) -> bool {
    let is_allowed = |&byte: &u8| byte.is_ascii_graphic() && byte != b':';
    !name.is_empty() && name.iter().all(is_allowed)
}

fn sanitized(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr3(b'\r', b'\n', 0, value).is_none() {
        return Cow::Borrowed(value);
    }
    let replaced = |&byte: &u8| match byte {
        b'\r' | b'\n' | 0 => b' ',
        byte => byte,
    };
    value.iter().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_changes_only_lines_of_the_name() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1");
        fields.add("x-b", b"2");
        fields.add("X-Bc", b"3");
        fields.add("X-B", b"4: 5");
        let unedited = fields.as_bytes().to_vec();
        fields.edit("x-b", |_| None);
        assert_eq!(fields.as_bytes(), unedited);
        fields.edit("X-B", |value| (value == b"4: 5").then(|| b"six".to_vec()));
        fields.edit("x-a", |_| Some(Vec::new()));
        assert_eq!(
            fields.as_bytes(),
            b"X-A: \r\nx-b: 2\r\nX-Bc: 3\r\nX-B: six\r\n"
        );
    }

    #[test]
    fn no_value_injects_a_line() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1\r\nX-B: 2\n\0");
        fields.add("X-C", b"");
        fields.edit("X-C", |_| Some(b"3\r4".to_vec()));
        assert_eq!(fields.as_bytes(), b"X-A: 1  X-B: 2  \r\nX-C: 3 4\r\n");
    }

    #[test]
    fn an_invalid_name_adds_nothing() {
        for name in ["", "X A", "X:A", "X\r\nA", "\u{fc}", "X\0"] {
            let adding = std::panic::catch_unwind(|| {
                let mut fields = Fields::default();
                fields.add(name, b"1");
                fields
            });
            assert!(adding.is_err() || adding.is_ok_and(|fields| fields.as_bytes().is_empty()));
        }
    }

    #[test]
    fn take_splits_the_lines() {
        let mut fields = Fields::default();
        for (name, value) in [("X-A", "1"), ("X-B", "2"), ("x-a", "3"), ("X-C", "4")] {
            fields.add(name, value.as_bytes());
        }
        let taken = fields.take(&["x-a", "X-C", "X-D"]);
        assert_eq!(taken.as_bytes(), b"X-A: 1\r\nx-a: 3\r\nX-C: 4\r\n");
        assert_eq!(fields.as_bytes(), b"X-B: 2\r\n");
    }

    #[test]
    fn remove_takes_all_lines_of_the_name_and_no_other() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1");
        fields.add("X-Ab", b"2");
        fields.add("x-a", b"3: x-a");
        fields.remove("X-a");
        assert_eq!(fields.as_bytes(), b"X-Ab: 2\r\n");
    }
}
