//! The header fields of a response, as the lines that leave.

use std::borrow::Cow;

use memchr::memchr3;

/// Header lines in order, each with its CRLF. Names and values are checked where they enter, so that none of
/// them ends its line.
#[derive(Debug, Default, Clone)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// Makes room for so many bytes of lines at once.
    pub fn reserve(&mut self, bytes: usize) {
        self.0.reserve(bytes);
    }

    /// Adds a line. Octets of `value` that would end the line or the text become spaces (RFC 9110, 5.5). A name
    /// that could end its line or itself adds nothing.
    pub fn add(&mut self, name: impl AsRef<[u8]>, value: &[u8]) {
        let name = name.as_ref();
        if !is_name(name) {
            return debug_assert!(false, "a header name: {}", name.escape_ascii());
        }
        push_line(&mut self.0, name, value);
    }

    /// Adds the lines of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Adds the lines of `other` whose names, in whatever case, are none of these.
    pub fn extend_but(&mut self, other: &Self, but: &[&str]) {
        for line in other.0.split_inclusive(|&byte| byte == b'\n') {
            let name = line.split(|&byte| byte == b':').next().unwrap_or(line);
            if !is_one_of(name, but) {
                self.0.extend_from_slice(line);
            }
        }
    }

    /// Puts a line in place of every one of that name.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        self.add(name, value);
    }

    /// The names of all lines, in their order.
    pub fn names(&self) -> Vec<String> {
        let names = lines(&self.0).map(|(name, _)| String::from_utf8_lossy(name));
        names.map(Cow::into_owned).collect()
    }

    /// Takes out every line of that name, in whatever case.
    pub fn remove(&mut self, name: &str) {
        let mut kept = Vec::with_capacity(self.0.len());
        for line in self.0.split_inclusive(|&byte| byte == b'\n') {
            let line_name = line.split(|&byte| byte == b':').next().unwrap_or(line);
            if !line_name.eq_ignore_ascii_case(name.as_bytes()) {
                kept.extend_from_slice(line);
            }
        }
        self.0 = kept;
    }

    /// The value of the first line of that name, in whatever case.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let mut lines = lines(&self.0);
        let line = lines.find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
        line.map(|(_, value)| value)
    }

    /// Replaces values of lines of that name, in whatever case, where `edit` gives another.
    pub fn edit(&mut self, name: &str, mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        let mut edited: Option<Vec<u8>> = None;
        let mut before = 0;
        for line in self.0.split_inclusive(|&byte| byte == b'\n') {
            let colon = line.iter().position(|&byte| byte == b':');
            let (line_name, value) = line.split_at(colon.unwrap_or(line.len()));
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            let is_meant = line_name.eq_ignore_ascii_case(name.as_bytes());
            let other = if is_meant { edit(value) } else { None };
            match (&mut edited, other) {
                (lines, Some(other)) => {
                    let lines = lines.get_or_insert_with(|| self.0[..before].to_vec());
                    push_line(lines, line_name, &other);
                }
                (Some(lines), None) => lines.extend_from_slice(line),
                (None, None) => {}
            }
            before += line.len();
        }
        if let Some(edited) = edited {
            self.0 = edited;
        }
    }

    /// The lines.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Names and values of header lines, in their order.
pub fn lines(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = lines.split_inclusive(|&byte| byte == b'\n');
    lines.filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// Fields that describe content and are not for a 304, which has none (RFC 9110, 15.4.5). Last-Modified
/// is not among them: a route may have removed the ETag.
pub const OF_CONTENT: &[&str] = &["content-type", "content-encoding", "content-language"];

/// Whether `name`, in whatever case, is one of these.
pub fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    let mut names = names.iter();
    names.any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

fn push_line(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", &in_one_line(value), b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

fn is_name(name: &[u8]) -> bool {
    let is_allowed = |&byte: &u8| byte.is_ascii_graphic() && byte != b':';
    !name.is_empty() && name.iter().all(is_allowed)
}

fn in_one_line(value: &[u8]) -> Cow<'_, [u8]> {
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
    fn editing_changes_the_lines_of_the_name_that_it_is_told_to() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1");
        fields.add("x-b", b"2");
        fields.add("X-Bc", b"3");
        fields.add("X-B", b"4: 5");
        let as_they_were = fields.as_bytes().to_vec();
        fields.edit("x-b", |_| None);
        assert_eq!(fields.as_bytes(), as_they_were);
        fields.edit("X-B", |value| (value == b"4: 5").then(|| b"six".to_vec()));
        fields.edit("x-a", |_| Some(Vec::new()));
        assert_eq!(
            fields.as_bytes(),
            b"X-A: \r\nx-b: 2\r\nX-Bc: 3\r\nX-B: six\r\n"
        );
    }

    #[test]
    fn no_value_ends_its_line() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1\r\nX-B: 2\n\0");
        fields.add("X-C", b"");
        fields.edit("X-C", |_| Some(b"3\r4".to_vec()));
        assert_eq!(fields.as_bytes(), b"X-A: 1  X-B: 2  \r\nX-C: 3 4\r\n");
    }

    #[test]
    fn what_is_no_name_adds_nothing() {
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
    fn removing_takes_every_line_of_the_name_and_no_other() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1");
        fields.add("X-Ab", b"2");
        fields.add("x-a", b"3: x-a");
        fields.remove("X-a");
        assert_eq!(fields.as_bytes(), b"X-Ab: 2\r\n");
    }
}
