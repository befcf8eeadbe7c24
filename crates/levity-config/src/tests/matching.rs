//! What routes match, and what routes within routes inherit.

use super::*;

fn site(lines: &str) -> Site {
    let text = format!(
        "[[listen]]\naddress = \"8081\"\n[[upstream]]\nname = \"app\"\nto = [\"a:1\"]\n{SITE}{lines}"
    );
    parse(&text).expect(&text).sites.remove(0)
}

fn only_problem(lines: &str) -> String {
    let problems = messages(&format!("{SITE}{lines}"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].clone()
}

#[test]
fn conditions() {
    let site = site(
        "[[site.route]]\npath = \"/a/*\"\nwhen = { method = [\"POST\"], header = { X-Kind = \"a*\" }, \
         query = { v = \"2\" }, client = [\"10.0.0.0/8\"], listen = [\"8081\"], type = [\"image/*\"] }\n\
         [[site.route]]\nwhen.method = [\"GET\"]\n[[site.route]]\nregex = \"^/[0-9]+$\"",
    );
    let matcher = site.routes[0].matcher();
    assert_eq!(matcher.path, Pattern::Prefix("/a/".to_owned()));
    assert_eq!(matcher.when.methods, ["POST"]);
    assert_eq!(
        matcher.when.headers,
        [("x-kind".to_owned(), Expression::text("a*").unwrap())]
    );
    assert_eq!(
        matcher.when.query,
        [("v".to_owned(), Expression::text("2").unwrap())]
    );
    assert_eq!(
        (matcher.when.clients.len(), matcher.when.types.len()),
        (1, 1)
    );
    assert_eq!(matcher.when.listen, ["8081".parse().unwrap()]);
    assert_eq!(
        site.routes[1].matcher().path,
        Pattern::Prefix("/".to_owned())
    );
    assert!(matches!(site.routes[2].matcher().path, Pattern::Regex(_)));
}

#[test]
fn conditions_that_cannot_be() {
    for (lines, expected) in [
        ("when = { method = [\"post\"] }", "`post` is not a method"),
        (
            "when = { header = { \"a b\" = \"1\" } }",
            "`a b` is not a header name",
        ),
        ("when = { query = { a = \"{\" } }", "a `{` has no `}`"),
        ("when = { client = [\"10.0.0.1/8\"] }", "is no network"),
        (
            "when = { listen = [\"9\"] }",
            "is not the `address` of a `[[listen]]`",
        ),
        ("when = { type = [\"image\"] }", "is not a media type"),
        ("when = { uri = \"/a\" }", "unknown key `uri`"),
        ("regex = \"(\"", "unclosed group"),
        ("regex = \"(a{1,500}){1,500}\"", "could take too long"),
        ("regex = \"a\"\npath = \"/a\"", "`path` is given too"),
        ("path = \"/{a\"", "is not the path of a route"),
        ("", "`path` is missing"),
    ] {
        let problem = only_problem(&format!("[[site.route]]\n{lines}"));
        assert!(problem.contains(expected), "{lines}: {problem}");
    }
}

/// A route hides another only if it has no conditions that the other lacks.
#[test]
fn routes_that_can_never_match() {
    let second = |first: &str, second: &str| {
        messages(&format!(
            "{SITE}[[site.route]]\n{first}\n[[site.route]]\n{second}"
        ))
    };
    let get = "when.method = [\"GET\"]";
    for (first, later) in [
        (
            "path = \"/a/*\"".to_owned(),
            "path = \"/a/*.png\"".to_owned(),
        ),
        (
            "path = \"*.png\"".to_owned(),
            "path = \"/a.png\"".to_owned(),
        ),
        ("path = \"/*\"".to_owned(), format!("path = \"/a\"\n{get}")),
        (
            format!("path = \"/a/*\"\n{get}"),
            format!("path = \"/a/b\"\n{get}"),
        ),
        ("regex = \"^/a\"".to_owned(), "regex = \"^/a\"".to_owned()),
    ] {
        assert_eq!(second(&first, &later).len(), 1, "{first} {later}");
    }
    let narrower = site(&format!(
        "[[site.route]]\npath = \"/a/*\"\n{get}\n[[site.route]]\npath = \"/a/b\""
    ));
    assert_eq!(narrower.routes.len(), 2);
}

#[test]
fn routes_within_routes() {
    let site = site(
        "headers.set = { A = \"site\" }\n\
         [[site.route]]\npath = \"/app/*\"\nproxy = \"app\"\nstrip_prefix = \"/app\"\nrequest_headers.set = { X = \"1\", Y = \"1\" }\n\
         headers.set = { B = \"route\" }\ncompress = true\n\
         [[site.route.route]]\npath = \"/app/img/*\"\nrequest_headers.remove = [\"x\"]\n\
         [[site.route.route.route]]\npath = \"/app/img/*.png\"\nheaders = { reset = true, set = { C = \"inner\" } }\n\
         [[site.route.route]]\npath = \"/app/own/*\"\nroot = \"/srv/own\"\n\
         [[site.route]]\npath = \"/b\"",
    );
    let paths: Vec<_> = site
        .routes
        .iter()
        .map(|route| route.matcher().path.to_string())
        .collect();
    assert_eq!(
        paths,
        ["/app/img/*.png", "/app/img/*", "/app/own/*", "/app/*", "/b"]
    );
    let [png, img, own, app, other] = &site.routes[..] else {
        panic!("five routes")
    };
    assert_eq!(
        (png.matchers.len(), img.matchers.len(), app.matchers.len()),
        (3, 2, 1)
    );
    assert_eq!(img.location.proxying.proxy.as_deref(), Some("app"));
    assert_eq!(img.location.strip_prefix.as_deref(), Some("/app"));
    assert!(png.location.options.compress && !other.location.options.compress);
    let set = |location: &Location| -> Vec<String> {
        let rules = location.headers.iter().flat_map(|rules| &rules.set);
        rules.map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(set(&app.location), ["A", "B"]);
    assert_eq!(set(&img.location), ["A", "B"]);
    assert_eq!(set(&png.location), ["C"]);
    assert_eq!(set(&other.location), ["A"]);
    let request = &img.location.request_headers;
    assert_eq!(request.set, [("Y".to_owned(), "1".to_owned())]);
    assert_eq!(request.remove, ["x"]);
    assert_eq!(own.location.proxying.proxy, None);
    assert_eq!(own.location.root.as_deref(), Some(Path::new("/srv/own")));
}

#[test]
fn a_route_lies_within_the_path_of_the_one_around_it() {
    for path in ["/img/*", "/app", "/img/*.png"] {
        let problem = only_problem(&format!(
            "[[site.route]]\npath = \"/app/*\"\n[[site.route.route]]\npath = \"{path}\""
        ));
        assert!(problem.contains("this route can never match"), "{problem}");
    }
}

#[test]
fn placeholders_of_groups() {
    for (path, to, expected) in [
        ("path = \"/*/a\"", "/b/{1}", None),
        ("regex = \"^/([a-z]+)/([0-9]+)\"", "/b{2}", None),
        ("path = \"/a/*\"", "/b/{1}", Some("there is no `{1}` here")),
        (
            "path = \"*.{png,jpg}\"",
            "/b/{4}",
            Some("there is no `{4}` here"),
        ),
    ] {
        let lines = format!("[[site.route]]\n{path}\nredirect = {{ to = \"{to}\" }}");
        match expected {
            None => drop(site(&lines)),
            Some(expected) => assert!(only_problem(&lines).contains(expected), "{path}"),
        }
    }
}
