//! Names, ids and headers of mailboxes.

use std::time::Duration;

use levity_wire::Reject;
use levity_wire::mailbox::{
    Cursor, KEY_BYTES_MAX, MessageId, NAME_BYTES_MAX, is_event, is_key, is_name,
};
use levity_wire::mailbox_header::{
    DELIVER, NAMES_MAX, OPEN, TTL_MAX, add_names, event, is_reserved, key, ttl,
};

use super::first_line;

/// What is accepted is well-formed and survives being written and parsed again, and no header of a mailbox is forwarded.
pub fn mailbox(bytes: &[u8]) {
    let (name, value) = first_line(bytes);
    name_is_reserved(name);
    names_are_sound(value);
    words_are_sound(value);
    ttl_is_sound(value);
    ids_have_one_spelling(value);
}

/// Whether a header is accepted; its name is the first line and its value the rest.
pub fn mailbox_outcome(bytes: &[u8]) -> Result<bool, Reject> {
    let (name, value) = first_line(bytes);
    let same = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if same(OPEN) || same(DELIVER) {
        let mut names = Vec::new();
        return add_names(&mut names, value).map(|()| !names.is_empty());
    }
    if same("Mailbox-Event") {
        return event(value).map(|_| true);
    }
    if same("Mailbox-Id") {
        return key(value).map(|_| true);
    }
    if same("Mailbox-TTL") {
        return ttl(value).map(|_| true);
    }
    let text = str::from_utf8(value).unwrap_or_default();
    let cursor = text.trim_end_matches('\n').parse::<Cursor>();
    Ok(same("last-event-id") && cursor.is_ok())
}

fn name_is_reserved(name: &[u8]) {
    let known = [
        OPEN,
        DELIVER,
        "Mailbox-Event",
        "Mailbox-Id",
        "Mailbox-TTL",
        "Grip-Hold",
    ];
    let is_known = known
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    assert!(!is_known || is_reserved(name));
    // As an environment variable of CGI and its kin.
    let variable: Vec<u8> = name
        .iter()
        .map(|byte| match byte {
            b'-' => b'_',
            byte => byte.to_ascii_uppercase(),
        })
        .collect();
    assert_eq!(is_reserved(name), is_reserved(&variable));
}

fn names_are_sound(value: &[u8]) {
    let mut names = Vec::new();
    let read = add_names(&mut names, value);
    assert!(names.len() <= NAMES_MAX);
    for (at, name) in names.iter().enumerate() {
        assert!(is_name(name.as_bytes()) && (1..=NAME_BYTES_MAX).contains(&name.len()));
        assert!(!names[..at].contains(name));
        // It cannot lead out of a folder that it is joined to.
        let mut segments = name.split('/');
        assert!(segments.all(|segment| !matches!(segment, "" | "." | "..")));
    }
    if read.is_ok() {
        let joined = names.join(", ");
        let mut again = Vec::new();
        assert_eq!(add_names(&mut again, joined.as_bytes()), Ok(()));
        assert_eq!(again, names);
        assert_eq!(add_names(&mut again, value), Ok(()));
        assert_eq!(again, names);
    }
}

fn words_are_sound(value: &[u8]) {
    if let Ok(event) = event(value) {
        assert!(is_event(event) && event.len() <= KEY_BYTES_MAX);
        assert!(!event.contains(['\r', '\n', '\0']));
    }
    if let Ok(key) = key(value) {
        assert!(is_key(key.as_bytes()) && !key.is_empty());
    }
}

fn ttl_is_sound(value: &[u8]) {
    let Ok(time) = ttl(value) else {
        return;
    };
    assert!(time >= Duration::from_secs(1) && time <= TTL_MAX);
    assert_eq!(ttl(time.as_secs().to_string().as_bytes()), Ok(time));
    assert_eq!(ttl(format!("{}s", time.as_secs()).as_bytes()), Ok(time));
}

fn ids_have_one_spelling(value: &[u8]) {
    let Ok(text) = str::from_utf8(value) else {
        return;
    };
    if let Ok(id) = text.parse::<MessageId>() {
        assert_eq!(id.to_string(), text);
        assert!(is_key(value));
        assert_eq!(text.parse(), Ok(Cursor::After(id)));
    }
    match text.parse::<Cursor>() {
        Ok(Cursor::Earliest) => assert_eq!(text, "earliest"),
        Ok(Cursor::New) => assert_eq!(text, "new"),
        Ok(Cursor::After(id)) => assert_eq!(text.parse(), Ok(id)),
        Err(_) => assert!(text.parse::<MessageId>().is_err()),
    }
}
