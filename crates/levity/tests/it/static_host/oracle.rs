//! What Cloudflare Pages answers by the same files: its own parser and matcher, from npm.
//!
//! Netlify takes a path with and without a slash at its end for the same, as it is here; Cloudflare does not. So the answer for
//! either of the two is right.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::node;
use crate::support::{Client, Launch, Tree};

/// How long Node.js may take.
const TIME_MAX: Duration = Duration::from_secs(60);

/// How many sites get rules that are made up.
const MADE_UP: u64 = 150;

/// How many paths each is asked for.
const PATHS: usize = 12;

/// The files of a site, and paths that are asked for.
struct Case {
    redirects: String,
    headers: String,
    paths: Vec<String>,
}

/// The answers to the paths of each case, and to the same paths with the slash at the end that they have not, or without it.
fn ask_cloudflare(tree: &Tree, cases: &[Case]) -> Vec<Vec<[Value; 2]>> {
    let sites = cases.iter().map(|case| {
        let both = case
            .paths
            .iter()
            .flat_map(|path| [path.clone(), other_slash(path)]);
        let requests: Vec<_> = both.collect();
        json!({ "redirects": case.redirects, "headers": case.headers, "requests": requests })
    });
    let file = tree.file("sites.json", json!(sites.collect::<Vec<_>>()).to_string());
    let file = file.to_str().expect("a path in UTF-8");
    let answers = node(TIME_MAX, "static-host.mjs", &[file]);
    let answers: Vec<Vec<Value>> = serde_json::from_str(&answers).expect("answers");
    let pairs = |answers: Vec<Value>| {
        let mut answers = answers.into_iter();
        let pair = || Some([answers.next()?, answers.next()?]);
        std::iter::from_fn(pair).collect()
    };
    answers.into_iter().map(pairs).collect()
}

fn other_slash(path: &str) -> String {
    match path.strip_suffix('/') {
        Some("") => "/".to_owned(),
        Some(page) => page.to_owned(),
        None => format!("{path}/"),
    }
}

/// Without escapes: which characters of a path have one in a target is up to each server.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend(before.bytes());
        let (digits, after) = after.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("an escape"));
        rest = after;
    }
    bytes.extend(rest.bytes());
    String::from_utf8(bytes).expect("UTF-8")
}

#[track_caller]
fn assert_said(what: &str, ours: Option<&str>, theirs: [&Value; 2]) {
    let ours = ours.map(decoded);
    let theirs = theirs.map(|said| said.as_str().map(decoded));
    let is_silent = theirs.iter().all(Option::is_none);
    let is_right = match &ours {
        None => is_silent,
        Some(_) => theirs.contains(&ours),
    };
    assert!(is_right, "{what}: {ours:?}, and Cloudflare: {theirs:?}");
}

fn assert_as_cloudflare(cases: &[Case]) {
    let tree = Tree::new();
    let mut sites = "[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned();
    for (number, case) in cases.iter().enumerate() {
        tree.file(format!("{number}/_redirects"), &case.redirects);
        tree.file(format!("{number}/_headers"), &case.headers);
        tree.file(format!("{number}/fallback"), "x");
        let root = tree.at(number.to_string()).display().to_string();
        sites.push_str(&format!(
            "[[site]]\nhosts = [\"s{number}.test\"]\nroot = \"{root}\"\nstatic_host_files = true\n\
             try = [\"file\", \"/fallback\"]\n"
        ));
    }
    let answers = ask_cloudflare(&tree, cases);
    let server = Launch::run(&sites).start();
    let mut client: Client = server.client();
    for (number, (case, answers)) in cases.iter().zip(&answers).enumerate() {
        assert_eq!(answers.len(), case.paths.len());
        for (path, [same, other]) in case.paths.iter().zip(answers) {
            let ours = client.get_for(&format!("s{number}.test"), path);
            let files = format!("{}\n{}", case.redirects, case.headers);
            let what = format!("GET {path} by\n{files}");
            assert_said(
                &what,
                ours.header("location"),
                [&same["location"], &other["location"]],
            );
            // Headers of redirects are the business of each server.
            if ours.status == 200 {
                assert_said(
                    &what,
                    ours.header("x-found"),
                    [&same["found"], &other["found"]],
                );
            }
        }
    }
}

#[test]
fn rules_of_a_table() {
    let cases = [
        (
            "/a /b 301\n/a/* /c/:splat 301\n/* /d/:splat 302\n",
            "",
            "/a /a/ /a/x /ab /x/y /",
        ),
        (
            "/docs/preset-* /docs/p-:splat 301\n/docs/* /manual/:splat 301\n",
            "",
            "/docs/preset-x /docs/preset- /docs/preset /docs/x/preset-y",
        ),
        (
            "/*.txt /:splat.md 301\n",
            "",
            "/a.txt /a/b.txt /.txt /atxt /a.txt.txt /a.md",
        ),
        (
            "/:a/index.html /:a/ 301\n",
            "",
            "/x/index.html /index.html /x/y/index.html",
        ),
        (
            "/a%20b /c 301\n/caf%C3%A9 /th\u{e9} 301\n/th\u{e8} /x 301\n",
            "",
            "/a%20b /caf%C3%A9 /th%C3%A8 /a+b",
        ),
        ("about /b 301\nx/:y /:y/ 301\n", "", "/about /x/z"),
        ("/:a-:b/:c /:c/:b/:a 301\n", "", "/x-y/z /x-y-z/w /x/z /-/z"),
        (
            "/a/*/b/:c /:c/:splat 301\n",
            "",
            "/a/x/b/y /a/x/y/b/z /a/b/y /a/x/b/b/y",
        ),
        (
            "/a/*/* /x 301\n/:a/:a /y 301\n/z /z2 301\n",
            "",
            "/a/x/y /q/q /z",
        ),
        (
            "/10:30 /t 301\n/a:b /t/:b 301\n/x:7 /t 301\n",
            "",
            "/10:30 /ax /a /x:7",
        ),
        (
            "/a /b 429\n/c /d 404\n/e\n/f g 301\n/h //i 303\n/j /k 308\n",
            "",
            "/a /e /f /j",
        ),
        (
            "/away https://b.example/ 301\n/with https://b.example/x?y=1#z 307\n",
            "",
            "/away /with",
        ),
        ("\u{feff}/a /b 301\n/c /d 301\n", "", "/c"),
        (
            "/a(b) /x 301\n/a.b /y 301\n/a+b /z 301\n/[c] /w 301\n",
            "",
            "/a(b) /a.b /axb /a+b /aab",
        ),
        ("", "/a/*\n  X-Found: <:splat>\n", "/a/x /a/x/y /a /b"),
        ("", "/:a/b\n  X-Found: :a, :b\n", "/x/b /x/c /x%20y/b"),
        (
            "",
            "/a/*.css\n  X-Found: :splat\n  X-Found: 2\n",
            "/a/x.css /a/x/y.css /a/x.js",
        ),
        (
            "",
            "/caf%C3%A9/*\n  X-Found: :splat\nX-Other: 1\n",
            "/caf%C3%A9/x%2Cy /cafe/x",
        ),
        ("", "no path\n/a\n  no header\n  X-Found: 1\n", "/a /b"),
    ];
    let cases = cases.map(|(redirects, headers, paths)| Case {
        redirects: redirects.to_owned(),
        headers: headers.to_owned(),
        paths: paths.split(' ').map(str::to_owned).collect(),
    });
    assert_as_cloudflare(&cases);
}

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

/// The path of a rule, its target, and for each segment of the path what a request may have there.
struct MadeUp {
    from: String,
    to: String,
    segments: Vec<&'static [&'static str]>,
}

/// A rule of up to four segments with at most one star.
fn made_up(row: &mut Row) -> MadeUp {
    let (mut from, mut to, mut segments) = (String::new(), "/to".to_owned(), Vec::new());
    let star = row.below(6);
    for segment in 0..=row.below(4) {
        let (source, values): (String, &[&str]) = match (segment == star, row.below(4)) {
            (true, 0) => ("*".to_owned(), &["", "x", "a/b", "a-b", "b"]),
            (true, 1) => ("a*".to_owned(), &["a", "ab", "a/b", "b"]),
            (true, _) => ("*.txt".to_owned(), &["a.txt", "b/a.txt", ".txt", "a.html"]),
            (_, 0) => (format!(":n{segment}"), &["x", "a.b", "%C3%A9", "x/y"]),
            (_, 1) => (
                format!("a-:n{segment}.b"),
                &["a-x.b", "a-.b", "a-a-b.b", "a-b.b.b"],
            ),
            (_, 2) => ("a.b".to_owned(), &["a.b", "a.b", "axb"]),
            _ => (
                "c%20d\u{e9}".to_owned(),
                &["c%20d%C3%A9", "c%20d%C3%A9", "cd"],
            ),
        };
        if source.contains('*') {
            to.push_str("/:splat");
        } else if source.contains(':') {
            to.push_str(&format!("/:n{segment}"));
        }
        from.push_str(&format!("/{source}"));
        segments.push(values);
    }
    if row.below(4) == 0 {
        from.push('/');
    }
    MadeUp { from, to, segments }
}

/// Of one rule for each site: where a slash at the end makes a difference, it would be which one comes first.
#[test]
fn rules_that_are_made_up() {
    let mut row = Row(7);
    let case = |number: u64| {
        let MadeUp { from, to, segments } = made_up(&mut row);
        let path = |_| {
            let values = segments
                .iter()
                .map(|values| format!("/{}", row.one(values)));
            let path: String = values.collect();
            // A path has no two slashes in a row here.
            path.replace("//", "/")
        };
        Case {
            paths: (0..PATHS).map(path).collect(),
            redirects: if number.is_multiple_of(2) {
                format!("{from} {to} 301\n")
            } else {
                String::new()
            },
            headers: if !number.is_multiple_of(2) {
                format!("{from}\n  X-Found: {to}\n")
            } else {
                String::new()
            },
        }
    };
    let cases: Vec<_> = (0..MADE_UP).map(case).collect();
    assert_as_cloudflare(&cases);
}
