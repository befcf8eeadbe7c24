use std::net::{IpAddr, Ipv4Addr};

use super::super::registry::Registry;
use super::*;

const CLIENT: &Client = &Client {
    ip: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ..Client::without_address("http")
};

/// Limits of a site, a table of keys each.
fn limits(tables: &[&str]) -> Vec<Arc<RateLimit>> {
    let tables: Vec<_> = tables.iter().map(|keys| format!("{{ {keys} }}")).collect();
    let tables = tables.join(", ");
    let config = levity_config::parse(&format!("[[site]]\nrespond = {{}}\nlimit = [{tables}]\n"));
    let config = config.expect(&tables);
    let registry = Registry::default();
    let limits = config.sites[0].location.rate_limits.iter();
    limits
        .map(|limit| registry.limit(limit, "", 1 << 16))
        .collect()
}

fn hits(limit: &RateLimit) -> u64 {
    limit.figure().count
}

#[test]
fn a_refused_request_counts_nowhere_and_waits_for_all() {
    let limits = limits(&[
        "requests = \"3/s\"",
        "connections = 5",
        "requests = \"1/60s\", per = \"route\"",
        "requests = \"1/30s\", per = \"file\"",
    ]);
    let now = Instant::now();
    let ask = |path: &[u8]| {
        let mut charges = Charges::default();
        charges.admit(&limits, CLIENT, path, now)
    };
    assert_eq!(ask(b"/"), Ok(()));
    for _ in 0..10 {
        assert_eq!(ask(b"/"), Err(Duration::from_secs(60)));
        assert_eq!(ask(b"/a"), Err(Duration::from_secs(60)));
    }
    assert_eq!(hits(&limits[0]), 0);
    // Those that another limit has refused have not passed.
    for limit in &limits {
        assert_eq!(limit.figure().allowed, 1);
    }
    assert_eq!((hits(&limits[2]), hits(&limits[3])), (20, 10));
    let mut charges = Charges::default();
    assert_eq!(charges.admit(&limits[..2], CLIENT, b"/", now), Ok(()));
    assert!(charges.first_hit().is_none());
}

/// A rewritten request meets the limits of its site again, and those of another route for the first time.
#[test]
fn a_limit_counts_a_request_once() {
    let limits = limits(&["requests = \"2/60s\"", "connections = 1"]);
    let now = Instant::now();
    let mut charges = Charges::default();
    for _ in 0..5 {
        assert_eq!(charges.admit(&limits, CLIENT, b"/", now), Ok(()));
    }
    let mut second = Charges::default();
    let refused = second.admit(&limits, CLIENT, b"/", now);
    assert_eq!(refused, Err(Duration::from_secs(1)));
    assert!(
        second
            .first_hit()
            .is_some_and(|limit| ptr::eq(limit, &*limits[1]))
    );
    drop(charges);
    assert_eq!(Charges::default().admit(&limits, CLIENT, b"/", now), Ok(()));
    let third = Charges::default().admit(&limits, CLIENT, b"/", now);
    assert_eq!(third, Err(Duration::from_secs(30)));
}

/// More limits than a location may have, as after rewrites.
#[test]
fn many_limits() {
    let tables: Vec<_> = (0..RATE_LIMITS_MAX)
        .map(|number| format!("connections = 1, name = \"{number}\""))
        .collect();
    let tables: Vec<_> = tables.iter().map(String::as_str).collect();
    let (first, second) = (limits(&tables), limits(&tables));
    let now = Instant::now();
    let mut charges = Charges::default();
    for limits in [&first, &second, &first] {
        assert_eq!(charges.admit(limits, CLIENT, b"/", now), Ok(()));
    }
    assert_eq!(charges.levels().count(), 3);
    assert_eq!(charges.all_counted().count(), 2 * RATE_LIMITS_MAX);
    assert!(
        Charges::default()
            .admit(&second, CLIENT, b"/", now)
            .is_err()
    );
    drop(charges);
    assert_eq!(Charges::default().admit(&second, CLIENT, b"/", now), Ok(()));
}

#[test]
fn a_dry_run_lets_everything_pass() {
    let limits = limits(&[
        "requests = \"1/60s\", report_only = true",
        "connections = 1, report_only = true",
        "bytes = \"1000/s\", report_only = true",
        "requests = \"20/s\"",
    ]);
    let now = Instant::now();
    let mut running = Vec::new();
    for number in 0..20 {
        let mut charges = Charges::default();
        assert_eq!(charges.admit(&limits, CLIENT, b"/", now), Ok(()));
        for _ in 0..3 {
            let grant = charges.bytes(1 << 20, now);
            assert_eq!((grant.bytes, grant.at), (1 << 20, None), "{number}");
        }
        let hit = charges.first_hit().map(RateLimit::name);
        let expected = match number {
            0 => "1000/s per client",
            _ => "1/60s per client",
        };
        assert_eq!(hit, Some(expected));
        running.push(charges);
    }
    let counts = [0, 1, 2, 3].map(|number| hits(&limits[number]));
    assert_eq!(counts, [19, 19, 20, 0]);
    // One that refuses is named in place of one that reports.
    let mut charges = Charges::default();
    assert!(charges.admit(&limits, CLIENT, b"/", now).is_err());
    assert!(charges.first_hit().is_some_and(|hit| !hit.only_reports()));
}

#[test]
fn the_slowest_limit_of_bytes_counts() {
    let limits = limits(&[
        "bytes = \"1000/s\", per = \"client\"",
        "bytes = \"100000/s\", per = \"route\"",
        "requests = \"100/s\"",
    ]);
    let now = Instant::now();
    let mut charges = Charges::default();
    assert_eq!(charges.admit(&limits, CLIENT, b"/", now), Ok(()));
    assert!(charges.limit_bytes());
    let first = charges.bytes(1 << 20, now);
    assert_eq!(first.bytes, 1000);
    let wait = first.at.expect("only a quarter of it may leave at once") - now;
    assert_eq!(wait.as_millis().div_ceil(10), 75);
    charges.give_back(1000);
    assert_eq!(charges.bytes(250, now).at, None);
    charges.bytes(1000, now);
    assert_eq!((hits(&limits[0]), hits(&limits[1])), (1, 0));
}
