//! Sites that are made up: trees, keys and routes. Each part of them can be left out or made simpler, so that of a case that fails
//! the smallest one is shown.

use std::fmt::{self, Write as _};

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy};
use proptest::prop_oneof;
use proptest::sample::{select, subsequence};

use crate::found::Headers;

/// What a route strips from the path.
pub const STRIPPED: &str = "/app";

/// The route that strips it, also from the path without a slash, or not.
const STRIPPING: [&str; 2] = ["path = \"/app/*\"", STRIPPING_ALL];

const STRIPPING_ALL: &str = "regex = \"^/app(/|$)\"";

/// Expressions for paths that begin so.
const WITH_PREFIX: [&str; 5] = [
    "^/app/d/",
    "^/app/.*[.]html$",
    "^/app/(d/)?[^/]*$",
    "^/app/.*[.](php|md)",
    "^/app/d/e/$",
];

const EVERYWHERE: [&str; 8] = [
    "*.html",
    "*.txt",
    "*.md",
    "*.gz",
    "*.json",
    "*.php",
    "*.{html,md}",
    "/**/sub/*",
];

/// Behind the prefix of the route.
const SOMEWHERE: [&str; 9] = [
    "d/*",
    "d/e/*",
    "d/",
    "d/*.html",
    "d/**.html",
    "d/**.php",
    "*.gz",
    "**.md",
    "sub/*",
];

const EXPRESSIONS: [&str; 6] = [
    "index",
    "/d/.*[.]txt$",
    "[.]json$",
    "^/(app/)?d/[^/]*$",
    "[.]php$",
    "[.]php/",
];

/// What some requests in [`ASKED`] meet, or some names.
const CONDITIONS: [&str; 5] = [
    "header = { X-Key = \"1\" }",
    "query = { key = \"1\" }",
    "header = { X-Key = \"1\" }, query = { key = \"1\" }",
    "method = [\"POST\"]",
    "type = [\"text/html\"]",
];

/// How paths are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub method: &'static str,
    pub query: Option<&'static str>,
    pub headers: Headers<'static>,
}

const PLAIN: Asked = Asked {
    method: "GET",
    query: None,
    headers: &[],
};

const ASKED: [Asked; 5] = [
    PLAIN,
    Asked {
        headers: &[("X-Key", "1")],
        ..PLAIN
    },
    Asked {
        query: Some("key=1"),
        ..PLAIN
    },
    Asked {
        headers: &[("Accept-Encoding", "gzip")],
        ..PLAIN
    },
    Asked {
        method: "POST",
        headers: &[("Content-Length", "0")],
        ..PLAIN
    },
];

/// What the sites of a test have. Of the values that a key may have, the first is the simplest.
pub struct Kind {
    pub files: &'static [&'static str],
    pub keys: &'static [&'static [&'static str]],
    /// Whether scripts are run, which are asked by POST too.
    pub has_scripts: bool,
    /// Keys of routes that keep requests out, and others.
    pub refusals: &'static [&'static str],
    pub others: &'static [&'static str],
}

pub const FILES: Kind = Kind {
    files: &[
        "index.html",
        "index.html.gz",
        "home.html",
        "page",
        "page.html",
        "page.html.gz",
        "a.txt",
        "a.txt.gz",
        "data.json",
        "data.json.gz",
        "README.md",
        "README",
        ".dot.html",
        "sub/home.html",
        "d/index.html",
        "d/index.html.gz",
        "d/home.html",
        "d/page",
        "d/page.html",
        "d/a.txt",
        "d/data.json",
        "d/data.json.gz",
        "d/README.md",
        "d/.dot.html",
        "d/sub/home.html",
        "d/e/index.html",
        "d/e/page.html",
        "d/e/a.txt",
        "d/e/README",
        "d/e/README.md",
    ],
    keys: &[
        &["", "index = [\"home.html\", \"index.html\"]"],
        &[
            "",
            "try = [\"file\"]",
            "try = [\"file\", \"file.html\"]",
            "try = [\"file\", \"file.html\", \"directory\", 404]",
            "try = [\"file\", \"file.html\", \"directory\", \"/index.html\"]",
            "try = [\"file\", \"directory\", \"/d/home.html\"]",
        ],
        &["", "precompressed = [\"gzip\"]"],
        &["", "listing = true"],
        &["", "listing_archive = [\"tar\", \"zip\"]"],
        &["", "show = [\".*\"]"],
    ],
    has_scripts: false,
    refusals: &[
        "deny = [\"all\"]",
        "respond = { status = 403 }",
        "internal = true",
        "hide = [\"*.txt\", \"*.gz\"]",
        "hide = [\"README*\", \"e\", \"pa*\"]",
    ],
    others: &[
        "headers.set = { X-Own = \"1\" }",
        "index = [\"home.html\"]",
        "listing = false",
        "precompressed = []",
        "redirect = { to = \"https://a.example/\" }",
        "try = [\"file\", \"file.html\"]",
        "show = [\".dot*\"]",
    ],
};

pub const SCRIPTS: Kind = Kind {
    files: &[
        "index.php",
        "run.php",
        "run.php.gz",
        "index.html",
        "page.html",
        "a.txt",
        "README.md",
        "sub/index.php",
        "dir.php/a.txt",
        "d/index.php",
        "d/run.php",
        "d/index.html",
        "d/page.html",
        "d/a.txt",
        "d/sub/index.php",
        "d/e/index.php",
        "d/e/run.php",
        "d/e/index.html",
        "d/e/a.txt",
    ],
    keys: &[
        &["proxy = \"app\"\nscript_suffix = \".php\""],
        &[
            "",
            "script_index = \"index.php\"",
            "script_index = \"d/index.php\"",
        ],
        &[
            "try = [\"file\", \"proxy\"]",
            "try = [\"file\", \"directory\", \"proxy\"]",
            "try = [\"file\", \"file.html\", \"proxy\"]",
            "try = [\"file\", \"file.html\", \"directory\", \"proxy\"]",
        ],
        &[
            "",
            "index = [\"index.php\", \"index.html\"]",
            "index = [\"index.html\", \"index.php\"]",
        ],
        &["", "listing = true\nlisting_archive = [\"tar\", \"zip\"]"],
    ],
    has_scripts: true,
    refusals: &[
        "deny = [\"all\"]",
        "respond = { status = 403 }",
        "internal = true",
        "hide = [\"run*\", \"e\"]",
        "try = [\"file\"]",
        "try = [\"file\", \"file.html\"]",
    ],
    others: &[
        "headers.set = { X-Own = \"1\" }",
        "index = [\"index.php\"]",
        "index = [\"run.php\", \"index.html\"]",
        "listing = false",
        "redirect = { to = \"https://a.example/\" }",
        "script_index = \"index.php\"",
        "script_index = \"d/run.php\"",
        "body_bytes = \"1MiB\"",
    ],
};

#[derive(Clone, Debug)]
enum When {
    Always,
    If(&'static str),
    Unless(&'static str),
}

/// A route.
#[derive(Clone, Debug)]
struct Rule {
    pattern: String,
    when: When,
    keys: &'static str,
}

impl Rule {
    /// The tables of it, which are `[[{table}]]` and have `more` keys too.
    fn text(&self, table: &str, more: &str) -> String {
        let head = format!("[[{table}]]\n{}\n{more}", self.pattern);
        let keys = self.keys;
        match self.when {
            When::Always => format!("{head}{keys}\n"),
            When::If(condition) => format!("{head}when = {{ {condition} }}\n{keys}\n"),
            When::Unless(condition) => {
                format!("{head}when = {{ {condition} }}\n{head}{keys}\n")
            }
        }
    }
}

/// A site with its files, and how they are asked for.
#[derive(Clone)]
pub struct Setup {
    pub files: Vec<&'static str>,
    pub has_scripts: bool,
    /// In this order.
    pub asked: Vec<Asked>,
    keys: Vec<&'static str>,
    /// The pattern of the route that strips the prefix.
    stripping: &'static str,
    /// Routes before it that strip it too, those in it, and those behind it.
    before: Vec<Rule>,
    within: Vec<Rule>,
    behind: Vec<Rule>,
}

impl Setup {
    /// The keys of the site, and its routes.
    pub fn keys(&self) -> String {
        let strips = format!("strip_prefix = \"{STRIPPED}\"\n");
        let mut text = String::new();
        for key in self.keys.iter().filter(|key| !key.is_empty()) {
            writeln!(text, "{key}").expect("memory");
        }
        for rule in &self.before {
            text += &rule.text("site.route", &strips);
        }
        text += &format!("[[site.route]]\n{}\n{strips}", self.stripping);
        for rule in &self.within {
            text += &rule.text("site.route.route", "");
        }
        for rule in &self.behind {
            text += &rule.text("site.route", "");
        }
        text
    }

    /// Whether the text is in the keys of the site itself.
    pub fn has(&self, text: &str) -> bool {
        self.keys.iter().any(|key| key.contains(text))
    }

    /// Whether a compressed form lies beside each file that has one, as far as the rules say.
    pub fn has_forms(&self) -> bool {
        let rules = [&self.before, &self.within, &self.behind];
        let has_none = |rule: &Rule| rule.keys == "precompressed = []";
        self.has("precompressed") && !rules.into_iter().flatten().any(has_none)
    }

    /// Whether the path is that of a file.
    pub fn has_file(&self, path: &str) -> bool {
        let name = path[self.prefix(path).len()..].strip_prefix('/');
        name.is_some_and(|name| self.files.contains(&name))
    }

    /// The names of index files, in their order.
    pub fn index(&self) -> Vec<&'static str> {
        let list = self
            .keys
            .iter()
            .find_map(|key| key.strip_prefix("index = "));
        match list {
            Some(list) => list.split('"').skip(1).step_by(2).collect(),
            None => vec!["index.html"],
        }
    }

    /// What is in front of the names of the files for this path.
    pub fn prefix(&self, path: &str) -> &'static str {
        match path.strip_prefix(STRIPPED) {
            Some("") if self.stripping == STRIPPING_ALL => STRIPPED,
            Some(rest) if rest.starts_with('/') => STRIPPED,
            _ => "",
        }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with the keys\n{}", self.files, self.keys())
    }
}

/// What a route is about, whose own paths have the prefix.
fn patterns(kind: &Kind, prefix: &'static str) -> impl Strategy<Value = String> + use<> {
    let path = move |path| format!("path = \"{prefix}/{path}\"");
    prop_oneof![
        3 => select(kind.files).prop_map(path),
        3 => select(&EVERYWHERE[..]).prop_map(|path| format!("path = \"{path}\"")),
        3 => select(&SOMEWHERE[..]).prop_map(path),
        2 => select(&EXPRESSIONS[..]).prop_map(|text| format!("regex = \"{text}\"")),
    ]
}

fn rules(kind: &Kind, patterns: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<Rule>> {
    let condition = || select(&CONDITIONS[..]);
    let when = prop_oneof![
        4 => Just(When::Always),
        1 => condition().prop_map(When::If),
        1 => condition().prop_map(When::Unless),
    ];
    let keys = prop_oneof![3 => select(kind.refusals), 1 => select(kind.others)];
    let rule = (patterns, when, keys).prop_map(|(pattern, when, keys)| Rule {
        pattern,
        when,
        keys,
    });
    vec(rule, 0..4)
}

/// The values of the keys of sites.
fn keys(kind: &Kind) -> impl Strategy<Value = Vec<&'static str>> + use<> {
    let one = |values: &&'static [&'static str]| select(*values);
    kind.keys.iter().map(one).collect::<Vec<_>>()
}

/// Sites without any rule.
pub fn plain(kind: &'static Kind) -> impl Strategy<Value = Setup> {
    let files = subsequence(kind.files, 0..=kind.files.len());
    let is_asked = |asked: &Asked| kind.has_scripts || asked.method == "GET";
    let asked = ASKED.into_iter().filter(is_asked).collect::<Vec<_>>();
    let asked = Just(asked).prop_shuffle();
    let made = (files, asked, keys(kind), select(&STRIPPING[..]));
    made.prop_map(|(files, asked, keys, stripping)| Setup {
        files,
        has_scripts: kind.has_scripts,
        asked,
        keys,
        stripping,
        before: Vec::new(),
        within: Vec::new(),
        behind: Vec::new(),
    })
}

/// Sites with rules.
pub fn ruled(kind: &'static Kind) -> impl Strategy<Value = Setup> {
    let with_prefix = select(&WITH_PREFIX[..]).prop_map(|text| format!("regex = \"{text}\""));
    let before = rules(kind, with_prefix);
    let within = rules(kind, patterns(kind, STRIPPED));
    let behind = rules(kind, patterns(kind, ""));
    let made = (plain(kind), before, within, behind);
    made.prop_map(|(setup, before, within, behind)| Setup {
        before,
        within,
        behind,
        ..setup
    })
}
