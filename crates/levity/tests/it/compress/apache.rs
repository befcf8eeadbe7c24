//! The same requests to Apache with `mod_deflate`: what a client may conclude from both responses.

use std::collections::BTreeSet;

use super::{KEYS, text};
use crate::support::{Answer, App, Client, Launch, Tree, decoded_so_far};

/// The method, the request (`*` for each), the fact, and the reason.
type Difference = (&'static str, &'static str, &'static str, &'static str);

const HEAD: &str = "only GET has ranges (RFC 9110, 14.2)";
const IDENTITY: &str = "ranges are those of the content without a coding, whatever its length; Apache's are those of a \
                        coding, if that is complete when the range is looked at";
const NOT_SAME: &str =
    "a coding may have other bytes next time, and a date is that of every coding";
const VARY: &str = "a 304 has the Vary of the 200 (RFC 9110, 15.4.5)";
const OWN_TAG: &str =
    "a client is told that its content in a coding is current; Apache does not know its own tag";
const ERROR: &str =
    "the page of an error is not the content that the tag and the date are those of";

/// What differs on purpose. A difference of the status includes all others.
const DIFFERENCES: &[Difference] = &[
    (
        "*",
        "*",
        "ranges",
        "a coding has no ranges, nor has the page of an error",
    ),
    (
        "HEAD",
        "*",
        "length",
        "the length of a coding is not known before it is made",
    ),
    ("HEAD", "range", "status", HEAD),
    ("HEAD", "range and gzip", "status", HEAD),
    ("HEAD", "range if same", "status", HEAD),
    ("HEAD", "range if same coding", "status", HEAD),
    ("HEAD", "range if same date", "status", HEAD),
    ("HEAD", "range if same date and gzip", "status", HEAD),
    ("HEAD", "range beyond", "status", HEAD),
    ("GET", "range and gzip", "status", IDENTITY),
    ("GET", "range and gzip", "coding", IDENTITY),
    ("GET", "range and gzip", "range", IDENTITY),
    ("GET", "range if same", "status", IDENTITY),
    ("GET", "range beyond", "status", IDENTITY),
    (
        "GET",
        "range beyond",
        "range",
        "a 416 tells the length (RFC 9110, 14.4)",
    ),
    (
        "GET",
        "range beyond",
        "length",
        "the page of Apache is chunked",
    ),
    (
        "GET",
        "range beyond",
        "vary",
        "the page of an error has several forms",
    ),
    ("GET", "range if same coding", "status", NOT_SAME),
    ("GET", "range if same date and gzip", "status", NOT_SAME),
    ("*", "known", "vary", VARY),
    ("*", "known identity and gzip", "vary", VARY),
    ("*", "known both", "vary", VARY),
    ("*", "not modified", "vary", VARY),
    (
        "*",
        "not modified",
        "etag",
        "all codings share the date: the client may hold another one than that of the tag",
    ),
    (
        "*",
        "known coding",
        "vary",
        "a 304 of another type too: that is not known any more",
    ),
    (
        "*",
        "known coding without gzip",
        "vary",
        "a 304 of another type too: that is not known any more",
    ),
    ("*", "known coding", "status", OWN_TAG),
    ("*", "matching coding", "status", OWN_TAG),
    ("*", "not matching", "etag", ERROR),
    (
        "*",
        "not matching",
        "vary",
        "the page of an error has several forms",
    ),
    ("*", "not matching", "modified", ERROR),
];

/// What a response tells about the content: facts with a name.
fn facts(answer: &Answer, content: &[u8]) -> Vec<(&'static str, String)> {
    let header = |name: &str| answer.header(name).unwrap_or("none").to_owned();
    let has = |name: &str| answer.header(name).is_some().to_string();
    let body = match answer.header("content-encoding") {
        Some(coding) => decoded_so_far(coding, &answer.body),
        None => answer.body.clone(),
    };
    let expected = match answer.status {
        206 => &content[10..20],
        _ => content,
    };
    let is_right = body.is_empty() || answer.status >= 400 || body == expected;
    vec![
        ("status", answer.status.to_string()),
        ("coding", header("content-encoding")),
        ("content", is_right.to_string()),
        ("vary", header("vary")),
        ("etag", has("etag")),
        ("modified", has("last-modified")),
        ("ranges", header("accept-ranges")),
        ("range", header("content-range")),
        ("length", has("content-length")),
    ]
}

/// The names of the facts that differ; only `status` if that does.
fn differing(ours: &Answer, theirs: &Answer, content: &[u8]) -> Vec<&'static str> {
    let [ours, theirs] = [ours, theirs].map(|answer| facts(answer, content));
    let pairs = ours.into_iter().zip(theirs);
    let different = pairs.filter(|(a, b)| a.1 != b.1).map(|(a, _)| a.0);
    let mut names: Vec<_> = different.collect();
    if names.first() == Some(&"status") {
        names.truncate(1);
    }
    names
}

/// One server, and what it says of the file at `path`.
struct Side {
    client: Client,
    path: String,
    identity: String,
    coded: String,
    modified: String,
}

impl Side {
    #[track_caller]
    fn new(mut client: Client, path: String) -> Self {
        let whole = client.get(&path);
        let coded = client.get_with(&path, &[("Accept-Encoding", "gzip")]);
        let [identity, coded] = [&whole, &coded].map(|answer| answer.field("etag").to_owned());
        let modified = whole.field("last-modified").to_owned();
        Self {
            client,
            path,
            identity,
            coded,
            modified,
        }
    }

    #[track_caller]
    fn ask(&mut self, method: &str, headers: &[(&str, &str)]) -> Answer {
        let values: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, self.filled_in(value)))
            .collect();
        let headers: Vec<_> = values
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        self.client.request(method, &self.path, &headers)
    }

    fn filled_in(&self, value: &str) -> String {
        value
            .replace("{identity}", &self.identity)
            .replace("{coded}", &self.coded)
            .replace("{modified}", &self.modified)
    }
}

/// The header lines of the requests, by name.
const REQUESTS: &[(&str, &[(&str, &str)])] = &[
    ("plain", &[]),
    ("gzip", &[("Accept-Encoding", "gzip")]),
    ("none wanted", &[("Accept-Encoding", "gzip;q=0")]),
    ("range", &[("Range", "bytes=10-19")]),
    (
        "range and gzip",
        &[("Range", "bytes=10-19"), ("Accept-Encoding", "gzip")],
    ),
    (
        "range if same",
        &[
            ("Range", "bytes=10-19"),
            ("If-Range", "{identity}"),
            ("Accept-Encoding", "gzip"),
        ],
    ),
    (
        "range if same coding",
        &[
            ("Range", "bytes=10-19"),
            ("If-Range", "{coded}"),
            ("Accept-Encoding", "gzip"),
        ],
    ),
    (
        "range if same date",
        &[("Range", "bytes=10-19"), ("If-Range", "{modified}")],
    ),
    (
        "range if same date and gzip",
        &[
            ("Range", "bytes=10-19"),
            ("If-Range", "{modified}"),
            ("Accept-Encoding", "gzip"),
        ],
    ),
    (
        "range beyond",
        &[("Range", "bytes=9999999-"), ("Accept-Encoding", "gzip")],
    ),
    ("known", &[("If-None-Match", "{identity}")]),
    (
        "known coding",
        &[("If-None-Match", "{coded}"), ("Accept-Encoding", "gzip")],
    ),
    (
        "known identity and gzip",
        &[("If-None-Match", "{identity}"), ("Accept-Encoding", "gzip")],
    ),
    ("known coding without gzip", &[("If-None-Match", "{coded}")]),
    (
        "known both",
        &[
            ("If-None-Match", "{identity}, {coded}"),
            ("Accept-Encoding", "gzip"),
        ],
    ),
    (
        "not known",
        &[("If-None-Match", "\"other\""), ("Accept-Encoding", "gzip")],
    ),
    (
        "not modified",
        &[
            ("If-Modified-Since", "{modified}"),
            ("Accept-Encoding", "gzip"),
        ],
    ),
    (
        "modified",
        &[
            ("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("Accept-Encoding", "gzip"),
        ],
    ),
    ("matching", &[("If-Match", "{identity}")]),
    (
        "matching coding",
        &[("If-Match", "{coded}"), ("Accept-Encoding", "gzip")],
    ),
    (
        "not matching",
        &[("If-Match", "\"other\""), ("Accept-Encoding", "gzip")],
    ),
];

#[test]
fn a_client_concludes_the_same() {
    let tree = Tree::new();
    let files = [("a.html", 5_000), ("large.html", 300_000), ("a.png", 5_000)];
    for (name, size) in files {
        tree.file(name, text(size, size));
    }
    let keys = format!("{KEYS}\ncompress_codings = [\"gzip\"]");
    let server = Launch::site(tree.path(), "", &keys).start();
    let apache = App::apache(tree.path());
    let (mut unknown, mut met) = (Vec::new(), BTreeSet::new());
    for (name, size) in files {
        let content = text(size, size);
        let path = format!("/{name}");
        let mut own = Side::new(server.client(), path.clone());
        let mut other = Side::new(apache.client(), path);
        for (request, headers) in REQUESTS {
            for method in ["GET", "HEAD"] {
                let (ours, theirs) = (own.ask(method, headers), other.ask(method, headers));
                assert!(facts(&ours, &content).contains(&("content", "true".to_owned())));
                for fact in differing(&ours, &theirs, &content) {
                    let is_it = |known: &Difference| {
                        let is = |own: &str, name: &str| own == "*" || own == name;
                        is(known.0, method) && is(known.1, request) && known.2 == fact
                    };
                    match DIFFERENCES.iter().position(is_it) {
                        Some(number) => {
                            met.insert(number);
                        }
                        None => unknown.push(format!(
                            "{method} {name}, {request}, {fact}: {ours:?}\n{theirs:?}\n"
                        )),
                    }
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    for (number, difference) in DIFFERENCES.iter().enumerate() {
        assert!(
            met.contains(&number),
            "they do not differ any more: {difference:?}"
        );
    }
}
