//! Lists in headers of responses.

use crate::message::fields::{Fields, lines};

/// The elements of all lines called `name`, which is in lower case.
pub fn elements<'f>(fields: &'f Fields, name: &'static str) -> impl Iterator<Item = &'f [u8]> {
    let named = lines(fields.as_bytes())
        .filter(move |line| line.name.eq_ignore_ascii_case(name.as_bytes()));
    let elements = named.flat_map(|line| line.value.split(|&byte| byte == b','));
    elements
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Whether the content must reach the client as it is (RFC 9111, 5.2.2.6).
pub fn forbids_transform(fields: &Fields) -> bool {
    elements(fields, "cache-control").any(|element| element.eq_ignore_ascii_case(b"no-transform"))
}
