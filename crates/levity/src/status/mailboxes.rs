//! The state of mailboxes at this moment.

use serde_json::{Map, Value, json};

use levity_telemetry::stats::MailboxFigures;

/// The figures of mailboxes.
pub fn mailboxes(figures: &MailboxFigures) -> Value {
    json!({
        "store": figures.store,
        "store_state": if figures.is_down { "down" } else { "up" },
        "boxes": figures.boxes,
        "boxes_read": figures.boxes_read,
        "receivers": figures.receivers,
        "bytes": figures.bytes,
        "bytes_max": figures.bytes_max,
        "messages": by_word(&figures.messages),
        "dropped": by_word(&figures.dropped),
        "refused": by_word(&figures.refused),
        "idle_boxes": figures.idle_boxes,
        "resume": {
            "streams": figures.resume.streams,
            "bytes": figures.resume.bytes,
            "bytes_max": figures.resume.bytes_max,
            "refused": by_word(&figures.resume.refused),
        },
    })
}

fn by_word(counts: &[(&'static str, u64)]) -> Map<String, Value> {
    let member = |&(word, count): &(&str, u64)| (word.to_owned(), Value::from(count));
    counts.iter().map(member).collect()
}
