//! The text of `docs/configuration.md`, from the table of keys.

use std::fmt::Write as _;

use crate::keys::TABLES;
use crate::schema::{Key, Kind, Table};

const HEAD: &str = "\
# Configuration

Written from the source by `LEVITY_WRITE_DOCS=1 cargo test -p levity-config --test reference`: change it there. Complete files
are in [`examples/`](examples).

";

/// What precedes the keys of the configuration itself.
pub(crate) const INTRODUCTION: &str = "\
`levity run FILE` reads a [TOML](https://toml.io) file, `levity check FILE` reports all errors at once. Without `FILE` both take
`/etc/levity/levity.toml`. The smallest one:

```toml
[[site]]
root = \"/srv/www\"
```

- A key that is not listed here is an error, as is a value out of its range.
- Durations are `\"500ms\"`, `\"30s\"`, `\"2m\"`, `\"1h\"`, `\"1d\"`. Sizes are `\"16KiB\"`, `\"1MiB\"` (1024), `\"512KB\"`, `\"1GB\"`
  (1000), `\"1B\"`, or a number of bytes.
- Relative paths are relative to the folder of the file in which they stand; of a link, to that of the link.
- SIGHUP reads the configuration again. One with errors, or one that changes a key that needs a restart, changes nothing.

## Many files

```toml
include = [\"sites.d/*.toml\"]

[[site]]
root = \"/srv/www\"
```

";

/// What follows the keys of the configuration itself.
pub(crate) const MANY_FILES: &str = "
- A string of `include` is the name of a file, or a pattern: `*` stands for any text within a name, `?` for one character.
  Both are relative to the folder of the main file, and end in `.toml` or with a star. A pattern finds names that end in
  `.toml` and do not begin with a dot, so neither `example.org` nor `a.toml~`; that there is no such folder is noted. So is
  a file such as `sites.d/shop.conf`, which seems to be meant, unless it lies beside the main file, or its name has `.toml`,
  as `a.toml.off`, or is that of a copy. A file that is named without a star has to be there. One without any table is noted: an editor may be about to write it.
- Files come in the order of `include`, those of a pattern in the order of their bytes: `10.toml` before `9.toml`. Lists
  (`[[site]]`, `[[listen]]`, `[[upstream]]`, `[[mailbox]]`) are joined. Any other table stands in one file.
- A file counts once. One that is found again under another name, such as a link, is noted. That holds for the main file
  too, so `include = [\"*.toml\"]` may find it.
- The order of sites chooses nothing: `default = true` names the one for all names that no site has. If several sites have
  TLS and none of them is that one, handshakes for other names are refused.
- Everything is read before a reload changes anything, and all errors of all files are reported: write a file and have
  the server reload (`levity reload --wait`). One file alone may name what another has. Clients get none of these
  files. There may be 4096 of them, with 1 MiB each and 16 MiB together. Pipes and devices are refused.
- Whoever may write to one of the files, or put one into the folder of a pattern, decides what the server does. It is noted
  if that is not only root and the user of the server. A group whose only member is the owner is nobody else.

## Values from the environment

```toml
[server]
workers = \"${WORKERS:-4}\"

[[site]]
hosts = [\"${SITE_HOST:-www.example.org}\"]
default = true
root = \"/srv/www\"
headers = { set = { X-Instance = \"${INSTANCE:-1}\" } }
```

- `${NAME}` in a string stands for a variable of the environment of the server; the name has capital letters, digits and
  `_`. A variable that is not set is an error, unless there is a default: `${NAME:-default}`, which also counts for one that
  is empty. A default is text without `${`. Anything else behind `${NAME`, such as `${NAME` without a bracket, is an error.
- `$${NAME` stands for the characters `${NAME`. Before any other name `${` and `$${` stay as they are, such as `${status}` in
  a format of a log, or `$${price}` in a script.
- A value is put in after the file was read as TOML: it is text, whatever it contains, and no reference is looked for in it.
  Names of keys have no references. A string that is one reference and nothing else may stand for a number, `true` or `false`.
- Errors, notes, `levity explain` and `/status` show `${NAME}` and not the value, nor the host of a URL or the text around
  placeholders in it. They show values that have fewer than four characters, numbers of fewer than six digits, names of
  keys and words of lists on this page, and what stands for a number, a size, a duration or one of several words.
- The log names addresses, hosts, backends, paths of health checks and folders that are in use, `/metrics` names sites and
  backends, and `levity certs` names hosts. If a variable is part of a string of `include`, positions name the files. So
  secrets belong into files.
- A process has the environment with which it was started, also after a reload. `levity check --env-file FILE` takes values
  from lines `NAME=VALUE`, as do `explain`, `certs`, `precompress`, `reload`, `health` and `top`. The file may be that of
  `EnvironmentFile=` of a unit: `#` and `;` begin comments. What systemd would read in another way than as it is written is
  refused: quotes around a value, blanks before and behind it, and backslashes.

## Secrets

Keys that end in `_file`, and others for files of keys and passwords, keep secrets out of the configuration. Nothing in such
a file is sent to clients. In place of a path, `\"credential:NAME\"` is a file that systemd hands to the service, from
`LoadCredential=NAME:PATH` or `LoadCredentialEncrypted=` of its unit:

```toml
[[site]]
root = \"/srv/www\"
signed_url = { secret_file = \"credential:url-secret\" }
```

systemd copies credentials when it starts the service: a change of one counts after a restart, not after a reload. Outside of
the service there are none: `levity check --env-file FILE` with `CREDENTIALS_DIRECTORY=FOLDER` in that file reads others.
";

/// The text of `docs/configuration.md`.
#[must_use]
pub fn reference() -> String {
    let mut out = HEAD.to_owned() + INTRODUCTION;
    for table in TABLES {
        match table.path {
            "" => {
                keys(table, &mut out);
                out.push_str(MANY_FILES);
            }
            _ => section(table, &mut out),
        }
    }
    out
}

fn section(table: &Table, out: &mut String) {
    let _ = write!(out, "\n## `{}`\n\n{}\n\n", table.heading(), table.doc);
    keys(table, out);
}

fn keys(table: &Table, out: &mut String) {
    out.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in table.keys {
        let default = key
            .written_default()
            .map_or(String::new(), |text| format!("`{text}`"));
        let (name, value, meaning) = (key.name, value(key), meaning(key));
        let _ = writeln!(out, "| `{name}` | {value} | {default} | {meaning} |");
    }
}

/// What a key is for, as Markdown.
pub(crate) fn meaning(key: &Key) -> String {
    let meanings = key.meanings.map(|meanings| format!(" {}.", meanings()));
    let meanings = meanings.unwrap_or_default();
    let of_file = match key.has_file {
        true => format!(" Or `{}_file` names a file with it.", key.name),
        false => String::new(),
    };
    format!("{}{meanings}{of_file}", key.doc)
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
