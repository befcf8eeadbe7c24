//! Reads how sites and routes use an upstream.

use super::upstream::{PHP, UPSTREAM};
use super::*;
use crate::upstream::AmbiguousPaths;

/// A site behind two upstreams, which begins on line 8.
fn site_text(lines: &str) -> String {
    format!("{UPSTREAM}{PHP}[[site]]\n{lines}")
}

#[track_caller]
fn assert_site_problems(lines: &str, expected: &[&str]) {
    assert_problems(&site_text(lines), expected);
}

fn site(lines: &str) -> Site {
    parse(&site_text(lines)).unwrap().sites.remove(0)
}

#[test]
fn a_site_may_have_an_upstream_and_no_root() {
    let site = site("proxy = \"app\"\nbody_bytes = \"2MiB\"\n[[site.route]]\npath = \"/a\"");
    let proxying = Proxying {
        proxy: Some("app".to_owned()),
        body_bytes: Some(2 << 20),
        ..Proxying::default()
    };
    assert_eq!(site.location.root, None);
    assert_eq!(site.location.proxying, proxying);
    assert_eq!(site.routes[0].location.proxying, proxying);
    assert_site_problems("", &["8:1 `root` is missing"]);
    assert_site_problems(
        "proxi = \"app\"",
        &["9:1 unknown key `proxi` [did you mean `proxy`?]"],
    );
}

#[test]
fn every_value_of_a_site_and_route_with_an_upstream() {
    let site = site(
        "root = \"/srv\"\nproxy = \"php\"\ntry = [\"file\", \"proxy\"]\nscript_suffix = \".php\"\nscript_index = \"a/index.php\"\n\
         [[site.route]]\npath = \"/app/*\"\nproxy = \"app\"\ntry = [\"proxy\"]\nbody_bytes = 0\ninternal = true\n\
         ambiguous_paths = \"pass\"\nheaders.add = { \"Link\" = \"1\" }\n\
         [site.route.request_headers]\nset = { \"Host\" = \"b\" }\nadd = { \"A\" = \"1\" }\nremove = [\"Cookie\"]\n\
         [site.route.rewrite]\nlocation = { \"http://b/\" = \"/\", \"/c\" = \"\" }\ncookie_path = { \"/\" = \"/app\" }\n\
         cookie_domain = { \".b\" = \"example.org\" }",
    );
    let expected = Proxying {
        proxy: Some("php".to_owned()),
        tries: Some(vec![Try::File, Try::Proxy]),
        script_suffix: Some(".php".to_owned()),
        script_index: Some("a/index.php".to_owned()),
        script_root: None,
        params: Vec::new(),
        body_bytes: None,
        ambiguous_paths: None,
    };
    assert_eq!(site.location.proxying, expected);
    let route = &site.routes[0];
    let expected = Proxying {
        proxy: Some("app".to_owned()),
        tries: Some(vec![Try::Proxy]),
        body_bytes: Some(0),
        ambiguous_paths: Some(AmbiguousPaths::Pass),
        ..expected
    };
    assert_eq!(
        (&route.location.proxying, route.location.internal),
        (&expected, true)
    );
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|&(a, b)| (a.to_owned(), b.to_owned()))
            .collect()
    };
    assert_eq!(route.location.headers[0].add, pairs(&[("Link", "1")]));
    let expected = Headers {
        set: pairs(&[("Host", "b")]),
        add: pairs(&[("A", "1")]),
        remove: vec!["Cookie".to_owned()],
        always: false,
    };
    assert_eq!(route.location.request_headers, expected);
    let expected = Rewrite {
        location: pairs(&[("http://b/", "/"), ("/c", "")]),
        cookie_path: pairs(&[("/", "/app")]),
        cookie_domain: pairs(&[(".b", "example.org")]),
    };
    assert_eq!(route.location.rewrite, expected);
}

#[test]
fn upstreams_that_are_not_there() {
    assert_site_problems(
        "proxy = \"ap\"\n[[site.route]]\npath = \"/a\"\nproxy = \"ruby\"\n[[site.route]]\npath = \"/b\"\nproxy = 1",
        &[
            "9:9 no upstream has the name `ap` [did you mean \"app\"?]",
            "12:9 no upstream has the name `ruby` [known: `app`, `php`]",
            "15:9 expected a string, found integer [write \"1\"]",
        ],
    );
    assert_problems(
        "[[site]]\nproxy = \"a\"",
        &["2:9 no upstream has the name `a` [add `[[upstream]]` with that `name`]"],
    );
    for address in [
        "http://127.0.0.1:3001",
        "127.0.0.1:3001",
        "unix:/run/a.sock",
        "app/",
    ] {
        let reports = format!(
            "9:9 no upstream has the name `{address}` [`proxy` takes the name of an `[[upstream]]`; put the address into its `to`]"
        );
        assert_site_problems(&format!("proxy = \"{address}\""), &[&reports]);
    }
    // It may be the one whose name is wrong.
    assert_problems(
        "[[site]]\nproxy = \"a\"\n[[upstream]]\nto = [\"a:1\"]",
        &["3:1 `name` is missing"],
    );
    assert_problems(
        "[[site]]\nproxy = \"a\"\n[[upstream]]\nname =\nto = [\"a:1\"]",
        &["4:7 the value is missing"],
    );
}

#[test]
fn what_is_tried() {
    let tries = site(
        "root = \"/srv\"\nproxy = \"app\"\ntry = [\"file\", \"file.html\", \"file.tar.gz\", \"directory\", \"/a/index.html\", 404]",
    );
    let expected = [
        Try::File,
        Try::FileWith(".html".to_owned()),
        Try::FileWith(".tar.gz".to_owned()),
        Try::Directory,
        Try::Path("/a/index.html".to_owned()),
        Try::Status(404),
    ];
    assert_eq!(
        tries.location.proxying.tries.as_deref(),
        Some(&expected[..])
    );
    assert_site_problems(
        "root = \"/\"\ntry = [\"proxy\"]",
        &[
            "10:8 `try` needs an upstream, and no `proxy` names one [add proxy = \"NAME\", the name of an [[upstream]]]",
        ],
    );
    assert_site_problems(
        "proxy = \"app\"\ntry = [\"file\", \"/a\", \"proxy\"]\n[[site.route]]\npath = \"/a\"\nroot = \"/\"\ntry = [\"file\"]",
        &[
            "10:8 `file` needs a `root`, and there is none",
            "10:16 `/a` needs a `root`, and there is none",
        ],
    );
    assert_site_problems(
        "proxy = \"app\"\nroot = \"/\"\ntry = []\n[[site.route]]\npath = \"/a\"\ntry = \"file\"",
        &[
            "11:7 `try`: it is empty",
            "14:7 expected an array of strings and numbers, found string [write [\"file\"]]",
        ],
    );
}

#[test]
fn the_order_of_what_is_tried() {
    for (steps, expected) in [
        (
            "\"proxy\", \"file\"",
            "11:17 `file` must come before `proxy`",
        ),
        ("404, \"proxy\"", "11:13 `proxy` must come before `404`"),
        ("\"/a\", 410, 404", "11:19 `404` must come before `410`"),
        ("\"file\", \"file\"", "11:16 `file` is given twice"),
    ] {
        let lines = format!("proxy = \"app\"\nroot = \"/\"\ntry = [{steps}]");
        assert_site_problems(&lines, &[expected]);
    }
}

#[test]
fn what_cannot_be_tried() {
    let of_files = "is not the path of a file";
    let unknown = "is not a value of `try`";
    let script = "a file is sent as it is, without a query; `script_index` runs a script";
    for (step, problem, help) in [
        ("files", unknown, "did you mean \"file\"?"),
        (
            "none",
            unknown,
            "one of \"file\", \"file.html\", \"directory\", \"/index.html\", \"proxy\", 404",
        ),
        ("file.", unknown, "did you mean \"file\"?"),
        ("/", of_files, "name the file, such as \"/index.html\""),
        ("/a/", of_files, "name the file, such as \"/index.html\""),
        ("/a//b", of_files, "a path without `//`, `.` and `..`"),
        ("/../b", of_files, "a path without `//`, `.` and `..`"),
        (
            "/.git/config",
            of_files,
            "names with a leading dot are not served",
        ),
        ("/index.php", of_files, script),
        ("/index.php?$args", of_files, script),
    ] {
        let expected = format!("10:8 `{step}` {problem} [{help}]");
        assert_site_problems(&format!("root = \"/\"\ntry = [\"{step}\"]"), &[&expected]);
    }
    for status in ["399", "600", "-1", "0x190", "99999999999"] {
        let expected = format!(
            "10:8 `{status}` {unknown} [a number is the status of an error, 400 to 599; `respond` gives others]"
        );
        assert_site_problems(&format!("root = \"/\"\ntry = [{status}]"), &[&expected]);
    }
}

#[test]
fn an_upstream_that_is_never_asked() {
    let files = "root = \"/\"\nproxy = \"app\"\ntry = [\"file\"]\n[[site.route]]\npath = \"/a\"\n";
    site(files);
    site(&format!("{files}proxy = \"app\"\ntry = [\"proxy\"]"));
    assert_site_problems(
        &format!("{files}proxy = \"app\"\ntry = [\"file\"]"),
        &["14:9 `proxy`: `try` leaves it out [add \"proxy\" to it]"],
    );
}

/// A `try` for files is no answer for a route that names an application.
#[test]
fn an_upstream_replaces_a_try_without_it() {
    let tries = |site_try: &str| {
        let lines = format!(
            "root = \"/\"\nproxy = \"app\"\ntry = {site_try}\n[[site.route]]\npath = \"/a\"\nproxy = \"app\""
        );
        site(&lines).routes[0].location.proxying.tries.clone()
    };
    assert_eq!(tries("[\"file\", \"/index.html\"]"), None);
    let both = Some(vec![Try::File, Try::Proxy]);
    assert_eq!(tries("[\"file\", \"proxy\"]"), both);
}

#[test]
fn scripts() {
    let suffix = "script_suffix = \".php\"";
    assert_site_problems(
        &format!("root = \"/\"\n{suffix}"),
        &["10:17 `script_suffix`: there is no `proxy` to run scripts"],
    );
    assert_site_problems(
        &format!("proxy = \"php\"\n{suffix}"),
        &["10:17 `script_suffix`: there is no `root` for scripts"],
    );
    assert_site_problems(
        &format!("root = \"/\"\nproxy = \"app\"\n{suffix}\nscript_index = \"a\""),
        &[
            "11:17 `script_suffix`: only upstreams of protocol fastcgi or scgi run scripts",
            "12:16 `script_index`: only upstreams of protocol fastcgi or scgi run scripts",
        ],
    );
    // A route has the root and upstream of its site; its own upstream may be of another protocol.
    site(&format!(
        "root = \"/\"\nproxy = \"php\"\n[[site.route]]\npath = \"/a\"\n{suffix}"
    ));
    site(&format!(
        "root = \"/\"\nproxy = \"php\"\n{suffix}\n[[site.route]]\npath = \"/a\"\nproxy = \"app\""
    ));
    assert_site_problems(
        &format!(
            "root = \"/\"\nproxy = \"php\"\n[[site.route]]\npath = \"/a\"\nproxy = \"app\"\n{suffix}"
        ),
        &["14:17 `script_suffix`: only upstreams of protocol fastcgi or scgi run scripts"],
    );
    assert_site_problems(
        &format!("root = \"/\"\nproxy = \"other\"\n{suffix}"),
        &["10:9 no upstream has the name `other` [known: `app`, `php`]"],
    );
}

#[test]
fn variables_for_applications() {
    assert_site_problems(
        "proxy = \"php\"\nparams = { \"A B\" = \"\", \"\" = \"\", CONTENT_LENGTH = \"1\", SCGI = \"\", A = \"\\u0000\", B = 1 }",
        &[
            "10:12 `A B` is not the name of a variable [letters, digits, `_`, `-` and `.`]",
            "10:24 `` is not the name of a variable [letters, digits, `_`, `-` and `.`]",
            "10:33 `CONTENT_LENGTH` is set by the server itself",
            "10:55 `SCGI` is set by the server itself",
            "10:70 the value of `A` has a NUL",
            "10:84 expected a string, found integer [write \"1\"]",
        ],
    );
    assert_site_problems(
        "proxy = \"app\"\nparams = { A = \"\" }",
        &[
            "10:10 `params`: only upstreams of protocol fastcgi or scgi get variables [`request_headers` of a site or route sets headers]",
        ],
    );
    assert_site_problems(
        "root = \"/\"\nparams = { A = \"\" }",
        &["10:10 `params`: there is no `proxy` here"],
    );
    let of_size = |bytes: usize| format!("proxy = \"php\"\nparams.A = \"{}\"", "x".repeat(bytes));
    site(&of_size((16 << 10) - 1));
    assert_site_problems(
        &of_size(16 << 10),
        &["10:1 `params`: names and values have more than 16 KiB"],
    );
}

#[test]
fn the_root_of_scripts_elsewhere() {
    let php = "root = \"/\"\nproxy = \"php\"\nscript_root = \"/there\"\n";
    let site = site(&format!(
        "{php}[[site.route]]\npath = \"/a\"\n[[site.route]]\npath = \"/b\"\nroot = \"/b\"\nproxy = \"php\""
    ));
    let script_root = |location: &Location| location.proxying.script_root.clone();
    assert_eq!(
        script_root(&site.routes[0].location).as_deref(),
        Some("/there")
    );
    assert_eq!(script_root(&site.routes[1].location), None);
    assert_site_problems(
        "root = \"/\"\nproxy = \"php\"\nscript_root = \"there\"",
        &["11:15 `there` is not an absolute path [a path such as \"/var/www/html\"]"],
    );
    assert_site_problems(
        "proxy = \"php\"\nscript_root = \"/there\"",
        &["10:15 `script_root`: there is no `root` for scripts"],
    );
}

/// The site of a PHP whose scripts nothing names: the note of each text, by line.
#[test]
fn php_without_scripts() {
    let notes = |lines: &str| {
        let notes = parse(&site_text(lines)).unwrap().note_texts();
        notes
            .into_iter()
            .filter(|note| !note.contains("uses the upstream"))
            .collect::<Vec<_>>()
    };
    let note = |line: usize| {
        format!(
            "line {line}: `.php` files are never sent, and all requests for them go to the application; `script_suffix = \".php\"` finds scripts \
             beneath the `root`"
        )
    };
    let both = "root = \"/\"\nproxy = \"php\"\ntry = [\"file\", \"proxy\"]\n";
    let route = "[[site.route]]\npath = \"/a/*\"\n";
    assert_eq!(notes(both), [note(11)]);
    // A route that changes none of these keys has no note.
    assert_eq!(notes(&format!("{both}{route}root = \"/\"")), [note(11)]);
    for scripts in ["script_suffix = \".php\"", "script_index = \"index.php\""] {
        assert!(notes(&format!("{both}{scripts}\n{route}{}", &both[11..])).is_empty());
    }
    for quiet in [
        "proxy = \"php\"",
        "root = \"/\"\nproxy = \"php\"\ntry = [\"file\"]",
        "root = \"/\"\nproxy = \"app\"\ntry = [\"file\", \"proxy\"]",
    ] {
        assert!(notes(quiet).is_empty(), "{quiet}");
    }
    // The route alone has both.
    let of_route = format!("root = \"/\"\nproxy = \"app\"\n{route}{}", &both[11..]);
    assert_eq!(notes(&of_route), [note(14)]);
    let of_site =
        format!("root = \"/\"\ntry = [\"file\"]\n{route}proxy = \"php\"\ntry = [\"proxy\"]");
    assert!(notes(&of_site).is_empty());
}

/// The note about files that are never requested.
#[test]
fn files_without_try() {
    let notes = |lines: &str| {
        let notes = parse(&site_text(lines)).unwrap().note_texts();
        let mut notes = notes.into_iter();
        notes.find(|note| !note.contains("uses the upstream"))
    };
    let dead = |line: usize, key: &str| {
        let start =
            format!("line {line}: without `try` the upstream answers everything, and `{key}` has");
        move |note: Option<String>| note.is_some_and(|note| note.starts_with(&start))
    };
    assert!(dead(9, "root")(notes("root = \"/\"\nproxy = \"app\"")));
    assert!(dead(10, "listing")(notes(
        "proxy = \"app\"\nlisting = true"
    )));
    let route = "[[site.route]]\npath = \"/a/*\"\n";
    let site = "proxy = \"app\"\n";
    // Where the pages for errors are.
    let pages = "error_pages = { 5xx = \"/sorry.html\" }\n";
    assert_eq!(notes(&format!("root = \"/\"\n{site}{pages}")), None);
    assert_eq!(notes(&format!("root = \"/\"\n{site}{route}{pages}")), None);
    assert!(dead(12, "index")(notes(&format!(
        "{site}{route}index = []"
    ))));
    let both = format!("{site}{route}root = \"/\"\nproxy = \"app\"");
    assert!(dead(12, "root")(notes(&both)));
    // A route with a folder of its own lists it as its site says, and has no use for the site's.
    let listing = format!("{site}listing = true\n{route}root = \"/\"");
    assert_eq!(notes(&listing), None);
    assert!(dead(9, "root")(notes(&format!("root = \"/\"\n{listing}"))));
    for quiet in [
        "root = \"/\"\nproxy = \"app\"\ntry = [\"file\", \"proxy\"]\nlisting = true".to_owned(),
        format!("root = \"/\"\n{site}{route}try = [\"file\"]"),
        format!("root = \"/\"\n{site}{route}internal = true"),
        "root = \"/\"\nproxy = \"php\"\nscript_index = \"index.php\"".to_owned(),
    ] {
        assert_eq!(notes(&quiet), None, "{quiet}");
    }
}

#[test]
fn files_with_a_try_of_the_upstream_alone() {
    let text = site_text("root = \"/\"\nproxy = \"app\"\ntry = [\"proxy\"]");
    let notes = parse(&text).unwrap().note_texts();
    let start = "line 9: `try` has no step for files, and `root` has no effect";
    assert!(
        notes.iter().any(|note| note.starts_with(start)),
        "{notes:?}"
    );
}

/// The pages of a site without `root` are for its routes that have one.
#[test]
fn error_pages_without_a_root() {
    let site = "proxy = \"app\"\nerror_pages = { 404 = \"/404.html\" }\n";
    let with_root = format!("{site}[[site.route]]\npath = \"/a/*\"\nroot = \"/\"\n");
    let notes = parse(&site_text(&with_root)).unwrap().note_texts();
    let start = "line 10: they are sent only by the routes that have a `root`";
    assert!(
        notes.iter().any(|note| note.starts_with(start)),
        "{notes:?}"
    );
    for refused in [
        site.to_owned(),
        format!("{site}[[site.route]]\npath = \"/a/*\"\n"),
        format!("{with_root}error_pages = false\n"),
    ] {
        let problems = parse(&site_text(&refused)).unwrap_err();
        assert_eq!(
            problems[0].message, "`error_pages`: there is no `root` for them",
            "{refused}"
        );
    }
}

/// Every key and table that a route inherits it can do without.
#[test]
fn what_a_route_drops() {
    let site = "root = \"/\"\nproxy = \"php\"\ntry = [\"file\", \"proxy\"]\nscript_suffix = \".php\"\nscript_index = \"index.php\"\n\
        body_bytes = \"5B\"\nambiguous_paths = \"pass\"\ncache = \"no-cache\"\nindex = [\"a\"]\nhide = [\"b\"]\nallow = [\"10.0.0.0/8\"]\n\
        deny = [\"10.0.0.1\"]\nerror_pages = { 404 = \"/a.html\" }\nheaders = { set = { A = \"1\" } }\n\
        request_headers = { set = { B = \"1\" } }\nrewrite = { location = { \"/a\" = \"/b\" } }\ndisk = { direct = \"always\" }\n";
    let location = |keys: &str| {
        let text = site_text(&format!("{site}[[site.route]]\npath = \"/a/*\"\n{keys}"));
        let config = parse(&text).unwrap_or_else(|problems| panic!("{keys}: {problems:?}"));
        config.sites[0].routes[0].location.clone()
    };
    let all = location("");
    let none = Location::default();
    let changed = |keys: &str, change: fn(&mut Location, Location)| {
        let mut expected = all.clone();
        change(&mut expected, none.clone());
        assert_ne!(expected, all, "{keys}");
        assert_eq!(location(&format!("{keys} = false\n")), expected, "{keys}");
    };
    changed("try", |to, none| to.proxying.tries = none.proxying.tries);
    changed("script_suffix", |to, none| {
        to.proxying.script_suffix = none.proxying.script_suffix
    });
    changed("script_index", |to, none| {
        to.proxying.script_index = none.proxying.script_index
    });
    changed("body_bytes", |to, none| {
        to.proxying.body_bytes = none.proxying.body_bytes
    });
    changed("ambiguous_paths", |to, none| {
        to.proxying.ambiguous_paths = none.proxying.ambiguous_paths
    });
    changed("cache", |to, none| to.options.cache = none.options.cache);
    changed("index", |to, none| to.options.index = none.options.index);
    changed("hide", |to, none| to.options.hide = none.options.hide);
    changed("headers", |to, none| to.headers = none.headers);
    changed("request_headers", |to, none| {
        to.request_headers = none.request_headers
    });
    changed("rewrite", |to, none| to.rewrite = none.rewrite);
    changed("disk", |to, none| to.options.disk = none.options.disk);
    changed("error_pages", |to, none| {
        to.options.error_pages = none.options.error_pages;
        to.error_pages_root = None;
    });
    // Steps of `try` that have lost what they are for go with it.
    changed("proxy", |to, _| {
        to.proxying.proxy = None;
        to.proxying.tries = Some(vec![Try::File]);
    });
    let without_files = location(
        "root = false\nscript_suffix = false\nscript_index = false\nerror_pages = false\n",
    );
    assert_eq!(without_files.root, None);
    assert_eq!(without_files.proxying.tries, Some(vec![Try::Proxy]));
}

#[test]
fn a_route_that_has_dropped_all_answers() {
    let refused = |keys: &str| {
        let text = site_text(&format!(
            "{keys}[[site.route]]\npath = \"/a/*\"\nproxy = false\n"
        ));
        parse(&text)
            .err()
            .map(|problems| problems[0].message.clone())
    };
    let message = "nothing would answer here".to_owned();
    assert_eq!(refused("proxy = \"app\"\n"), Some(message));
    assert_eq!(refused("proxy = \"app\"\nroot = \"/\"\n"), None);
    // A path is not inherited, and a switch that is off is one.
    let route = "root = \"/\"\n[[site.route]]\n";
    assert!(parse(&site_text(&format!("{route}path = false\n"))).is_err());
    assert!(
        parse(&site_text(&format!(
            "{route}path = \"/a\"\nlisting = false\n"
        )))
        .is_ok()
    );
    // It would let everyone in.
    for gate in ["allow", "deny"] {
        for keys in ["root = \"/\"\n", &format!("{route}path = \"/a\"\n")] {
            assert!(parse(&site_text(&format!("{keys}{gate} = false\n"))).is_err());
        }
    }
}

/// The whole path is no script of php-fpm.
#[test]
fn php_without_scripts_and_without_try() {
    let notes = |lines: &str| parse(&site_text(lines)).unwrap().note_texts().join("\n");
    let reports = notes("root = \"/\"\nproxy = \"php\"");
    assert!(
        reports.contains("line 9: the application is given the whole path"),
        "{reports}"
    );
    assert!(!notes("proxy = \"php\"").contains("whole path"));
    let scripts = "root = \"/\"\nproxy = \"php\"\nscript_suffix = \".php\"";
    assert!(!notes(scripts).contains("whole path"));
}

#[test]
fn routes_that_end_with_a_slash() {
    let text = site_text(
        "proxy = \"php\"\n[[site.route]]\npath = \"/static/\"\nproxy = \"app\"\n[[site.route]]\npath = \"/\"\n\
         [[site.route]]\npath = \"/a/*\"\n[[site.route]]\npath = \"/b\"",
    );
    let note = "line 11: `/static/` is that path alone; everything beneath it is `/static/*`";
    assert_eq!(parse(&text).unwrap().note_texts(), [note]);
}

#[test]
fn keys_of_other_servers_and_of_routes() {
    let pass = "`proxy` takes the name of an `[[upstream]]`, whose `to` has the address";
    let size = "`body_bytes`, a size such as \"100MiB\"; 0 permits no body";
    let reports = [
        format!("9:1 unknown key `proxy_pass` [{pass}]"),
        format!("10:1 unknown key `client_max_body_size` [{size}]"),
    ];
    let lines = "proxy_pass = \"http://a:1\"\nclient_max_body_size = \"10m\"";
    assert_site_problems(lines, &reports.each_ref().map(String::as_str));
    assert_site_problems(
        "root = \"/\"\n[[site.route]]\npath = \"/\"\nproxy_pass = \"a\"\nfastcgi_pass = \"a\"\nclient_max_body_size = 0",
        &[
            &format!("12:1 unknown key `proxy_pass` [{pass}]"),
            "13:1 unknown key `fastcgi_pass` [`proxy` takes the name of an `[[upstream]]` with `protocol = \"fastcgi\"` or `\"scgi\"`, whose `to` has the address]",
            &format!("14:1 unknown key `client_max_body_size` [{size}]"),
        ],
    );
    assert_site_problems(
        "root = \"/\"\nstrip_prefix = \"/a\"",
        &["10:1 unknown key `strip_prefix` [`strip_prefix` is a key of `[[site.route]]`]"],
    );
}

#[test]
fn what_is_no_script() {
    for suffix in ["", ".", "php", "./p"] {
        let reports = format!(
            "11:17 `{suffix}` is not how the name of a script ends [a dot and what follows it, such as \".php\"]"
        );
        let text = format!("root = \"/\"\nproxy = \"php\"\nscript_suffix = \"{suffix}\"");
        assert_site_problems(&text, &[&reports]);
    }
    for index in ["", "/index.php", "a//b", "../a", "a/.", "a/"] {
        let reports = format!(
            "11:16 `{index}` is not the name of a script [a file beneath `root`, such as \"index.php\"]"
        );
        let text = format!("root = \"/\"\nproxy = \"php\"\nscript_index = \"{index}\"");
        assert_site_problems(&text, &[&reports]);
    }
}

#[test]
fn sizes_of_bodies() {
    let of = |size: &str| {
        site(&format!("proxy = \"app\"\nbody_bytes = {size}"))
            .location
            .proxying
            .body_bytes
    };
    assert_eq!((of("\"1TiB\""), of("0")), (Some(1 << 40), Some(0)));
    assert_site_problems(
        "proxy = \"app\"\nbody_bytes = \"1025GiB\"",
        &["10:14 `body_bytes` must be from 0B to 1TiB"],
    );
}

const ROUTE: &str = "proxy = \"app\"\n[[site.route]]\npath = \"/\"\n";

#[test]
fn fields_of_requests() {
    assert_site_problems(
        &format!(
            "{ROUTE}[site.route.request_headers]\nset = {{ \"Host\" = \"a\", \"Via\" = \"1\", \"X-Forwarded-For\" = \"1\", a = \"\\n\" }}\n\
             add = {{ \"Content-Length\" = \"1\", A = \"2\" }}\nremove = [\"Forwarded\", \"TE\", \"x y\", \"Date\"]"
        ),
        &[
            "13:23 `Via` is set by the server itself",
            "13:36 `X-Forwarded-For` is set by the server itself",
            "13:65 the value of `a` is not valid in a header [no control characters, and no space at either end]",
            "14:9 `Content-Length` is set by the server itself",
            "14:33 `A` is given twice",
            "15:11 `Forwarded` is set by the server itself",
            "15:24 `TE` is set by the server itself",
            "15:30 `x y` is not a header name",
        ],
    );
    assert_site_problems(
        &format!("{ROUTE}request_headers = {{ add = {{ HOST = \"a\" }} }}"),
        &["12:27 `add`: `Host` can only be `set`"],
    );
    assert_site_problems(
        &format!("{ROUTE}request_headers = {{ remove = [\"host\"] }}"),
        &["12:30 `remove`: `Host` can only be `set`"],
    );
}

#[test]
fn every_field_of_requests_that_the_server_writes() {
    for name in [
        "connection",
        "content-length",
        "expect",
        "forwarded",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-sendfile-type",
    ] {
        let reports = format!("12:31 `{name}` is set by the server itself");
        assert_site_problems(
            &format!("{ROUTE}request_headers = {{ remove = [\"{name}\"] }}"),
            &[&reports],
        );
    }
}

#[test]
fn via_can_be_removed_but_not_written() {
    let removed = format!("{ROUTE}request_headers = {{ remove = [\"Via\"] }}");
    let route = site(&removed).routes.remove(0);
    assert_eq!(route.location.request_headers.remove, ["Via"]);
    assert_site_problems(
        &format!("{ROUTE}request_headers = {{ set = {{ Via = \"a\" }} }}"),
        &["12:29 `Via` is set by the server itself"],
    );
}

#[test]
fn fields_of_responses_that_are_added() {
    assert_site_problems(
        &format!(
            "{ROUTE}[site.route.headers]\nset = {{ A = \"1\" }}\nadd = {{ a = \"1\", Date = \"1\" }}"
        ),
        &[
            "14:9 `a` is given twice",
            "14:18 `Date` is set by the server itself",
        ],
    );
}

#[test]
fn what_cannot_be_rewritten() {
    assert_site_problems(
        &format!(
            "{ROUTE}[site.route.rewrite]\nlocation = {{ \"\" = \"/\", \"/a\" = \"/b c\" }}\n\
             cookie_path = {{ \"a\" = \"/\", \"/b\" = \"/;c\", \"/d\" = \"\" }}\ncookie_domain = {{ \"\" = \"a\", \"b\" = \"*.c\" }}"
        ),
        &[
            "13:14 `` is not valid in `location` [no space, no control character, and text to replace]",
            "13:31 `/b c` is not valid in `location` [no space, no control character, and text to replace]",
            "14:17 `a` is not valid in `cookie_path` [a path starts with `/` and has no `;`]",
            "14:35 `/;c` is not valid in `cookie_path` [a path starts with `/` and has no `;`]",
            "14:49 `` is not valid in `cookie_path` [a path starts with `/` and has no `;`]",
            "15:19 `` is not valid in `cookie_domain` [a host name, which may have a dot before it]",
            "15:35 `*.c` is not valid in `cookie_domain` [a host name, which may have a dot before it]",
        ],
    );
}

#[test]
fn requests_are_changed_for_upstreams_only() {
    assert_site_problems(
        "root = \"/\"\n[[site.route]]\npath = \"/a\"\n[site.route.request_headers]\n[site.route.rewrite]\n[[site.route]]\npath = \"/b\"\n\
         proxy = \"app\"\n[site.route.rewrite]",
        &[
            "12:1 `request_headers`: there is no `proxy` here",
            "13:1 `rewrite`: there is no `proxy` here [`rewrite` changes headers of an application; `reroute` of a \
             `[[site.route]]` goes on with another path]",
        ],
    );
}

#[test]
fn ambiguous_paths_are_those_of_an_upstream() {
    assert_site_problems(
        "root = \"/\"\n[[site.route]]\npath = \"/a\"\nambiguous_paths = \"pass\"\n[[site.route]]\npath = \"/b\"\n\
         proxy = \"app\"\nambiguous_paths = \"decode\"",
        &[
            "12:19 `ambiguous_paths`: there is no `proxy` here",
            "16:19 `decode` is not a value of `ambiguous_paths` [one of `refuse`, `pass`]",
        ],
    );
}
