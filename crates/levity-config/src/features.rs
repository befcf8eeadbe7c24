//! The features of cargo with which the program is built, and what in a configuration needs one.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::reader::Reader;
use crate::schema::{Schema, Table};

/// Makes the enum of features, their names and whether they are built from one list.
macro_rules! features {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// A part of the program that a build may leave out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Feature {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Feature {
            /// All features, in the order of `docs/install.md`.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name that cargo knows it by.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Whether this build has it.
            pub fn is_built(self) -> bool {
                match self {
                    $(Self::$variant => cfg!(feature = $name),)+
                }
            }

            /// What is said of `what`, which needs it, in a build without it.
            pub fn lacking(self, what: &str) -> String {
                format!(
                    "{what} is not in this build: it needs the feature `{}`",
                    self.name()
                )
            }
        }
    };
}

features! {
    /// Certificates from authorities, and OCSP.
    Acme = "acme";
    /// The protocol AJP13 to upstreams.
    Ajp = "ajp";
    /// Compression of responses, and `levity precompress`.
    Compress = "compress";
    /// The engines `linux-aio`, `posix-aio`, `readahead` and `sendfile`.
    EnginesAll = "engines-all";
    /// HTTP/2 with clients and with upstreams.
    Http2 = "http2";
    /// `levity top`, `levity timing` and `levity mailbox`.
    Inspect = "inspect";
    /// The engine `io_uring`.
    IoUring = "io-uring";
    /// Mailboxes, their store in SQLite, and `resume`.
    Mailbox = "mailbox";
    /// The store of mailboxes on a Redis server.
    Redis = "redis";
    /// TLS with clients and with upstreams, and signatures of tokens.
    Tls = "tls";
    /// Files that clients write.
    Upload = "upload";
}

/// A key or table that needs a feature.
struct Need {
    /// The tables in which it stands; `""` is the file itself.
    tables: &'static [&'static str],
    name: &'static str,
    /// The values that need the feature, or with `://` their schemes. An empty list stands for every value but `false`.
    words: &'static [&'static str],
    feature: Feature,
}

/// What sites and routes may have.
const LOCATIONS: &[&str] = &["site", "site.route"];

/// Where an engine is chosen.
const ENGINES: &[&str] = &["disk", "site.disk", "site.route.disk"];

const fn need(tables: &'static [&'static str], name: &'static str, feature: Feature) -> Need {
    Need {
        tables,
        name,
        words: &[],
        feature,
    }
}

impl Need {
    const fn for_words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }
}

const NEEDS: &[Need] = &[
    need(&[""], "acme", Feature::Acme),
    need(&["site"], "tls", Feature::Acme).for_words(&["acme"]),
    need(&["site.tls"], "issuer", Feature::Acme).for_words(&["acme"]),
    need(&["upstream"], "protocol", Feature::Ajp).for_words(&["ajp13"]),
    need(&["upstream"], "protocol", Feature::Http2).for_words(&["h2"]),
    need(LOCATIONS, "compress", Feature::Compress),
    need(LOCATIONS, "compress_codings", Feature::Compress),
    need(LOCATIONS, "compress_types", Feature::Compress),
    need(LOCATIONS, "compress_min_bytes", Feature::Compress),
    need(LOCATIONS, "compress_dictionaries", Feature::Compress),
    need(&["limits"], "compression_memory", Feature::Compress),
    need(&["disk"], "variants", Feature::Compress),
    need(&["disk"], "variants_bytes", Feature::Compress),
    need(ENGINES, "engine", Feature::EnginesAll).for_words(&[
        "linux-aio",
        "linux-aio-sendfile",
        "linux_aio",
        "posix-aio",
        "posix_aio",
        "readahead",
        "sendfile",
        "linux-sendfile",
    ]),
    need(ENGINES, "engine", Feature::IoUring).for_words(&["io_uring", "io-uring"]),
    need(&[""], "mailbox", Feature::Mailbox),
    need(&[""], "mailbox_store", Feature::Mailbox),
    need(LOCATIONS, "mailbox", Feature::Mailbox),
    need(LOCATIONS, "mailbox_headers", Feature::Mailbox),
    need(LOCATIONS, "resume", Feature::Mailbox),
    need(&["listen"], "publish", Feature::Mailbox),
    need(&["limits"], "mailbox_memory", Feature::Mailbox),
    need(&["limits"], "resume_memory", Feature::Mailbox),
    need(&["mailbox_store"], "store", Feature::Redis).for_words(&["redis"]),
    need(&[""], "tls", Feature::Tls),
    need(&["listen", "site", "upstream"], "tls", Feature::Tls),
    need(&["upstream"], "to", Feature::Tls).for_words(&["https://"]),
    need(LOCATIONS, "jwt", Feature::Tls),
    need(LOCATIONS, "upload", Feature::Upload),
];

impl Need {
    /// How `value` of `name` is written, if it needs the feature.
    fn written(&self, table: &Table, name: &str, value: &DeValue<'_>) -> Option<String> {
        if self.name != name || !self.tables.contains(&table.path) {
            return None;
        }
        match value {
            _ if !self.words.is_empty() => {
                let word = texts(value).find_map(|text| self.word(text))?;
                Some(format!("{name} = \"{word}\""))
            }
            DeValue::Boolean(false) => None,
            // What a variable stands for is text.
            _ if value.as_str() == Some("false") => None,
            _ => Some(name.to_owned()),
        }
    }
}

impl Need {
    /// The word that `text` is, or the scheme that it begins with: the rest may be a secret.
    fn word(&self, text: &str) -> Option<String> {
        let text = text.trim_ascii();
        self.words.iter().find_map(|word| match *word {
            word if text == word => Some(word.to_owned()),
            scheme if scheme.ends_with("://") && text.starts_with(scheme) => {
                Some(format!("{scheme}..."))
            }
            _ => None,
        })
    }
}

/// The text that `value` is, or those of the array that it is.
fn texts<'v>(value: &'v DeValue<'_>) -> impl Iterator<Item = &'v str> {
    let elements = value.as_array().into_iter().flatten();
    let elements = elements.filter_map(|one| one.get_ref().as_str());
    value.as_str().into_iter().chain(elements)
}

/// What is said of something that needs a feature that is not built, and what helps.
pub(crate) fn lacking(what: &str, feature: Feature) -> (String, String) {
    let name = feature.name();
    (
        feature.lacking(what),
        format!("build it with `--features {name}`, or install a release"),
    )
}

/// Reports what `document` has of the features for which `is_built` does not hold, and sets it aside.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    document: &DeTable<'_>,
    is_built: fn(Feature) -> bool,
) {
    let mut used = Vec::new();
    add_used(reader.schema, reader.schema.table(""), document, &mut used);
    for (span, written, feature) in used {
        if !is_built(feature) {
            let (message, help) = lacking(&format!("`{written}`"), feature);
            reader.report(&span, message, Some(help));
            reader.set_aside(&span);
        }
    }
}

/// What needs a feature: where it is, how it is written, and the feature.
type Used = (Range<usize>, String, Feature);

/// Adds what `entries`, those of a table, and the tables beneath them have.
fn add_used(schema: Schema, table: &'static Table, entries: &DeTable<'_>, used: &mut Vec<Used>) {
    for (key, value) in entries {
        let given = key.get_ref().as_ref();
        let name = table.key_also(given).map_or(given, |key| key.name);
        let mut needs = NEEDS.iter();
        let written =
            |need: &Need| Some((need.written(table, name, value.get_ref())?, need.feature));
        if let Some((written, feature)) = needs.find_map(written) {
            used.push((key.span(), written, feature));
        }
        if let Some(child) = schema.find_child(table, name) {
            for entries in tables(value) {
                add_used(schema, child, entries, used);
            }
        }
    }
}

/// The table that `value` is, or those of the array that it is.
fn tables<'v>(value: &'v Spanned<DeValue<'v>>) -> impl Iterator<Item = &'v DeTable<'v>> {
    let values = match value.get_ref() {
        DeValue::Array(elements) => elements.iter().collect(),
        _ => vec![value],
    };
    values.into_iter().filter_map(|one| match one.get_ref() {
        DeValue::Table(entries) => Some(entries),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::document;
    use crate::keys::{SCHEMA, TABLES};
    use crate::source::Source;
    use crate::tests::shown;
    use crate::variables::Variables;

    /// What a build without any feature says.
    fn reported(text: &str) -> Vec<String> {
        let mut reader = Reader::new(Source::new(text, None), SCHEMA);
        let document = document(&mut reader, &Variables::default());
        check(&mut reader, &document, |_| false);
        let problems = reader.take_problems().into_iter();
        let problems: Vec<_> = problems.map(|(_, problem)| problem).collect();
        shown(&problems)
    }

    #[test]
    fn needs_are_keys_words_or_tables() {
        for need in NEEDS {
            for path in need.tables {
                let table = TABLES.iter().find(|table| table.path == *path);
                let table = table.unwrap_or_else(|| panic!("[{path}]"));
                let is_child = SCHEMA.find_child(table, need.name).is_some();
                let key = table.find_key(need.name);
                assert!(is_child || key.is_some(), "{path}.{}", need.name);
            }
        }
    }

    #[test]
    fn the_program_has_the_same_features() {
        let manifest = include_str!("../../levity/Cargo.toml");
        let manifest: toml::Table = manifest.parse().expect("a manifest");
        let features = manifest["features"]["default"].as_array();
        let features = features
            .expect("a list")
            .iter()
            .filter_map(|one| one.as_str());
        let names = Feature::ALL.iter().map(|one| one.name());
        assert_eq!(features.collect::<Vec<_>>(), names.collect::<Vec<_>>());
    }

    #[test]
    fn every_feature_is_documented() {
        let page = include_str!("../../../docs/install.md");
        let (_, table) = page.split_once("| feature |").expect("a table");
        let (table, _) = table.split_once("\n\n").expect("its end");
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
        let found: Vec<_> = rows
            .filter_map(|row| Some(row.split_once('`')?.0))
            .collect();
        let expected: Vec<_> = Feature::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(found, expected);
    }

    /// `engine` is a word of a list from which other builds have left it out, `secret` is for AJP13 only.
    #[test]
    fn words_need_features_and_nothing_is_said_twice() {
        let text = "[disk]\nengine = \"io_uring\"\n[[upstream]]\nname = \"a\"\nto = [\"127.0.0.1:1\"]\n\
                    protocol = \"ajp13\"\nsecret = \"0123456789abcdef\"\n[[site]]\nroot = \"/a\"\ntls = \"acme\"\n";
        let reported = reported(text);
        let expected = [
            "2:1 `engine = \"io_uring\"` is not in this build: it needs the feature `io-uring`",
            "6:1 `protocol = \"ajp13\"` is not in this build: it needs the feature `ajp`",
            "10:1 `tls = \"acme\"` is not in this build: it needs the feature `acme`",
        ];
        assert_eq!(reported.len(), expected.len(), "{reported:?}");
        for (report, expected) in reported.iter().zip(expected) {
            assert!(report.starts_with(expected), "{report}");
        }
    }

    #[test]
    fn what_needs_tls_is_named() {
        let text = "[tls]\nfolder = \"/t\"\n[[listen]]\naddress = \"1.2.3.4:1\"\ntls = true\n\
                    [[listen]]\naddress = \"1.2.3.4:443\"\ntls = \"false\"\n\
                    [[upstream]]\nname = \"a\"\nto = [\"127.0.0.1:1\", \" https://b.test\"]\n\
                    tls = { verify = false }\n[[upstream]]\nname = \"b\"\nto = \"http://b.test\"\n\
                    [[site]]\nroot = \"/a\"\ntls = \"internal\"\njwt = { secret = \"x\" }\n";
        let lines = [
            "1:2 `tls` ",
            "5:1 `tls` ",
            "11:1 `to = \"https://...\"` ",
            "12:1 `tls` ",
            "18:1 `tls` ",
            "19:1 `jwt` ",
        ];
        let reported = reported(text);
        assert_eq!(reported.len(), lines.len(), "{reported:?}");
        for (report, start) in reported.iter().zip(lines) {
            assert!(report.starts_with(start), "{report}");
            assert!(report.contains("it needs the feature `tls`"), "{report}");
        }
    }

    #[test]
    fn a_key_of_another_build_has_its_line() {
        let help =
            |feature| format!("[build it with `--features {feature}`, or install a release]");
        let text = "[mailbox_store]\nstore = \"memory\"\n[[site]]\nroot = \"/a\"\n\
                    [[site.route]]\npath = \"/b\"\nmailbox = \"c\"\n\
                    [[site.route.route]]\npath = \"/b/d\"\nmailbox = false\nresume = {}\n";
        let mailbox = help("mailbox");
        assert_eq!(
            reported(text),
            [
                format!(
                    "1:2 `mailbox_store` is not in this build: it needs the feature `mailbox` {mailbox}"
                ),
                format!(
                    "7:1 `mailbox` is not in this build: it needs the feature `mailbox` {mailbox}"
                ),
                format!(
                    "11:1 `resume` is not in this build: it needs the feature `mailbox` {mailbox}"
                ),
            ]
        );
    }
}
