//! Types that describe the tables and keys of a file.

use strum::{EnumMessage, VariantArray};

use crate::value;

/// The tables that inherit.
const INHERITING: &[&str] = &["site", "site.route"];

/// Their keys that `false` does not drop: nothing inherits them, or it might be read as the opposite. `allow = false` would let
/// everyone in, for which there is `["all"]`.
const OWN_KEYS: &[&str] = &["hosts", "path", "regex", "allow", "deny"];

/// The tables beneath them that are dropped as keys are. What `false` means for the other ones, each of them says.
const DROPPED_TABLES: &[&str] = &[
    "redirect",
    "respond",
    "disk",
    "headers",
    "request_headers",
    "rewrite",
];

/// One TOML table.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name as written in the file, such as `site.route`; empty for the file itself.
    pub(crate) path: &'static str,
    /// Whether it is an array of tables, `[[...]]`.
    pub(crate) repeated: bool,
    /// Whether such tables may lie in one another, each with the same keys.
    pub(crate) is_recursive: bool,
    /// Its documentation.
    pub(crate) doc: &'static str,
    /// The keys that it may have, in addition to the tables beneath it.
    pub(crate) keys: &'static [Key],
}

/// One key of a [`Table`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// As written in the file.
    pub(crate) name: &'static str,
    /// Other servers' names for it. They are accepted with a note that gives this name, and the difference.
    pub(crate) also: &'static [(&'static str, &'static str)],
    /// The form of its value.
    pub(crate) kind: Kind,
    /// The value when the key is absent, unquoted; `None` without a default. A key whose default is `auto` also
    /// takes `"auto"`.
    pub(crate) default: Option<&'static str>,
    /// Whether its values are paths of what no client may get: these files, or everything in these folders, are sent to nobody.
    pub(crate) is_secret: bool,
    /// Whether its value is a secret itself. Then the table has another key, its name with `_file`, for a file with it.
    pub(crate) has_file: bool,
    /// Its documentation, one paragraph.
    pub(crate) doc: &'static str,
    /// The meaning of each word, for the reference.
    pub(crate) meanings: Option<fn() -> String>,
}

/// The form of the value of a [`Key`]. Quantities have their smallest and largest value, written as in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A string such as `"30s"`.
    Duration(&'static str, &'static str),
    /// A string such as `"16KiB"`, or a number of bytes.
    Size(&'static str, &'static str),
    /// A whole number.
    Count(&'static str, &'static str),
    /// `true` or `false`.
    Boolean,
    /// A string out of a list.
    Word(&'static [&'static str]),
    /// A string whose form is named here, such as `a path`.
    Text(&'static str),
    /// An array of strings.
    Names,
    /// An array of strings and whole numbers.
    NamesAndNumbers,
    /// A table of names and values that are both free.
    Pairs,
    /// A string, or such a table.
    TextOrPairs,
}

/// A list of keys or tables, or constants that are keys. The documentation comment of each is its text in the
/// reference; a key without one has its text already.
macro_rules! documented {
    ($($(#[doc = $doc:literal])+ const $name:ident = $key:expr;)+) => {
        $(pub(crate) const $name: Key = $key.documented(concat!($($doc),+));)+
    };
    // Not `$item:expr`, which would take the comment.
    ($($(#[doc = $doc:literal])* $($path:ident)::+ $(($($args:tt)*))? $(.$call:ident($($value:expr),*))*;)+) => {
        &[$($($path)::+ $(($($args)*))? $(.$call($($value),*))* .documented(concat!($($doc),*))),+]
    };
}
pub(crate) use documented;

/// Joins lists of keys.
macro_rules! joined {
    ($($list:expr),+) => {{
        const LISTS: &[&[Key]] = &[$($list),+];
        const KEYS: [Key; $crate::schema::count(LISTS)] = $crate::schema::join(LISTS);
        &KEYS
    }};
}
pub(crate) use joined;

/// The number of keys in all `lists`.
pub(crate) const fn count(lists: &[&[Key]]) -> usize {
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        count += lists[list].len();
        list += 1;
    }
    count
}

/// The keys of all `lists`, which are `N`.
pub(crate) const fn join<const N: usize>(lists: &[&[Key]]) -> [Key; N] {
    let mut keys = [key("", Kind::Names, None); N];
    let (mut at, mut list) = (0, 0);
    while list < lists.len() {
        let mut index = 0;
        while index < lists[list].len() {
            keys[at] = lists[list][index];
            (at, index) = (at + 1, index + 1);
        }
        list += 1;
    }
    keys
}

/// The `N` keys of `list`, for a table that inherits their values.
pub(crate) const fn without_defaults<const N: usize>(list: &[Key]) -> [Key; N] {
    let mut keys: [Key; N] = join(&[list]);
    let mut at = 0;
    while at < N {
        keys[at].default = None;
        at += 1;
    }
    keys
}

/// A key without documentation.
pub(crate) const fn key(name: &'static str, kind: Kind, default: Option<&'static str>) -> Key {
    Key {
        name,
        also: &[],
        kind,
        default,
        is_secret: false,
        has_file: false,
        doc: "",
        meanings: None,
    }
}

/// The words of `W` with the comments of its variants: `"a"`: first; `"b"`: second.
pub(crate) fn meanings<W>() -> String
where
    W: Copy + EnumMessage + Into<&'static str> + VariantArray,
{
    let meaning = |variant: &W| {
        let word: &str = (*variant).into();
        let comment = variant.get_documentation().expect("a comment");
        let meaning: Vec<_> = comment.split_whitespace().collect();
        format!("`\"{word}\"`: {}", meaning.join(" "))
    };
    let meanings = W::VARIANTS.iter().map(meaning);
    meanings.collect::<Vec<_>>().join("; ")
}

/// A table without documentation.
pub(crate) const fn table(path: &'static str, keys: &'static [Key]) -> Table {
    Table {
        path,
        repeated: false,
        is_recursive: false,
        doc: "",
        keys,
    }
}

/// An array of tables without documentation.
pub(crate) const fn array(path: &'static str, keys: &'static [Key]) -> Table {
    Table {
        repeated: true,
        ..table(path, keys)
    }
}

/// The tables that a file may have, in the order of the reference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema(pub(crate) &'static [Table]);

impl Schema {
    /// The table written as `path`; a path that does not exist is an error of the caller.
    pub(crate) fn table(self, path: &str) -> &'static Table {
        self.top(path).expect("a table of the schema")
    }

    /// The table called `name` beneath `parent`; one that does not exist is an error of the caller.
    pub(crate) fn child(self, parent: &'static Table, name: &str) -> &'static Table {
        self.find_child(parent, name)
            .expect("a table of the schema")
    }

    /// The table called `name` beneath `parent`, if there is one.
    pub(crate) fn find_child(self, parent: &'static Table, name: &str) -> Option<&'static Table> {
        match parent.path {
            "" => self.top(name),
            _ if parent.is_recursive && parent.name() == name => Some(parent),
            path => self.top(&format!("{path}.{name}")),
        }
    }

    /// The table with this path, such as one of the file itself; `None` if there is no such table.
    pub(crate) fn top(self, name: &str) -> Option<&'static Table> {
        self.0.iter().find(|table| table.path == name)
    }

    /// The names of the tables directly beneath `table`.
    pub(crate) fn children(self, table: &Table) -> impl Iterator<Item = &'static str> {
        let below = |other: &'static Table| {
            let (parent, name) = other.path.rsplit_once('.').unwrap_or(("", other.path));
            (parent == table.path).then_some(name)
        };
        let named = self.0.iter().filter(|table| !table.path.is_empty());
        let itself = table.is_recursive.then(|| table.name());
        named.filter_map(below).chain(itself)
    }

    /// Whether `false` stands for what `table` would inherit of the key or table `name`, and does without.
    pub(crate) fn may_drop(self, table: &Table, name: &str) -> bool {
        let may_be_dropped = |key: &Key| {
            key.name == name && !OWN_KEYS.contains(&name) && !matches!(key.kind, Kind::Boolean)
        };
        INHERITING.contains(&table.path)
            && (DROPPED_TABLES.contains(&name) || table.keys.iter().any(may_be_dropped))
    }

    /// The names of all keys and tables that may stand in `table`.
    pub(crate) fn names(self, table: &Table) -> impl Iterator<Item = &'static str> {
        let keys = table.keys.iter().map(|key| key.name);
        keys.chain(self.children(table))
    }
}

impl Table {
    /// The table, which may lie in itself.
    pub(crate) const fn recursive(self) -> Self {
        Self {
            is_recursive: true,
            ..self
        }
    }

    /// The last part of its path.
    fn name(&self) -> &'static str {
        self.path
            .rsplit_once('.')
            .map_or(self.path, |(_, name)| name)
    }

    /// The table with the text of its documentation comment.
    pub(crate) const fn documented(self, comment: &'static str) -> Self {
        let doc = comment.trim_ascii();
        Self { doc, ..self }
    }

    /// The key that other servers call `name`.
    pub(crate) fn key_also(&self, name: &str) -> Option<&'static Key> {
        let called = |key: &&Key| key.also.iter().any(|(also, _)| *also == name);
        self.keys.iter().find(called)
    }

    pub(crate) fn key(&self, name: &str) -> &'static Key {
        self.find_key(name).expect("a key of this table")
    }

    /// The key called `name`, if there is one.
    pub(crate) fn find_key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The heading in a file: `[disk]`, `[[site]]`.
    pub(crate) fn heading(&self) -> String {
        if self.repeated {
            format!("[[{}]]", self.path)
        } else {
            format!("[{}]", self.path)
        }
    }
}

impl Key {
    /// The key with the text of its documentation comment, unless that is empty.
    pub(crate) const fn documented(self, comment: &'static str) -> Self {
        let doc = if comment.is_empty() {
            self.doc
        } else {
            comment.trim_ascii()
        };
        Self { doc, ..self }
    }

    pub(crate) const fn also(self, also: &'static [(&'static str, &'static str)]) -> Self {
        Self { also, ..self }
    }

    pub(crate) const fn secret(self) -> Self {
        Self {
            is_secret: true,
            ..self
        }
    }

    /// The key of a secret that may be in a file instead.
    pub(crate) const fn or_file(self) -> Self {
        Self {
            has_file: true,
            ..self
        }
    }

    pub(crate) const fn with_meanings(self, meanings: fn() -> String) -> Self {
        let meanings = Some(meanings);
        Self { meanings, ..self }
    }

    pub(crate) const fn with_default(self, default: Option<&'static str>) -> Self {
        Self { default, ..self }
    }

    /// The default as it is written in a file; `None` when there is none.
    pub(crate) fn written_default(&self) -> Option<String> {
        let text = self.default?;
        let bare = match self.kind {
            Kind::Boolean
            | Kind::Names
            | Kind::NamesAndNumbers
            | Kind::Pairs
            | Kind::TextOrPairs => true,
            Kind::Count(..) => !self.is_auto(),
            _ => false,
        };
        Some(if bare {
            text.to_owned()
        } else {
            format!("\"{text}\"")
        })
    }

    /// Whether `"auto"` is a value: it is then also the default.
    pub(crate) fn is_auto(&self) -> bool {
        self.default == Some("auto")
    }
}

impl Kind {
    /// Milliseconds, bytes or a count, from the text of a value.
    pub(crate) fn quantity(self, text: &str) -> Result<u64, String> {
        match self {
            Kind::Duration(..) => value::duration(text),
            Kind::Size(..) => text.parse().or_else(|_| value::size(text)),
            _ => text.parse().map_err(|_| String::new()),
        }
    }

    /// The smallest and the largest value, written as in the file.
    pub(crate) fn bounds(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::Duration(min, max) | Kind::Size(min, max) | Kind::Count(min, max) => {
                Some((min, max))
            }
            _ => None,
        }
    }

    /// What a message says it expected.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Kind::Duration(..) => "a duration such as \"30s\"",
            Kind::Size(..) => "a size such as \"16KiB\"",
            Kind::Count(..) => "a whole number",
            Kind::Boolean => "`true` or `false`",
            Kind::Word(_) | Kind::Text(_) => "a string",
            Kind::Names => "an array of strings",
            Kind::NamesAndNumbers => "an array of strings and numbers",
            Kind::Pairs => "a table of strings",
            Kind::TextOrPairs => "a string or a table of strings",
        }
    }

    /// Holds `quantity` (milliseconds, bytes or a count) to the bounds.
    ///
    /// # Errors
    ///
    /// A phrase that names both bounds.
    pub(crate) fn check(self, quantity: u64) -> Result<u64, String> {
        let Some((min, max)) = self.bounds() else {
            return Ok(quantity);
        };
        let edge = |text| self.quantity(text).expect("a bound in the kind's own form");
        if (edge(min)..=edge(max)).contains(&quantity) {
            Ok(quantity)
        } else {
            Err(format!("must be from {min} to {max}"))
        }
    }
}
