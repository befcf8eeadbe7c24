//! The text of `docs/configuration.md`, from the table of keys.

use std::fmt::Write as _;

use crate::keys::TABLES;
use crate::schema::{Key, Kind, Table};

const INTRODUCTION: &str = "\
# Configuration

Written from the source by `LEVITY_WRITE_DOCS=1 cargo test -p levity-config --test reference`: change it there.

`levity run -c FILE` reads a [TOML](https://toml.io) file, `levity check -c FILE` reports all errors at once.
Complete files are in [`examples/`](examples). The smallest one:

```toml
[[site]]
root = \"/srv/www\"
```

- A key that is not listed here is an error, as is a value out of its range.
- Durations are `\"500ms\"`, `\"30s\"`, `\"2m\"`, `\"1h\"`, `\"1d\"`. Sizes are `\"16KiB\"`, `\"1MiB\"` (1024), `\"512KB\"`, `\"1GB\"`
  (1000), `\"1B\"`, or a number of bytes.
- Relative paths are relative to the folder of the file.
- SIGHUP reads the file again. A file with errors, or one that changes a key that needs a restart, changes nothing.
";

/// The text of `docs/configuration.md`.
#[must_use]
pub fn reference() -> String {
    let mut out = INTRODUCTION.to_owned();
    for table in TABLES.iter().filter(|table| !table.path.is_empty()) {
        section(table, &mut out);
    }
    out
}

fn section(table: &Table, out: &mut String) {
    let _ = write!(out, "\n## `{}`\n\n{}\n\n", table.heading(), table.doc);
    out.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in table.keys {
        let default = key
            .written_default()
            .map_or(String::new(), |text| format!("`{text}`"));
        let meanings = key.meanings.map(|meanings| format!(" {}.", meanings()));
        let meanings = meanings.unwrap_or_default();
        let _ = writeln!(
            out,
            "| `{}` | {} | {default} | {}{meanings} |",
            key.name,
            value(key),
            key.doc
        );
    }
}

/// The values that a key may have, as Markdown.
pub(crate) fn value(key: &Key) -> String {
    let auto = if key.is_auto() && key.kind.bounds().is_some() {
        "`\"auto\"`, "
    } else {
        ""
    };
    match key.kind {
        Kind::Duration(min, max) => format!("{auto}duration, {min} to {max}"),
        Kind::Size(min, max) => format!("{auto}size, {min} to {max}"),
        Kind::Count(min, max) => format!("{auto}number, {min} to {max}"),
        Kind::Boolean => "`true`, `false`".to_owned(),
        Kind::Word(words) => words
            .iter()
            .map(|word| format!("`\"{word}\"`"))
            .collect::<Vec<_>>()
            .join(", "),
        Kind::Text(form) => form.to_owned(),
        Kind::Names => "array of strings".to_owned(),
        Kind::TextOrPairs => "string, or table of strings".to_owned(),
        Kind::NamesAndNumbers => "array of strings and numbers".to_owned(),
        Kind::Pairs => "table of strings".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_names_every_key_once_per_table() {
        let reference = reference();
        for table in TABLES {
            for key in table.keys {
                let row = format!("\n| `{}` |", key.name);
                let tables = TABLES
                    .iter()
                    .flat_map(|t| t.keys)
                    .filter(|k| k.name == key.name)
                    .count();
                assert_eq!(reference.matches(&row).count(), tables, "{}", key.name);
                assert!(key.doc.ends_with('.'), "{}", key.name);
            }
        }
    }
}
