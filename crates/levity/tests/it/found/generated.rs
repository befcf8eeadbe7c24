//! A property of all rules: no path leads to a file that a request for its own name would not get.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::support::{Answer, Client, Server, Tree};

use super::{Faults, Headers, content_of, site, tree_of};

/// How many servers get rules that are made up.
const MADE_UP: usize = 40;

/// Requests for names that do not exist are not delayed.
const LIMITS: &str = "[limits]\nabsent_trips = 1000000\n[log]\naccess = \"off\"\n";

/// In front of the names of files: what a route strips from the path, and nothing.
const PREFIXES: [&str; 2] = ["", STRIPPED];

const STRIPPED: &str = "/app";

/// The route that strips it, also from the path without a slash, or not.
const STRIPPING: [&str; 2] = ["path = \"/app/*\"", STRIPPING_ALL];

const STRIPPING_ALL: &str = "regex = \"^/app(/|$)\"";

const KEY: (&str, &str) = ("X-Key", "1");

const HEADERS: [Headers; 3] = [&[], &[KEY], &[("Accept-Encoding", "gzip")]];

const FOLDERS: [&str; 3] = ["", "d/", "d/e/"];

const NAMES: [&str; 9] = [
    "index.html",
    "home.html",
    "page.html",
    "page",
    "a.html",
    "a.txt",
    "data.json",
    "README.md",
    "README",
];

/// A row of numbers that look random.
struct Row(u64);

impl Row {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn one<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }
}

/// The names of some files, of which some are compressed forms of others or of nothing.
fn files(row: &mut Row) -> Vec<String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        for name in NAMES {
            for (suffix, chance) in [("", 2), (".gz", 4)] {
                if row.below(chance) == 0 {
                    files.push(format!("{folder}{name}{suffix}"));
                }
            }
        }
    }
    files
}

/// What a route is about.
fn pattern(row: &mut Row, prefix: &str, files: &[String]) -> String {
    let path = match row.below(3) {
        0 if !files.is_empty() => format!("{prefix}/{}", files[row.below(files.len())]),
        1 => row
            .one(&["*.html", "*.txt", "*.md", "*.gz", "*.json", "*.{html,md}"])
            .to_owned(),
        _ => {
            let glob = row.one(&[
                "d/*",
                "d/e/*",
                "d/*.html",
                "d/**.html",
                "*.gz",
                "**.md",
                "d/",
            ]);
            format!("{prefix}/{glob}")
        }
    };
    let regex = row.one(&["index", "/d/.*[.]txt$", "[.]json$", "^/(app/)?d/[^/]*$"]);
    match row.below(5) {
        0 => format!("regex = \"{regex}\"\n"),
        _ => format!("path = \"{path}\"\n"),
    }
}

/// The tables of a rule, which are `[[{table}]]`.
fn rule(row: &mut Row, table: &str, pattern: &str) -> String {
    let head = format!("[[{table}]]\n{pattern}");
    let refusal = row.one(&[
        "deny = [\"all\"]",
        "respond = { status = 403 }",
        "internal = true",
    ]);
    let other = row.one(&[
        "headers.set = { X-Own = \"1\" }",
        "index = [\"home.html\", \"page.html\"]",
        "listing = false",
        "precompressed = []",
        "redirect = { to = \"https://a.example/\" }",
        "try = [\"file\", \"file.html\"]",
    ]);
    let when = "when = { header = { X-Key = \"1\" } }";
    match row.below(6) {
        0 => format!("{head}{other}\n"),
        1 => format!("{head}{when}\n{refusal}\n"),
        2 => format!("{head}{when}\n{head}{refusal}\n"),
        _ => format!("{head}{refusal}\n"),
    }
}

fn rules(row: &mut Row, table: &str, prefix: &str, files: &[String]) -> String {
    let count = 1 + row.below(4);
    let rules = (0..count).map(|_| {
        let pattern = pattern(row, prefix, files);
        rule(row, table, &pattern)
    });
    rules.collect()
}

/// The keys of a site, and its routes: those of the prefix first, which has the same folder.
fn keys(row: &mut Row, files: &[String]) -> String {
    let mut keys = String::new();
    let choices: [&[&str]; 5] = [
        &["", "index = [\"home.html\", \"index.html\"]"],
        &[
            "",
            "try = [\"file\"]",
            "try = [\"file\", \"file.html\"]",
            "try = [\"file\", \"file.html\", \"directory\", \"/index.html\"]",
            "try = [\"file\", \"directory\", \"/d/home.html\"]",
            "try = [\"file\", \"file.html\", \"directory\", 404]",
        ],
        &["", "precompressed = [\"gzip\"]"],
        &["", "listing = true", "listing = true"],
        &["", "listing_archive = [\"tar\", \"zip\"]"],
    ];
    for choice in choices {
        writeln!(keys, "{}", row.one(choice)).expect("memory");
    }
    let stripping = row.one(&STRIPPING);
    let route = format!("[[site.route]]\n{stripping}\nstrip_prefix = \"{STRIPPED}\"");
    writeln!(keys, "{route}").expect("memory");
    keys += &rules(row, "site.route.route", STRIPPED, files);
    keys + &rules(row, "site.route", "", files)
}

/// Every path that may lead to one of the files.
fn paths(prefix: &str, files: &[String]) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for folder in FOLDERS {
        let folder = format!("{prefix}/{folder}");
        paths.insert(format!("{folder}none"));
        paths.insert(folder.trim_end_matches('/').to_owned());
        for query in ["", "?archive=tar", "?archive=zip"] {
            paths.insert(format!("{folder}{query}"));
        }
    }
    for file in files {
        let path = format!("{prefix}/{file}");
        paths.extend(["/", "/x", ".gz", ".html"].map(|more| format!("{path}{more}")));
        let mut stem = path.as_str();
        while let Some((shorter, _)) = stem.rsplit_once('.') {
            paths.insert(shorter.to_owned());
            stem = shorter;
        }
        paths.insert(path);
    }
    paths.retain(|path| path.starts_with('/'));
    paths
}

/// A server with rules that are made up.
struct Case {
    files: Vec<String>,
    keys: String,
    client: Client,
    faults: Faults,
    /// How many files were sent for other paths.
    found: usize,
    /// How many requests were refused.
    refused: usize,
}

impl Case {
    fn ask_for_all(&mut self) {
        for prefix in PREFIXES {
            for path in paths(prefix, &self.files) {
                for headers in HEADERS {
                    self.ask(&path, headers);
                }
            }
        }
    }

    /// What is in front of the names of the files for this path.
    fn prefix(&self, path: &str) -> &'static str {
        match path.strip_prefix(STRIPPED) {
            Some("") if self.keys.contains(STRIPPING_ALL) => STRIPPED,
            Some(rest) if rest.starts_with('/') => STRIPPED,
            _ => "",
        }
    }

    fn ask(&mut self, path: &str, headers: Headers) {
        let answer = self.client.get_with(path, headers);
        self.refused += usize::from(answer.status == 403);
        if answer.status != 200 {
            return;
        }
        let text = answer.text();
        let name = path[self.prefix(path).len()..].trim_start_matches('/');
        let is_file = self.files.iter().any(|file| file == name);
        if let Some(original) = path.strip_suffix(".gz").filter(|_| is_file) {
            self.compare_original(path, original, headers);
        }
        for file in self.files.clone() {
            if text.contains(&content_of(&file)) {
                self.compare(path, headers, own_name(&answer, &file));
            }
        }
    }

    /// Expects that a request for the original of a compressed form is not refused.
    fn compare_original(&mut self, path: &str, original: &str, headers: Headers) {
        let everywhere = "precompressed = [\"gzip\"]";
        let nowhere = "precompressed = []";
        if !self.keys.contains(everywhere) || self.keys.contains(nowhere) {
            return;
        }
        // What does not exist is answered by a page of `try`, which may be refused.
        let has_page = self.keys.contains("\"directory\", \"/");
        let name = original[self.prefix(original).len()..].trim_start_matches('/');
        if has_page && !self.files.iter().any(|file| file == name) {
            return;
        }
        let status = self.client.get_with(original, headers).status;
        let keys = &self.keys;
        self.faults.note(status != 403, || {
            format!("{path} with {headers:?}, but {original} is {status} by\n{keys}")
        });
    }

    /// Expects that a request for the file itself is answered too.
    fn compare(&mut self, path: &str, headers: Headers, file: &str) {
        let direct = format!("{}/{file}", self.prefix(path));
        if direct == path {
            return;
        }
        self.found += 1;
        let answer = self.client.get_with(&direct, headers);
        let text = answer.text();
        let forms = [file.to_owned(), format!("{file}.gz")];
        let has_content = forms.iter().any(|form| text.contains(&content_of(form)));
        let is_right = answer.status == 200 && has_content;
        let keys = &self.keys;
        self.faults.note(is_right, || {
            let status = answer.status;
            format!("{path} with {headers:?} is {direct}, which is {status} {text:?} by\n{keys}")
        });
    }
}

/// A compressed form has been sent for its original.
fn own_name<'f>(answer: &Answer, file: &'f str) -> &'f str {
    match answer.header("content-encoding") {
        Some(_) => file.strip_suffix(".gz").unwrap_or(file),
        None => file,
    }
}

/// The server for a row of numbers; `None` where one of its routes hides another.
#[track_caller]
fn made_up(number: u64) -> Option<(Tree, Server, Case)> {
    let mut row = Row(number * 7919 + 1);
    let files = files(&mut row);
    let tree = tree_of(&files);
    let keys = keys(&mut row, &files);
    let server = match site(&tree, LIMITS, &keys).try_start() {
        Ok(server) => server,
        Err(said) if said.contains("this route can never match") => return None,
        Err(said) => panic!("{said}\n{keys}"),
    };
    let case = Case {
        files,
        keys,
        client: server.client(),
        faults: Faults::default(),
        found: 0,
        refused: 0,
    };
    Some((tree, server, case))
}

#[test]
fn no_path_leads_past_a_rule() {
    let (mut found, mut refused, mut faults) = (0, 0, Vec::new());
    for (_tree, _server, mut case) in (0..).filter_map(made_up).take(MADE_UP) {
        case.ask_for_all();
        found += case.found;
        refused += case.refused;
        faults.extend(case.faults.0);
    }
    Faults(faults).assert_none();
    assert!(found > 2000 && refused > 2000, "{found}, {refused}");
}
