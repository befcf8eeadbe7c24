use super::super::registry::Registry;
use super::*;

/// The only limit of a site, with these keys.
fn limit(keys: &str) -> Arc<RateLimit> {
    let text = format!("[[site]]\nrespond = {{}}\nlimit = [{{ {keys} }}]\n");
    let config = levity_config::parse(&text).expect(keys);
    let settings = &config.sites[0].location.rate_limits[0];
    Registry::default().limit(settings, "", 1 << 16)
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().expect("an address"))
}

/// The requests of one key that pass if one comes each `step_ms` for `seconds`.
fn passed(limit: &RateLimit, step_ms: u64, seconds: u64) -> u64 {
    let (key, start) = (limit.key(None, b"/"), Instant::now());
    let steps = 0..seconds * 1000 / step_ms;
    let at = |step| start + Duration::from_millis(step * step_ms);
    let passes = |step: &u64| limit.admit(key, at(*step)).is_ok();
    steps.filter(passes).count() as u64
}

#[test]
fn the_rate_is_met() {
    // At once, and then one each tenth of a second.
    assert_eq!(passed(&limit("requests = \"100/10s\""), 1, 10), 100 + 99);
    let after = "requests = \"100/10s\", after = 50";
    assert_eq!(passed(&limit(after), 1, 10), 50 + 99);
    assert_eq!(passed(&limit("requests = \"10/s\", after = 1"), 1, 10), 100);
    // Whoever asks more slowly always gets through.
    let slow = "requests = \"100/10s\", after = 1";
    assert_eq!(passed(&limit(slow), 101, 10), 10_000 / 101);
}

#[test]
fn whoever_waits_as_long_as_told_gets_through() {
    let limit = limit("requests = \"7/60s\"");
    let (key, mut now) = (limit.key(None, b"/"), Instant::now());
    let mut passed = 0;
    while passed < 50 {
        match limit.admit(key, now) {
            Ok(()) => passed += 1,
            Err(wait) => {
                let almost = now + wait - Duration::from_nanos(1);
                assert!(limit.admit(key, almost).is_err());
                now += wait;
                assert_eq!(limit.admit(key, now), Ok(()), "{passed}");
                passed += 1;
            }
        }
    }
}

#[test]
fn what_shares_a_key() {
    let keys = [
        (ip("192.0.2.1"), b"/a"),
        (ip("192.0.2.2"), b"/a"),
        (ip("192.0.2.1"), b"/b"),
        (ip("192.0.2.2"), b"/b"),
    ];
    for (per, expected) in [
        ("client", [0, 1, 0, 1]),
        ("file", [0, 0, 2, 2]),
        ("route", [0, 0, 0, 0]),
    ] {
        let limit = limit(&format!("requests = \"1/s\", per = \"{per}\""));
        let keys = keys.map(|(client, path)| limit.key(client, path));
        let first = keys.map(|key| keys.iter().position(|other| *other == key));
        assert_eq!(first, expected.map(Some), "{per}");
    }
    let limit = limit("requests = \"1/s\", ipv4_prefix = 24, ipv6_prefix = 48");
    let key = |text| limit.key(ip(text), b"");
    assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.200"));
    assert_ne!(key("192.0.2.1"), key("192.0.3.1"));
    assert_eq!(key("2001:db8:1:2::"), key("2001:db8:1:3::"));
    assert_ne!(key("2001:db8:1::"), key("2001:db8:2::"));
    assert_eq!(limit.key(None, b"/a"), limit.key(None, b"/b"));
}

#[test]
fn a_reload_finds_the_limits_that_stay() {
    let registry = Registry::default();
    let settings = |keys: &str| limit(keys).settings.clone();
    let (one, other) = (settings("requests = \"1/s\""), settings("connections = 1"));
    let first = registry.limit(&one, "a", 1 << 16);
    assert!(Arc::ptr_eq(&first, &registry.limit(&one, "a", 1 << 16)));
    for (settings, scope) in [(&one, "b"), (&other, "a")] {
        let differs = registry.limit(settings, scope, 1 << 16);
        assert!(!Arc::ptr_eq(&first, &differs));
        assert!(Arc::ptr_eq(&first.table, &differs.table));
        assert_ne!(first.key(None, b""), differs.key(None, b""));
    }
    let moved = registry.limit(&one, "a", 1 << 17);
    assert!(!Arc::ptr_eq(&first.table, &moved.table));
    drop(first);
    drop(moved);
    first_is_gone(&registry);
}

/// Limits that nobody uses are dropped, with the table.
fn first_is_gone(registry: &Registry) {
    let figures = registry.figures();
    assert!(figures.limits.is_empty() && figures.table.is_none());
}

/// The bytes that `clients` responses under one key have sent after `time`, if each looks again every 0.1 s.
fn sent(limit: &RateLimit, clients: usize, time: Duration) -> u64 {
    const WANT: u64 = 1 << 30;
    let (key, start) = (limit.key(None, b""), Instant::now());
    let mut waiting: Vec<(u64, Instant)> = vec![(0, start); clients];
    let (mut total, mut now) = (0, start);
    while now <= start + time {
        for (bytes, at) in &mut waiting {
            while *at <= now {
                total += *bytes;
                *bytes = limit.portion(key, now, WANT).expect("a limit of bytes");
                *at = match limit.reserve(key, now, *bytes) {
                    Slowed::No => now,
                    Slowed::Until(at) => at,
                };
            }
        }
        now += Duration::from_millis(100);
    }
    total
}

#[test]
fn a_rate_of_bytes_is_met_by_one_response_and_by_many() {
    for (keys, per_second, after) in [
        ("bytes = \"1MiB/s\"", 1 << 20, 1 << 18),
        ("bytes = \"1MiB/s\", after = \"8MiB\"", 1 << 20, 8 << 20),
        ("bytes = \"100MB/s\"", 100_000_000, 25_000_000),
        ("bytes = \"20KB/s\"", 20_000, 5_000),
    ] {
        for clients in [1, 20] {
            let seconds = 20;
            let sent = sent(&limit(keys), clients, Duration::from_secs(seconds));
            let expected = after + per_second * seconds;
            let difference = sent.abs_diff(expected) as f64 / expected as f64;
            assert!(difference < 0.02, "{keys}, {clients}: {sent} of {expected}");
        }
    }
}

#[test]
fn bytes_that_were_not_sent_are_given_back() {
    let limit = limit("bytes = \"1000/s\", after = 1000");
    let (key, now) = (limit.key(None, b""), Instant::now());
    assert_eq!(limit.portion(key, now, 600), Some(600));
    assert_eq!(limit.reserve(key, now, 600), Slowed::No);
    assert_eq!(limit.portion(key, now, 5000), Some(1000));
    limit.give_back(key, 600);
    assert_eq!(limit.reserve(key, now, 1000), Slowed::No);
    let Slowed::Until(at) = limit.reserve(key, now, 500) else {
        panic!("nothing is left");
    };
    assert_eq!((at - now).as_millis().div_ceil(10), 50);
}

#[test]
fn the_last_hits_are_logged_without_another() {
    let limit = limit("requests = \"1/s\"");
    let unlogged = || limit.unlogged.load(Ordering::Relaxed);
    let now = Instant::now();
    limit.log_rest(now);
    for _ in 0..4 {
        limit.hit(ip("192.0.2.1"), now);
    }
    // The first is in a line of its own.
    assert_eq!(unlogged(), 3);
    limit.log_rest(now + REST_AFTER - Duration::from_millis(1));
    assert_eq!(unlogged(), 3);
    limit.log_rest(now + REST_AFTER);
    assert_eq!(unlogged(), 0);
    // That was a line.
    limit.hit(ip("192.0.2.1"), now + REST_AFTER + Duration::from_secs(1));
    assert_eq!(unlogged(), 1);
    // Clients that come now and then have their own lines.
    limit.hit(ip("192.0.2.1"), now + REST_AFTER + LOG_INTERVAL);
    assert_eq!(unlogged(), 0);
}

#[test]
fn a_block_of_one_address_is_an_address() {
    for (keys, client, shown) in [
        ("", "192.0.2.1", "192.0.2.1"),
        ("", "::ffff:192.0.2.1", "192.0.2.1"),
        ("", "2001:db8::1", "2001:db8::/64"),
        (", ipv4_prefix = 31", "192.0.2.1", "192.0.2.0/31"),
        (", ipv6_prefix = 128", "2001:db8::1", "2001:db8::1"),
    ] {
        let limit = limit(&format!("requests = \"1/s\"{keys}"));
        assert_eq!(limit.whom(ip(client)), shown);
    }
    assert_eq!(
        limit("requests = \"1/s\"").whom(None),
        "a client of a Unix socket"
    );
    assert_eq!(
        (requests(1), requests(2)),
        ("1 request".to_owned(), "2 requests".to_owned())
    );
}
