//! Lists of elements with parameters: `a; b=c; d="e", f` (RFC 9110, 5.6.6).

use std::borrow::Cow;

use crate::http1::trim;

/// The parts between separators that are in no quoted string, without white space around them. A string that does not end
/// is in the last part: [`parameter`] refuses it.
pub(crate) fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = text.split(move |&byte| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        match byte {
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        byte == separator && !is_quoted
    });
    parts.map(trim)
}

/// Name and value of a parameter.
type Parameter<'p> = (&'p [u8], Option<Cow<'p, [u8]>>);

/// Name and value of a parameter; the value of a quoted string is what it stands for. `None` for a string that does not
/// end, or that is only a part of the value.
pub(crate) fn parameter(part: &[u8]) -> Option<Parameter<'_>> {
    let Some(equals) = part.iter().position(|&byte| byte == b'=') else {
        let has_quote = part.contains(&b'"');
        return (!has_quote).then_some((part, None));
    };
    let (name, value) = (trim(&part[..equals]), trim(&part[equals + 1..]));
    let value = match value {
        [b'"', quoted @ ..] => unquoted(quoted)?,
        plain if plain.contains(&b'"') => return None,
        plain => Cow::Borrowed(plain),
    };
    Some((name, Some(value)))
}

/// What a string stands for, given from behind its opening quote up to its closing one.
fn unquoted(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let end = text.iter().position(|byte| b"\"\\".contains(byte))?;
    if end + 1 == text.len() && text[end] == b'"' {
        return Some(Cow::Borrowed(&text[..end]));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    loop {
        match bytes.next()? {
            b'"' => break,
            b'\\' => out.push(bytes.next()?),
            byte => out.push(byte),
        }
    }
    bytes.next().is_none().then_some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_in_strings_are_text() {
        let parts: Vec<_> = split(br#" a, b="c,\",d" ,, e"#, b',').collect();
        assert_eq!(parts, [&b"a"[..], br#"b="c,\",d""#, b"", b"e"]);
        let parts: Vec<_> = split(br#"a\,b, "c,d"#, b',').collect();
        assert_eq!(parts, [&b"a\\"[..], b"b", b"\"c,d"]);
    }

    #[test]
    fn values() {
        for (part, name, value) in [
            ("a", "a", None),
            ("", "", None),
            ("a=b", "a", Some("b")),
            ("a = b c ", "a", Some("b c")),
            ("a=", "a", Some("")),
            ("a=b=c", "a", Some("b=c")),
            (r#"a="b c""#, "a", Some("b c")),
            (r#"a="""#, "a", Some("")),
            (r#"a="b\"\\c\d""#, "a", Some(r#"b"\cd"#)),
        ] {
            let read = parameter(part.as_bytes()).expect(part);
            let read = (read.0, read.1.as_deref());
            assert_eq!(read, (name.as_bytes(), value.map(str::as_bytes)), "{part}");
        }
        for part in [
            r#"a="b"#,
            r#"a="b\"#,
            r#"a="b\""#,
            r#"a="b"c"#,
            r#"a=b"c""#,
            r#"a"b"#,
        ] {
            assert_eq!(parameter(part.as_bytes()), None, "{part}");
        }
    }
}
