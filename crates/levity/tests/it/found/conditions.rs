//! Rules that hold for some requests: what one request has found out does not decide for the next.

use serde_json::Value;

use crate::support::{Launch, Server, Tree};

use super::{
    ANN, Faults, Headers, INSIDE, OUTSIDE, PROXIES, Reply, USERS, Version, answer, assert_reads,
    content_of, denied, open_to_all, route, runner, site, started, tree_of, with_scripts,
};

/// Enough names for a list that is made piece by piece.
const MANY: usize = 3000;

/// A request as a condition sees it.
struct Asked {
    method: &'static str,
    query: &'static str,
    headers: Headers<'static>,
}

const PLAIN: Asked = Asked {
    method: "GET",
    query: "",
    headers: &[],
};

/// A rule that refuses some requests with a status, one that is let in and one that is not.
struct Condition {
    rule: &'static str,
    status: u16,
    inside: Asked,
    outside: Asked,
}

/// By which a request for one path belongs to one route or to another.
const CONDITIONS: [Condition; 3] = [
    Condition {
        rule: "when = { client = [\"192.0.2.0/24\"] }\ndeny = [\"all\"]",
        status: 403,
        inside: Asked {
            headers: &[INSIDE],
            ..PLAIN
        },
        outside: Asked {
            headers: &[OUTSIDE],
            ..PLAIN
        },
    },
    Condition {
        rule: "when = { header = { X-Kind = \"out*\" } }\ndeny = [\"all\"]",
        status: 403,
        inside: Asked {
            headers: &[("X-Kind", "in")],
            ..PLAIN
        },
        outside: Asked {
            headers: &[("X-Kind", "outside")],
            ..PLAIN
        },
    },
    Condition {
        rule: "when = { query = { kind = \"out\" } }\ndeny = [\"all\"]",
        status: 403,
        inside: Asked {
            query: "?kind=in",
            ..PLAIN
        },
        outside: Asked {
            query: "?a=b&kind=out",
            ..PLAIN
        },
    },
];

/// The route is the same for all.
const PASSWORD: Condition = Condition {
    rule: "basic_auth = { users = \"{root}/.users\" }",
    status: 401,
    inside: Asked {
        headers: &[ANN],
        ..PLAIN
    },
    outside: PLAIN,
};

/// Only scripts take other methods.
const METHOD: Condition = Condition {
    rule: "when = { method = [\"POST\"] }\ndeny = [\"all\"]",
    status: 403,
    inside: PLAIN,
    outside: Asked {
        method: "POST",
        ..PLAIN
    },
};

/// Routes that refuse some requests for each of these.
fn refused_when(targets: &[&str], condition: &Condition) -> String {
    let one = |target: &&str| route(&format!("path = \"{target}\"\n{}", condition.rule));
    targets.iter().map(one).collect()
}

/// Asks for each path by both clients in turn, in this order and twice: from the disk, and from the cache.
#[track_caller]
fn assert_each_for_itself(
    server: &Server,
    condition: &Condition,
    inside_first: bool,
    paths: &[(&str, &str)],
) {
    let mut faults = Faults::default();
    let mut turns = [true, false, true, false];
    if !inside_first {
        turns.reverse();
    }
    for (path, content) in paths {
        for is_inside in turns {
            let (asked, status) = match is_inside {
                true => (&condition.inside, 200),
                false => (&condition.outside, condition.status),
            };
            let target = format!("{path}{}", asked.query);
            let reply = answer(server, Version::Http1, asked.method, &target, asked.headers);
            let is_right = reply.status == status && reply.body.contains(content) == is_inside;
            faults.note(is_right, || {
                let rule = condition.rule;
                format!("{rule}: {target}: not {status}, but {reply:?}")
            });
        }
    }
    faults.assert_none();
}

#[test]
fn files() {
    let targets = [
        "/dir/index.html",
        "/page.html",
        "/fallback.html",
        "/data.json",
    ];
    let paths = [
        ("/dir/", "[[dir~index.html]]"),
        ("/page", "[[page.html]]"),
        ("/none/of/these", "[[fallback.html]]"),
        ("/data.json.gz", "[[data.json.gz]]"),
    ];
    for condition in CONDITIONS.iter().chain([&PASSWORD]) {
        for inside_first in [true, false] {
            let mut tree = tree_of(&targets.map(|target| &target[1..]));
            tree.file(".users", USERS);
            add(&mut tree, "data.json.gz");
            let keys = format!(
                "try = [\"file\", \"file.html\", \"directory\", \"/fallback.html\"]\n\
                 precompressed = [\"gzip\"]\n{}",
                refused_when(&targets, condition)
            );
            let server = started(&tree, &keys);
            assert_each_for_itself(&server, condition, inside_first, &paths);
        }
    }
}

fn add(tree: &mut Tree, name: &str) {
    tree.file(name, content_of(name));
}

#[test]
fn scripts() {
    let targets = ["/run.php", "/cgi/index.php", "/index.php"];
    let paths = [
        ("/run.php/x", "ran /run.php with /x for /run.php/x"),
        ("/cgi/", "ran /cgi/index.php with  for /cgi/"),
        ("/none", "ran /index.php with  for /none"),
    ];
    for condition in CONDITIONS.iter().chain([&PASSWORD, &METHOD]) {
        for inside_first in [true, false] {
            let (backend, tree) = (runner(), tree_of(&targets.map(|target| &target[1..])));
            tree.file(".users", USERS);
            let rules = refused_when(&targets, condition);
            let keys = format!("script_index = \"index.php\"\n{rules}");
            let server = with_scripts(&backend, &tree, &keys);
            assert_each_for_itself(&server, condition, inside_first, &paths);
        }
    }
}

#[test]
fn one_folder_under_two_prefixes() {
    for first in ["/a/", "/b/"] {
        let tree = tree_of(&["index.html", "page.html"]);
        let prefixes = ["a", "b"].map(|name| {
            route(&format!(
                "path = \"/{name}/*\"\nstrip_prefix = \"/{name}\"\ntry = [\"file\", \"file.html\"]"
            ))
        });
        let guards = [denied("/b/index.html"), denied("/b/page.html")];
        let server = started(&tree, &format!("{}{}", guards.concat(), prefixes.concat()));
        answer(&server, Version::Http1, "GET", first, &[]);
        let expected = [
            ("/b/", 403, ""),
            ("/a/", 200, "[[index.html]]"),
            ("/b/page", 403, ""),
            ("/a/page", 200, "[[page.html]]"),
            ("/b/none", 404, ""),
        ];
        assert_reads(&server, &[], &expected);
    }
}

#[test]
fn two_sites_with_one_folder() {
    let tree = tree_of(&["dir/index.html", "dir/x.txt", "list/README.md"]);
    let root = tree.path().display();
    let guards = [denied("/dir/index.html"), denied("*.md")].concat();
    let table = |host, rules: &str| {
        let keys = format!("hosts = [\"{host}\"]\nroot = \"{root}\"\nlisting = true");
        format!("[[site]]\n{keys}\n{rules}")
    };
    let (open, closed) = (table("open.test", ""), table("closed.test", &guards));
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    for sites in [[&open, &closed], [&closed, &open]] {
        let launch = Launch::run(&format!("{listen}{}{}", sites[0], sites[1]));
        let server = launch.workers(1).start();
        let mut client = server.client();
        for _ in 0..2 {
            let index = client.get_for("open.test", "/dir/");
            assert_eq!((index.status, &*index.text()), (200, "[[dir~index.html]]"));
            assert_eq!(client.get_for("closed.test", "/dir/").status, 403);
            let readme = content_of("list/README.md");
            let list = client.get_for("open.test", "/list/").text();
            assert!(list.contains(&readme), "{list}");
            let list = client.get_for("closed.test", "/list/").text();
            assert!(!list.contains("README.md"), "{list}");
        }
    }
}

/// The names in a listing of one of the forms.
#[track_caller]
fn names(reply: &Reply, form: &str) -> Vec<String> {
    let name = |entry: &Value| entry["name"].as_str().expect("a name").to_owned();
    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let mut names: Vec<_> = match form {
        "application/json" => {
            let all = json(&reply.body);
            all["entries"]
                .as_array()
                .expect("entries")
                .iter()
                .map(name)
                .collect()
        }
        "application/x-ndjson" => reply.body.lines().map(|line| name(&json(line))).collect(),
        "text/html" => {
            let (_, table) = reply.body.split_once("<tbody>").expect("a table");
            let after = table.split("href=\"").skip(1);
            let links = after.filter_map(|rest| rest.split('"').next());
            let links = links.filter(|link| *link != "../");
            links
                .map(|link| link.trim_end_matches('/').to_owned())
                .collect()
        }
        _ => {
            let lines = reply.body.lines().filter(|line| !line.starts_with('#'));
            let names = lines.filter_map(|line| line.split('\t').nth(2));
            names
                .map(|name| name.trim_end_matches('/').to_owned())
                .collect()
        }
    };
    names.sort();
    names
}

/// The listing of `path` as the client with these headers gets it, in a form.
#[track_caller]
fn listed(server: &Server, path: &str, asked: &Asked, form: &str) -> Vec<String> {
    let headers = [asked.headers, &[("Accept", form)]].concat();
    let target = format!("{path}{}", asked.query);
    let reply = answer(server, Version::Http1, "GET", &target, &headers);
    assert_eq!(reply.status, 200, "{target} as {form}");
    names(&reply, form)
}

#[test]
fn a_list_that_clients_share_has_what_each_may_see() {
    for condition in &CONDITIONS {
        for count in [1, MANY] {
            let mut tree = tree_of(&["d/closed/x", "d/guarded.txt"]);
            let mut open: Vec<_> = (0..count).map(|number| format!("n{number}")).collect();
            open.iter()
                .for_each(|name| add(&mut tree, &format!("d/{name}")));
            let rules = refused_when(&["/d/guarded.txt", "/d/closed/*"], condition);
            let server = started(&tree, &format!("listing = true\n{rules}"));
            open.sort();
            let guarded = ["closed", "guarded.txt"].map(str::to_owned);
            let mut all = [&open[..], &guarded].concat();
            all.sort();
            for form in [
                "application/x-ndjson",
                "application/json",
                "text/html",
                "text/plain",
            ] {
                for _ in 0..2 {
                    let outside = listed(&server, "/d/", &condition.outside, form);
                    assert!(outside == open, "{form}: {} names", outside.len());
                    let inside = listed(&server, "/d/", &condition.inside, form);
                    assert!(inside == all, "{form}: {} names", inside.len());
                }
            }
        }
    }
}

/// What is refused for what it is, and not for who asks.
#[test]
fn entries_of_other_locations() {
    let names = ["denied", "hidden", "internal", "no", "login", "gone"];
    let kept = ["app", "limited", "moved", "plain", "taking"];
    let all = [&names[..], &kept].concat();
    let tree = tree_of(
        &all.iter()
            .map(|name| format!("d/{name}"))
            .collect::<Vec<_>>(),
    );
    tree.file(".users", USERS);
    open_to_all(&tree, "");
    let rules = [
        ("denied", "deny = [\"all\"]"),
        ("hidden", "hide = [\"hidden\"]"),
        ("internal", "internal = true"),
        ("no", "respond = { status = 403 }"),
        ("gone", "respond = { status = 410 }"),
        ("login", "basic_auth = { users = \"{root}/.users\" }"),
        ("app", "proxy = \"app\""),
        ("limited", "limit = [{ requests = \"1/h\" }]"),
        ("moved", "redirect = { to = \"/\" }"),
        ("taking", "upload = {}"),
    ];
    let routes = rules.map(|(name, rule)| route(&format!("path = \"/d/{name}\"\n{rule}")));
    let upstream = "[[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:1\"]\n";
    let keys = format!("listing = true\n{}", routes.concat());
    let server = site(&tree, &format!("{PROXIES}{upstream}"), &keys).start();
    for form in [
        "application/x-ndjson",
        "application/json",
        "text/html",
        "text/plain",
    ] {
        assert_eq!(listed(&server, "/d/", &PLAIN, form), kept, "{form}");
    }
}

#[test]
fn a_readme_is_shown_to_those_who_may_read_it() {
    for condition in &CONDITIONS {
        let tree = tree_of(&["d/README.md", "d/x"]);
        let rules = refused_when(&["*.md"], condition);
        let server = started(&tree, &format!("listing = true\n{rules}"));
        let mut faults = Faults::default();
        for is_inside in [true, false, true, false] {
            let asked = match is_inside {
                true => &condition.inside,
                false => &condition.outside,
            };
            let target = format!("/d/{}", asked.query);
            let reply = answer(&server, Version::Http1, "GET", &target, asked.headers);
            let content = content_of("d/README.md");
            let is_in = ["README.md", &content].map(|text| reply.body.contains(text));
            faults.note(is_in == [is_inside; 2], || {
                format!("{} {is_inside}: {is_in:?}", condition.rule)
            });
        }
        faults.assert_none();
    }
}

/// A file with other rules is in no archive.
#[test]
fn members_of_archives() {
    for condition in &CONDITIONS[..2] {
        let names = ["d/open", "d/sub/guarded.txt", "d/sub/limited", "d/sub/x"];
        let tree = tree_of(&names);
        let rules = refused_when(&["*.txt"], condition);
        let limited = route("path = \"/d/sub/limited\"\nlimit = [{ requests = \"1/h\" }]");
        let archives = "listing = true\nlisting_archive = [\"tar\", \"zip\"]";
        let server = started(&tree, &format!("{archives}\n{rules}{limited}"));
        let mut faults = Faults::default();
        for form in ["tar", "zip"] {
            for is_inside in [true, false, true, false] {
                let asked = if is_inside {
                    &condition.inside
                } else {
                    &condition.outside
                };
                let path = format!("/d/?archive={form}");
                let reply = answer(&server, Version::Http1, "GET", &path, asked.headers);
                assert_eq!(reply.status, 200, "{reply:?}");
                let is_in = names.map(|name| reply.body.contains(&content_of(name)));
                faults.note(is_in == [true, is_inside, false, true], || {
                    format!("{} {form} {is_inside}: {is_in:?}", condition.rule)
                });
            }
        }
        faults.assert_none();
    }
}
