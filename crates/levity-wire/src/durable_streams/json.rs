//! Messages of streams of JSON (section 9.1).

use serde_json::value::RawValue;

/// A body that is not JSON: a phrase for who sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotJson(pub String);

/// The messages of `body` as they are kept: each as it was written, without the white space around it, and with a comma after it.
/// An array is one message for each element; any other value is one message. Nothing for an empty array.
///
/// # Errors
/// If the body is not JSON.
pub fn messages(body: &[u8]) -> Result<Vec<u8>, NotJson> {
    let refuse = |error| NotJson(format!("the body is not JSON: {error}"));
    let value: &RawValue = serde_json::from_slice(body).map_err(refuse)?;
    let value = value.get().trim_ascii().as_bytes();
    let mut kept = Vec::with_capacity(value.len() + 1);
    let mut keep = |message: &[u8]| {
        kept.extend_from_slice(message.trim_ascii());
        kept.push(b',');
    };
    let elements = value.strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
    match elements.and_then(|elements| elements.strip_suffix(b"]")) {
        None => keep(value),
        Some([]) => {}
        Some(mut elements) => {
            while let Some(comma) = comma(elements) {
                keep(&elements[..comma]);
                elements = &elements[comma + 1..];
            }
            keep(elements);
        }
    }
    Ok(kept)
}

/// The end of the first `count` of the messages in `kept`, which [`messages`] wrote; `None` if there are fewer.
#[must_use]
pub fn end_of_message(kept: &[u8], count: u64) -> Option<usize> {
    let mut end = 0;
    for _ in 0..count {
        end += comma(&kept[end..])? + 1;
    }
    Some(end)
}

/// The first comma that is in no array, object or text.
fn comma(json: &[u8]) -> Option<usize> {
    let (mut depth, mut is_in_text, mut is_escaped) = (0usize, false, false);
    json.iter().position(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_in_text = !is_in_text,
            _ if is_in_text => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => return depth == 0,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(body: &str) -> Option<String> {
        let kept = messages(body.as_bytes()).ok()?;
        Some(String::from_utf8(kept).expect("text"))
    }

    #[test]
    fn one_level_of_an_array_is_taken_off() {
        let cases = [
            (r#"{"event": "created"}"#, r#"{"event": "created"},"#),
            (r#" [ {"a":1} , {"b":2} ] "#, r#"{"a":1},{"b":2},"#),
            ("[[1,2], [3,4]]", "[1,2],[3,4],"),
            ("[[[1,2,3]]]", "[[1,2,3]],"),
            ("\"text\"", "\"text\","),
            ("42", "42,"),
            (" null\n", "null,"),
            ("[]", ""),
            (" [ ] ", ""),
            (r#"["\ud800"]"#, r#""\ud800","#),
            ("[1e999,-0]", "1e999,-0,"),
        ];
        for (body, expected) in cases {
            assert_eq!(kept(body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for body in [
            "",
            " ",
            "{ invalid json }",
            "[1,]",
            "[1",
            "1 2",
            "[1] 2",
            "{\"a\":\"\n\"}",
            "nul",
            "01",
        ] {
            assert_eq!(kept(body), None, "{body}");
        }
        assert!(messages(b"\"\xff\"").is_err());
        assert!(messages(b"[\"\xff\"]").is_err());
    }

    #[test]
    fn deep_nesting_uses_no_stack() {
        let depth = 1_000_000;
        let body = ["[".repeat(depth), "]".repeat(depth)].concat();
        let kept = messages(body.as_bytes()).expect("JSON");
        assert_eq!(kept.len(), body.len() - 1);
        assert_eq!(end_of_message(&kept, 1), Some(kept.len()));
    }

    #[test]
    fn messages_are_counted() {
        let kept = messages(br#"[{"a":[1,"]},"]}, "\"", 3, []]"#).expect("JSON");
        let ends: Vec<_> = (0..6).map(|count| end_of_message(&kept, count)).collect();
        let first = r#"{"a":[1,"]},"]},"#.len();
        let expected = [0, first, first + 5, first + 7, first + 10].map(Some);
        assert_eq!(ends[..5], expected);
        assert_eq!(ends[5], None);
    }
}
