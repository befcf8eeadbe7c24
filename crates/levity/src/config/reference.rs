//! `docs/configuration.md`, written from the table of keys.

use super::keys::{Key, Kind};

/// The line that writes a key's default into a file; `None` when it has none.
pub(super) fn default_line(key: &Key) -> Option<String> {
    key.default
        .map(|default| format!("{} = {}", key.name, toml(key, default)))
}

fn toml(key: &Key, text: &str) -> String {
    match key.kind {
        Kind::Boolean | Kind::Names | Kind::Pairs => text.to_owned(),
        Kind::Count(_) if text != "auto" => text.to_owned(),
        _ => format!("\"{text}\""),
    }
}
