//! Files as public projects have them: none keeps the server down, and of each line is known whether it is used.

use std::fs;
use std::path::Path;

use crate::support::{Launch, Tree};

/// The name of a file, the lines that are left out, and where requests lead.
type Project = (
    &'static str,
    &'static [usize],
    &'static [(&'static str, &'static str)],
);

const PROJECTS: [Project; 9] = [
    (
        "manual",
        &[],
        &[
            ("/docs/preset-env", "/docs/presets/env"),
            ("/docs/plugins/preset-env", "/docs/presets/env"),
            ("/docs/usage/a/b", "/docs/a/b"),
            ("/docs/advanced/a.html", "/guide/a"),
            ("/repl.html", "/repl"),
            ("/repl", "/try"),
            ("/slack", "https://chat.example.org/invite"),
            ("/blog/2019", "/blog/archive/"),
        ],
    ),
    (
        "framework",
        &[],
        &[
            ("/de/index.html", "/de/"),
            ("/de/api/7/a/b", "/de/reference/7/a/b"),
            ("/v2/a", "https://v2.framework.example/a"),
            ("/v1/", "https://v1.framework.example"),
            ("/a/b.txt", "page"),
        ],
    ),
    (
        "application",
        &[2, 4],
        &[("/old-app", "/app"), ("/login", "lost"), ("/any", "app")],
    ),
    (
        "languages",
        &[1, 2, 5],
        &[
            ("/", "/en/"),
            ("/en/a", "/a"),
            ("/caf%C3%A9", "/caf%C3%A9-am-markt"),
            ("/%C3%BCber-uns", "/about"),
            ("/de/a%20b", "/de/a-b"),
        ],
    ),
    (
        "archive",
        &[2],
        &[
            ("/index.php?id=7", "/2013/second-post/?id=7"),
            ("/feed", "/index.xml"),
            ("/category/a/feed", "/tags/a/index.xml"),
            ("/2012/03/04/a", "/posts/2012-03-04-a/"),
            ("/wp-content/a.png", "https://files.example.net/wp/a.png"),
            ("/wp-admin/x", "gone"),
            ("/any", "lost page"),
        ],
    ),
    (
        "packages",
        &[],
        &[
            (
                "/install.sh",
                "https://raw.example.com/tool/main/install.sh",
            ),
            (
                "/releases/7/a.deb",
                "https://downloads.example.com/7/tool-a.deb",
            ),
            ("/r/x-y-z", "/packages/x-y/z"),
            ("/schema/a.json", "schema"),
            ("/discuss", "https://forum.example.com"),
        ],
    ),
    (
        "previews",
        &[2],
        &[("/docs", "/docs/start"), ("/docs/a", "/manual/a")],
    ),
    (
        "conference",
        &[6],
        &[
            ("/2023", "/archive/2023/"),
            ("/2024/a", "/archive/2024/a"),
            ("/tickets", "https://tickets.example/conf?from=site"),
            ("/sponsors/x/logo.svg", "logo"),
            ("/map", "/ort#anfahrt"),
        ],
    ),
    (
        "handbook",
        &[19, 20, 21, 22],
        &[
            ("/handbook/people/faq", "/company/people/faq/"),
            ("/handbook/it/a/b", "/company/it/a/b"),
            ("/jobs/a/b/apply", "https://jobs.example/apply/a/b"),
        ],
    ),
];

#[test]
fn files_of_projects() {
    let tree = Tree::new();
    let mut sites = String::new();
    for (name, ..) in PROJECTS {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/static_host/public");
        let rules = fs::read(file.join(name)).expect(name);
        tree.file(format!("{name}/_redirects"), rules);
        let root = tree.at(name).display().to_string();
        sites.push_str(&format!(
            "[[site]]\nhosts = [\"{name}.test\"]\nroot = \"{root}\"\nstatic_host_files = true\n"
        ));
    }
    for (file, text) in [
        ("framework/a/b.md", "page"),
        ("application/index.html", "app"),
        ("application/.netlify/functions/login", "hidden"),
        ("archive/404.html", "lost page"),
        ("archive/410.html", "gone"),
        ("packages/schemas/a.schema.json", "schema"),
        ("conference/img/sponsors/x.svg", "logo"),
    ] {
        tree.file(file, text);
    }
    let config = tree.file("levity.toml", &sites);
    let ran = Launch::levity(["check"]).arguments([config]).ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let server = Launch::run(&format!("{listen}{sites}")).start();
    let mut client = server.client();
    for (number, (name, left_out, requests)) in PROJECTS.into_iter().enumerate() {
        let start = format!("line {}: _redirects, line ", 4 * number + 4);
        let notes = ran
            .stderr
            .lines()
            .filter_map(|note| note.split_once(&start));
        let lines = notes.filter_map(|(_, note)| note.split_once(", is left out"));
        let lines: Vec<usize> = lines
            .map(|(line, _)| line.parse().expect("a line"))
            .collect();
        assert_eq!(lines, left_out, "{name}: {}", ran.stderr);
        for (path, expected) in requests {
            let answer = client.get_for(&format!("{name}.test"), path);
            let text = answer.text();
            let seen = match answer.status {
                301 | 302 => answer.field("location"),
                404 if !text.starts_with("lost page") => "lost",
                _ => &text,
            };
            assert_eq!(seen, *expected, "{name}: {path}");
        }
    }
}
