//! Messages with known content, and the settings of their boxes.

use std::sync::Arc;
use std::time::Duration;

use levity_mailbox::{Append, Draft, Message, MessageId, Mode, Name, Opened, Settings};

/// Long enough for the slowest machine; only a hang takes that long.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The set of most boxes.
pub const SET: &str = "set";

/// What holds for all that is kept of a box.
pub fn check(opened: &Opened) {
    let ids: Vec<_> = opened.messages.iter().map(|message| message.id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "in order: {ids:?}");
    assert!(ids.iter().all(|id| id.epoch == opened.epoch), "{ids:?}");
    let numbers = opened.lost..opened.next;
    let has = |id: &MessageId| numbers.contains(&id.sequence);
    assert!(ids.iter().all(has), "{ids:?} within {numbers:?}");
    assert!(opened.lost <= opened.next && opened.read <= opened.next);
}

pub fn name(name: &str) -> Name {
    Name::new(SET, name.as_bytes()).unwrap()
}

/// Bounds that no test meets by chance, unless `set` says others.
pub fn settings_with(set: impl FnOnce(&mut Settings)) -> Arc<Settings> {
    let mut settings = Settings {
        set: SET.to_owned(),
        mode: Mode::Topic,
        messages_max: 1000,
        bytes_max: 4 << 20,
        lifetime: None,
        idle: Duration::from_secs(300),
        boxes_max: 10_000_000,
        receivers_max: 1000,
        keeps_all: false,
        is_durable: false,
    };
    set(&mut settings);
    Arc::new(settings)
}

pub fn draft(text: &str) -> Draft {
    Draft {
        media_type: "text/plain".into(),
        content: text.as_bytes().into(),
        ..Draft::default()
    }
}

pub fn with_key(draft: Draft, key: &str) -> Draft {
    Draft {
        key: Some(key.into()),
        ..draft
    }
}

pub fn append_of(name: &Name, settings: &Arc<Settings>, draft: Draft) -> Append {
    Append {
        name: name.clone(),
        settings: settings.clone(),
        draft: Arc::new(draft),
        update: None,
    }
}

pub fn text(message: &Message) -> String {
    String::from_utf8(message.draft.content.to_vec()).unwrap()
}
