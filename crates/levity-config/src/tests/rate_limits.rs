//! `limit` of sites and routes.

use super::*;

fn limits_of(text: &str) -> (Vec<RateLimit>, Vec<Vec<RateLimit>>) {
    let site = parse(text).expect(text).sites.remove(0);
    let routes = site.routes.into_iter();
    let routes = routes.map(|route| route.location.rate_limits);
    (site.location.rate_limits, routes.collect())
}

fn limit(keys: &str) -> RateLimit {
    let (mut limits, _) = limits_of(&format!("{SITE}limit = [{{ {keys} }}]\n"));
    assert_eq!(limits.len(), 1);
    limits.remove(0)
}

#[test]
fn rates_and_what_they_let_pass_at_once() {
    let requests = |interval_ns, after| Limited::Requests {
        interval: Duration::from_nanos(interval_ns),
        after,
    };
    for (keys, expected) in [
        ("requests = \"100/10s\"", requests(100_000_000, 100)),
        ("requests = \"5/s\"", requests(200_000_000, 5)),
        ("requests = \"3/1s\", after = 1", requests(333_333_333, 1)),
        ("requests = \"1000000/s\"", requests(1000, 1_000_000)),
        ("requests = \"1/1d\"", requests(86_400_000_000_000, 1)),
        ("connections = 8", Limited::Connections(8)),
        (
            "bytes = \"1MiB/s\"",
            Limited::Bytes {
                per_second: 1 << 20,
                after: 1 << 18,
            },
        ),
        (
            "bytes = \"10MB/10s\", after = \"10MB\"",
            Limited::Bytes {
                per_second: 1_000_000,
                after: 10_000_000,
            },
        ),
        (
            "bytes = \"1000/s\", after = 1",
            Limited::Bytes {
                per_second: 1000,
                after: 250,
            },
        ),
        (
            "bytes = \"1TiB/s\", after = \"1TiB\"",
            Limited::Bytes {
                per_second: 1 << 40,
                after: 1 << 40,
            },
        ),
    ] {
        assert_eq!(limit(keys).limited, expected, "{keys}");
    }
}

#[test]
fn defaults_and_names() {
    let own = limit("requests = \"100/10s\"");
    assert_eq!(own.name, "100/10s per client");
    assert_eq!((own.per, own.depth), (Per::Client, 0));
    assert_eq!((own.ipv4_prefix, own.ipv6_prefix), (32, 64));
    assert!(!own.report_only);
    let own = limit("connections = 8, per = \"file\", report_only = true");
    assert_eq!(own.name, "8 connections per file");
    assert!(own.report_only);
    let own = limit("bytes = \"1MiB/s\", ipv4_prefix = 24, ipv6_prefix = 48, name = \"a b\"");
    assert_eq!((own.name.as_str(), own.ipv4_prefix), ("a b", 24));
    assert_eq!(own.ipv6_prefix, 48);
}

/// Those of a route apply in addition to those around it.
#[test]
fn limits_add_up() {
    let (site, routes) = limits_of(&format!(
        "{SITE}[[site.limit]]\nrequests = \"100/s\"\n\
         [[site.route]]\npath = \"/a/*\"\n[[site.route.limit]]\nconnections = 4\n\
         [[site.route.route]]\npath = \"/a/b\"\nlimit = [{{ bytes = \"1MB/s\" }}, {{ requests = \"1/s\" }}]\n\
         [[site.route]]\npath = \"/c\"\nlimit = false\n\
         [[site.route]]\npath = \"/d\"\n"
    ));
    assert_eq!(site.len(), 1);
    let depths =
        |limits: &[RateLimit]| -> Vec<usize> { limits.iter().map(|limit| limit.depth).collect() };
    let found: Vec<_> = routes.iter().map(|limits| depths(limits)).collect();
    assert_eq!(found, [vec![0, 1, 2, 2], vec![0, 1], vec![], vec![0]]);
    assert_eq!(routes[3], site);
}

#[test]
fn what_cannot_be_a_limit() {
    for (keys, expected) in [
        ("per = \"client\"", "`requests` is missing"),
        (
            "requests = \"100\"",
            "`100` is no rate [did you mean \"100/s\"?]",
        ),
        ("requests = \"a/s\"", "`a/s` is no rate [write a number"),
        (
            "requests = \"10r/s\"",
            "`10r/s` is no rate [did you mean \"10/s\"?]",
        ),
        (
            "requests = \"+1/s\"",
            "`+1/s` is no rate [write a number of",
        ),
        ("requests = \"10/10x\"", "`10/10x` is no rate [units are ms"),
        (
            "requests = \"10/10S\"",
            "`10/10S` is no rate [did you mean \"10/10s\"?]",
        ),
        ("requests = \"10/\"", "`10/` is no rate [write a number"),
        ("requests = \"0/s\"", "`0/s` lets nothing pass [`deny"),
        (
            "requests = \"1/0s\"",
            "`1/0s` has a time out of bounds [from 1ms to 1d]",
        ),
        (
            "requests = \"1/2d\"",
            "`1/2d` has a time out of bounds [from 1ms to 1d]",
        ),
        (
            "requests = \"1000001/s\"",
            "`1000001/s` is too fast [at most 1000000/s",
        ),
        (
            "requests = \"99999999999999999999/s\"",
            "`99999999999999999999/s` is no rate",
        ),
        (
            "requests = \"1/d\", after = 366",
            "`after`: at this rate it would take more than a year",
        ),
        (
            "requests = \"1/s\", after = \"5\"",
            "`after`: it is a number of requests [write it without",
        ),
        (
            "requests = \"1/s\", after = \"5KiB\"",
            "`after`: it is a number of requests [write it without",
        ),
        ("requests = \"1/s\", after = 0", "`after` must be from 1B"),
        (
            "requests = 5",
            "expected a string, found integer [a rate has a time too: write \"5/s\"]",
        ),
        (
            "bytes = \"1m/s\"",
            "`1m/s` is no rate [did you mean \"1MiB/s\"?]",
        ),
        (
            "bytes = \"1MiB\"",
            "`1MiB` is no rate [did you mean \"1MiB/s\"?]",
        ),
        (
            "bytes = \"much\"",
            "`much` is no rate [write a number of bytes and a time, such as \"1MiB/s\"]",
        ),
        (
            "bytes = \"20000000TiB/s\"",
            "`20000000TiB/s` is no rate [this is too large]",
        ),
        (
            "bytes = \"1025GiB/s\"",
            "`1025GiB/s` is too fast [at most 1TiB/s",
        ),
        ("bytes = \"1/10s\"", "`1/10s` is too slow [at least 1B/s]"),
        (
            "bytes = \"1B/s\", after = \"1TiB\"",
            "`after`: at this rate it would take more than a year",
        ),
        ("connections = 0", "`connections` must be from 1 to"),
        (
            "connections = 1, after = 1",
            "`after`: `connections` is no rate",
        ),
        (
            "connections = 1, bytes = \"1/s\"",
            "`bytes`: `connections` is given too [write a table for each",
        ),
        (
            "connections = 1, per = \"ip\"",
            "`ip` is not a value of `per`",
        ),
        (
            "connections = 1, per = \"file\", ipv4_prefix = 24",
            "`ipv4_prefix`: it is of use with",
        ),
        (
            "connections = 1, ipv6_prefix = 129",
            "`ipv6_prefix` must be from 1 to 128",
        ),
        ("connections = 1, name = \"\"", "a name has 1 to 64"),
        ("connections = 1, name = \"ä\"", "a name has 1 to 64"),
    ] {
        let text = format!("{SITE}limit = [{{ {keys} }}]\n");
        let reports = reports(&text);
        let has = |report: &String| {
            report
                .split_once(' ')
                .expect("a position")
                .1
                .starts_with(expected)
        };
        assert!(reports.iter().any(has), "{keys}: {reports:?}");
    }
}

#[test]
fn the_number_of_limits_is_bounded() {
    let some = |count: usize| {
        let limits: Vec<_> = (1..=count)
            .map(|number| format!("{{ connections = {number} }}"))
            .collect();
        format!("{SITE}limit = [{}]\n", limits.join(", "))
    };
    assert_eq!(limits_of(&some(RATE_LIMITS_MAX)).0.len(), RATE_LIMITS_MAX);
    let route = "[[site.route]]\npath = \"/a\"\nlimit = [{ requests = \"1/s\" }]\n";
    for text in [some(RATE_LIMITS_MAX + 1), some(RATE_LIMITS_MAX) + route] {
        let messages = messages(&text);
        assert!(
            messages[0].contains("more than 8 limits apply here"),
            "{messages:?}"
        );
    }
    let twice = format!("{SITE}limit = [{{ connections = 1 }}, {{ connections = 1 }}]\n");
    assert_eq!(
        messages(&twice),
        ["`connections`: this limit is given twice"]
    );
    let table = format!("{SITE}limit = {{ connections = 1 }}\n");
    assert_eq!(
        messages(&table),
        ["expected an array of tables, found table"]
    );
}

/// Two limits of one name could not be told apart in logs and metrics. Those that routes inherit are one.
#[test]
fn names_are_given_once() {
    let text = format!(
        "{SITE}limit = [{{ requests = \"1/s\", name = \"few\" }}]\n\
         [[site.route]]\npath = \"/a/*\"\n\
         [[site.route]]\npath = \"/b/*\"\nlimit = [{{ connections = 2, name = \"few\" }}]\n"
    );
    let problems = parse(&text).expect_err("a name twice");
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert_eq!(problem.message, "limit `few` is given twice");
    assert_eq!(problem.help.as_deref(), Some("the first is on line 3"));
    assert_eq!(
        problem.position.as_ref().map(|position| position.line),
        Some(8)
    );
    assert!(parse(&text.replacen("few", "fewer", 1)).is_ok());
    // Default names may be shared.
    let same = "limit = [{ requests = \"1/s\" }]\n";
    let route = format!("[[site.route]]\npath = \"/a/*\"\n{same}");
    assert!(
        parse(&format!(
            "{SITE}[[site.route]]\npath = \"/b\"\n{same}{route}"
        ))
        .is_ok()
    );
}
