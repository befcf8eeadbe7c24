use std::time::Duration;

use super::*;

/// Settings of an upstream whose backends are at `to`, as the file would say it.
pub fn settings(to: &[&str]) -> levity_config::Upstream {
    let site = "[[site]]\nroot = \"/srv\"";
    let text = format!("[[upstream]]\nname = \"app\"\nto = {to:?}\nfail_after = 2\n{site}");
    let config = levity_config::parse(&text).expect("a valid file");
    config.upstreams.into_iter().next().expect("an upstream")
}

fn upstream(to: &[&str]) -> Upstream {
    Upstream::new(settings(to)).expect("upstream")
}

#[test]
fn sockets_on_remote_file_systems_are_named() {
    let mounts = Mounts::parse(
        b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 22 0:44 /vol /srv rw - nfs4 host:/vol rw",
    );
    let upstream = upstream(&["unix:/srv/app.sock", "unix:/run/app.sock", "127.0.0.1:1"]);
    let lines: Vec<_> = upstream.remote_sockets(&mounts).collect();
    let start = "upstream app: unix:/srv/app.sock is on nfs4, ";
    assert!(lines.len() == 1 && lines[0].starts_with(start), "{lines:?}");
}

#[test]
fn backends_are_found_by_what_the_file_says() {
    let upstream = upstream(&["App.Example:80", "127.0.0.1:81", "localhost:82", "[::1]:83"]);
    for (host, port, is_there) in [
        ("app.example", 80, true),
        ("app.example", 443, false),
        ("app", 80, false),
        ("127.0.0.1", 81, true),
        ("localhost", 81, true),
        ("[::1]", 81, false),
        ("localhost", 82, true),
        ("127.0.0.1", 82, true),
        ("[::1]", 82, true),
        ("[::1]", 83, true),
        ("localhost", 84, false),
    ] {
        assert_eq!(
            upstream.has_backend_at(host, port),
            is_there,
            "{host} {port}"
        );
    }
    assert!(upstream.is_at(b"app", 80) && !upstream.is_at(b"app", 81));
}

#[cfg(feature = "tls")]
#[test]
fn a_backend_with_tls_has_the_port_of_https() {
    let tls = super::Upstream::new(settings(&["https://a.example"])).expect("upstream");
    assert!(tls.has_backend_at("a.example", 443) && !tls.has_backend_at("a.example", 80));
}

#[test]
fn the_only_backend_is_never_ejected() {
    let now = Instant::now();
    for to in [
        &["127.0.0.1:1"][..],
        &["127.0.0.1:1", "127.0.0.1:2 drain", "127.0.0.1:3 drain"],
    ] {
        let upstream = upstream(to);
        let backends = upstream.backends();
        (0..10).for_each(|_| upstream.failed(&backends[0], now, format_args!("refused")));
        assert!(backends[0].is_up(now), "{to:?}");
    }
}

#[test]
fn a_failing_backend_is_ejected_and_comes_back() {
    let now = Instant::now();
    let upstream = upstream(&["127.0.0.1:1", "127.0.0.1:2"]);
    let backends = upstream.backends();
    upstream.failed(&backends[0], now, format_args!("refused"));
    assert!(backends[0].is_up(now));
    upstream.failed(&backends[0], now, format_args!("refused"));
    assert!(!backends[0].is_up(now) && backends[1].is_up(now));
    upstream.succeeded(&backends[0], now);
    assert!(backends[0].is_up(now));
}

#[test]
fn fail_for_zero_ejects_no_backend() {
    let now = Instant::now();
    let mut settings = settings(&["127.0.0.1:1", "127.0.0.1:2"]);
    settings.fail_for = Duration::ZERO;
    let upstream = Upstream::new(settings).expect("upstream");
    let backends = upstream.backends();
    (0..10).for_each(|_| upstream.failed(&backends[0], now, format_args!("refused")));
    assert!(backends[0].is_up(now));
}

#[test]
fn an_unchanged_upstream_is_reused() {
    let settings = settings(&["127.0.0.1:1"]);
    let old = make(std::slice::from_ref(&settings), None).expect("made");
    let mut other = settings.clone();
    other.name = "other".into();
    let new = make(&[other, settings], Some(&old)).expect("made");
    assert!(Arc::ptr_eq(&old[0], &new[1]));
    assert_ne!(old[0].number, new[0].number);
}

#[test]
fn health_survives_changed_settings() {
    let now = Instant::now();
    let first = settings(&["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]);
    let mut second = settings(&["127.0.0.1:2", "127.0.0.1:1"]);
    second.to[0].weight = 5;
    let old = make(&[first], None).expect("made");
    let is_out = |backend: &Arc<Backend>| {
        assert!(backend.failed(now, 1, Duration::from_secs(10)));
    };
    old[0].backends()[..2].iter().for_each(is_out);
    let new = make(&[second], Some(&old)).expect("made");
    assert_ne!(old[0].number, new[0].number);
    let backends = new[0].backends();
    assert!(!backends[0].is_up(now) && backends[0].weight == 5);
    assert!(!backends[1].is_up(now) && backends[1].weight == 1);
}

#[test]
fn removing_the_check_clears_its_result() {
    let now = Instant::now();
    let old = make(&[settings(&["127.0.0.1:1", "127.0.0.1:2"])], None).expect("made");
    old[0].backends()[0].set_well(false, now);
    let mut settings = settings(&["127.0.0.1:1", "127.0.0.1:2"]);
    settings.retry.times = 7;
    let new = make(&[settings], Some(&old)).expect("made");
    assert!(new[0].backends()[0].is_up(now));
}
