//! `redirect` and `respond`.

use super::*;

fn first_route(lines: &str) -> Route {
    let text = format!("{SITE}[[site.route]]\n{lines}");
    parse(&text).expect(&text).sites[0].routes[0].clone()
}

#[test]
fn answers_of_routes() {
    let route = first_route("path = \"/a/*\"\nredirect = { to = \"/b/{rest}\", status = 308 }");
    let to = Template(vec![Part::Text("/b/".to_owned()), Part::Rest]);
    assert_eq!(
        route.location.answer,
        Some(Answer::Redirect(Redirect { to, status: 308 }))
    );
    let route =
        first_route("path = \"/a\"\nrespond = { body = \"ok\", headers = { X-A = \"1\" } }");
    let expected = Fixed {
        status: 200,
        body: "ok".to_owned(),
        headers: vec![("X-A".to_owned(), "1".to_owned())],
    };
    assert_eq!(route.location.answer, Some(Answer::Fixed(expected)));
}

#[test]
fn shorter_forms_and_variables_of_other_servers() {
    let text = format!(
        "{SITE}[[site.route]]\npath = \"/a\"\nredirect = \"/x\"\n[[site.route]]\npath = \"/b\"\nrespond = 403\n\
         [[site.route]]\npath = \"/c\"\nreroute = \"/x/$1\"\n[[site.route]]\npath = \"/d\"\ncors = true\n"
    );
    assert_problems(
        &text,
        &[
            "5:12 expected a table, found string [write `redirect = { to = \"/x\" }`]",
            "8:11 expected a table, found integer [write `respond = { status = 403 }`]",
            "11:11 `/x/$1` is not a path to go on with [`$1` is a variable of nginx; here it is `{1}`]",
            "14:8 expected a table, found boolean [write `cors = { origins = [\"*\"] }`]",
        ],
    );
}

/// Routes with handlers of their own are left to these.
#[test]
fn a_site_may_answer_by_itself() {
    let text = "[[site]]\nredirect = { to = \"https://{host}{path}\" }\n\
        [[site.route]]\npath = \"/own/*\"\nroot = \"/srv\"\n\
        [[site.route]]\npath = \"/plain\"\n\
        [[site.route]]\npath = \"/gone\"\nrespond = { status = 410 }\n";
    let site = parse(text).expect("a site").sites.remove(0);
    let answers = site
        .routes
        .iter()
        .map(|route| route.location.answer.as_ref());
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers[..2], [None, site.location.answer.as_ref()]);
    assert!(matches!(
        answers[2],
        Some(Answer::Fixed(Fixed { status: 410, .. }))
    ));
    assert!(matches!(site.location.answer, Some(Answer::Redirect(_))));
}

#[test]
fn what_cannot_be() {
    for (line, expected) in [
        ("redirect = {}", "`to` is missing"),
        ("redirect = \"/b\"", "expected a table, found string"),
        (
            "redirect = { to = \"b\" }",
            "`b` is no target of a redirect",
        ),
        (
            "redirect = { to = \"/{rest}\" }",
            "there is no rest of the path here",
        ),
        (
            "redirect = { to = \"/b\", status = 304 }",
            "`status`: 304 is not the status of a redirect",
        ),
        (
            "redirect = { to = \"/b\", status = 200 }",
            "`status` must be from 301 to 308",
        ),
        (
            "redirect = { to = \"/b\" }\nrespond = {}",
            "`respond`: `redirect` answers every request here",
        ),
        (
            "redirect = { to = \"/b\" }\nroot = \"/\"",
            "`root`: `redirect` answers every request here",
        ),
        (
            "respond = {}\nlisting = true",
            "`listing`: `respond` answers every request here",
        ),
        (
            "respond = { status = 204, body = \"a\" }",
            "`body`: a response of status 204 has no content",
        ),
        (
            "respond = { headers = { Date = \"1\" } }",
            "`Date` is set by the server itself",
        ),
        (
            "respond = { headers = { A = \"\\u0007\" } }",
            "the value of `A` is not valid in a header",
        ),
    ] {
        let text = format!("{SITE}[[site.route]]\npath = \"/a\"\n{line}");
        assert_eq!(messages(&text), [expected], "{line}");
    }
    let long = "a".repeat(64 * 1024);
    first_route(&format!("path = \"/a\"\nrespond = {{ body = \"{long}\" }}"));
    let text = format!("{SITE}[[site.route]]\npath = \"/a\"\nrespond = {{ body = \"{long}a\" }}");
    assert_eq!(messages(&text), ["`body`: 65537 bytes are more than 65536"]);
}

#[test]
fn redirects_that_lead_to_themselves() {
    let loops = |routes: &str| match parse(&format!("{SITE}{routes}")) {
        Ok(_) => 0,
        Err(errors) => errors
            .iter()
            .filter(|problem| problem.message == "`redirect`: it leads to itself")
            .count(),
    };
    let route = |path: &str, to: &str| {
        format!("[[site.route]]\npath = \"{path}\"\nredirect = {{ to = \"{to}\" }}\n")
    };
    for (first, second, expected) in [
        (("/a", "/a"), None, 1),
        (("/a", "{path}"), None, 1),
        (("/a", "/a?b=1"), None, 1),
        (("/a", "/a/"), None, 0),
        (("/a", "https://a.example/a"), None, 0),
        (("/a/*", "/a/b/{rest}"), None, 1),
        (("/a/*", "{path}/"), None, 1),
        (("/a/*", "/b/{rest}"), None, 0),
        (("/a/*", "/{rest}"), None, 0),
        (("/*", "/start"), None, 1),
        (("/a", "/b"), Some(("/b", "/c")), 0),
        (("/a", "/b"), Some(("/b", "/a")), 2),
        (("/a/*", "/b/{rest}"), Some(("/b/*", "/a/{rest}")), 2),
        (("/a", "/a/b"), Some(("/a/*", "/a/c")), 1),
    ] {
        let second = second.map(|(path, to)| route(path, to));
        let text = route(first.0, first.1) + &second.unwrap_or_default();
        assert_eq!(loops(&text), expected, "{text}");
    }
    let site = "[[site]]\nredirect = { to = \"/start\" }\n";
    assert_eq!(messages(site), ["`redirect`: it leads to itself"]);
    parse(&format!(
        "{site}[[site.route]]\npath = \"/start\"\nroot = \"/\"\n"
    ))
    .expect("an end");
}

#[test]
fn other_paths() {
    let route = first_route("path = \"/a/*\"\nreroute = \"/b/{rest}\"");
    let to = Template(vec![Part::Text("/b/".to_owned()), Part::Rest]);
    assert_eq!(route.location.answer, Some(Answer::Reroute(to)));
    for (line, expected) in [
        (
            "reroute = \"https://a.example/\"",
            "is not a path to go on with",
        ),
        ("reroute = \"/b#x\"", "is not a path to go on with"),
        ("reroute = \"b\"", "is not a path to go on with"),
        (
            "reroute = \"/b/{rest}\"",
            "there is no rest of the path here",
        ),
        ("reroute = \"/a\"", "it leads to itself"),
        (
            "reroute = \"/b\"\nproxy = \"app\"",
            "`reroute` answers every request here",
        ),
        (
            "reroute = \"/b\"\nrespond = {}",
            "`reroute` answers every request here",
        ),
    ] {
        let text = format!(
            "[[upstream]]\nname = \"app\"\nto = [\"a:1\"]\n{SITE}[[site.route]]\npath = \"/a\"\n{line}"
        );
        let found = messages(&text);
        assert!(found[0].contains(expected), "{line}: {found:?}");
    }
}

/// `KEY = false` in a route within another one drops the answer of that key.
#[test]
fn answers_know_their_keys() {
    for (key, value) in [
        ("redirect", "{ to = \"/b\" }"),
        ("reroute", "\"/b\""),
        ("respond", "{ status = 404 }"),
        ("mailbox", "\"m\""),
    ] {
        let text = format!(
            "[[mailbox]]\nname = \"m\"\nmode = \"inbox\"\n{SITE}[[site.route]]\npath = \"/a/*\"\n{key} = {value}\n\
             [[site.route.route]]\npath = \"/a/b\"\n{key} = false\nroot = \"/srv\"\n"
        );
        let config = parse(&text).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
        let answers = config.sites[0].routes.iter().map(|route| {
            let answer = route.location.answer.as_ref();
            answer.map(Answer::key)
        });
        assert_eq!(answers.collect::<Vec<_>>(), [None, Some(key)], "{text}");
    }
}
