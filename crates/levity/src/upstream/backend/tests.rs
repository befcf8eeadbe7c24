use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;

const FAIL_FOR: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

fn at(address: &str) -> Backend {
    let address: Address = address.parse().expect("address");
    let entry = upstream::Backend {
        at: At::Address(address.clone()),
        weight: 3,
        backup: false,
        drain: false,
        tls: None,
    };
    Backend::new(address, &entry)
}

fn backend() -> Backend {
    at("127.0.0.1:9000")
}

/// Long enough after the start that earlier times exist.
fn now() -> Instant {
    start() + Duration::from_secs(1000)
}

fn ejected(now: Instant) -> Backend {
    let backend = backend();
    assert!(backend.failed(now, 1, FAIL_FOR));
    backend
}

#[test]
fn ids_are_the_same_in_every_release() {
    // The published test vectors of FNV-1a.
    assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    for address in ["127.0.0.1:9000", "[::1]:80", "unix:/run/app.sock"] {
        assert_eq!(at(address).id, fingerprint(address.as_bytes()));
    }
    assert_eq!(at("[0:0:0:0:0:0:0:1]:80").id, at("[::1]:80").id);
}

#[test]
fn a_standing_fits_into_a_word() {
    for standing in [
        Standing::WELL,
        Standing::In {
            failures: u16::MAX,
            first_ms: Standing::MS_MASK,
        },
        Standing::Out { until_ms: 7 },
        Standing::Trial {
            until_ms: Standing::MS_MASK,
        },
    ] {
        assert_eq!(Standing::of_word(standing.word()), standing);
    }
}

#[test]
fn consecutive_failures_eject_it_once() {
    let (backend, now) = (backend(), now());
    assert!(!backend.failed(now, 3, FAIL_FOR));
    assert!(!backend.failed(now + SECOND, 3, FAIL_FOR));
    assert!(backend.is_up(now + SECOND));
    assert!(backend.failed(now + 2 * SECOND, 3, FAIL_FOR));
    assert!(!backend.is_up(now + 2 * SECOND));
    assert!(!backend.failed(now + 2 * SECOND, 3, FAIL_FOR));
    assert_eq!(
        backend.back_at(now + 3 * SECOND),
        Some(now + 2 * SECOND + FAIL_FOR)
    );
}

#[test]
fn old_failures_are_forgotten() {
    let (backend, now) = (backend(), now());
    assert!(!backend.failed(now, 2, FAIL_FOR));
    let later = now + FAIL_FOR + SECOND;
    assert!(!backend.failed(later, 2, FAIL_FOR));
    assert!(backend.failed(later + SECOND, 2, FAIL_FOR));
}

#[test]
fn a_success_resets_the_count() {
    let (backend, now) = (backend(), now());
    for _ in 0..5 {
        assert!(!backend.failed(now, 2, FAIL_FOR));
        assert!(!backend.succeeded(now), "it was not out");
    }
    assert!(backend.is_up(now));
}

#[test]
fn late_failures_do_not_extend_the_ejection() {
    let now = now();
    let backend = ejected(now);
    for seconds in 1..10 {
        backend.failed(now + seconds * SECOND, 1, FAIL_FOR);
    }
    assert!(!backend.is_up(now + FAIL_FOR - SECOND));
    assert!(backend.is_up(now + FAIL_FOR));
}

#[test]
fn a_trial_that_succeeds_brings_it_back() {
    let now = now();
    let backend = ejected(now);
    let later = now + FAIL_FOR;
    assert!(backend.is_up(later));
    assert!(backend.begin(later, SECOND).is_some());
    assert!(!backend.is_up(later), "one at a time");
    assert!(backend.succeeded(later), "tells that it is back");
    assert!(backend.is_up(later));
    assert!(!backend.succeeded(later));
}

#[test]
fn a_failed_trial_extends_the_ejection() {
    let now = now();
    let backend = ejected(now);
    let later = now + FAIL_FOR;
    assert!(backend.begin(later, SECOND).is_some());
    assert!(!backend.failed(later, 5, FAIL_FOR), "it was out already");
    assert!(!backend.is_up(later + FAIL_FOR - SECOND));
    assert!(backend.is_up(later + FAIL_FOR));
}

#[test]
fn a_trial_without_a_result_passes_to_the_next_request() {
    let now = now();
    let backend = ejected(now);
    let later = now + FAIL_FOR;
    assert_eq!(backend.begin(later, SECOND), Some(Begun::Trial));
    backend.end_trial(later);
    assert_eq!(backend.begin(later, SECOND), Some(Begun::Trial));
    // Its failure still counts as a failed trial.
    backend.end_trial(later);
    backend.failed(later, 5, FAIL_FOR);
    assert!(!backend.is_up(later + FAIL_FOR - SECOND));
    backend.succeeded(later);
    assert_eq!(backend.begin(later, SECOND), Some(Begun::Ordinary));
    backend.end_trial(later);
    assert!(backend.is_up(later));
}

#[test]
fn a_trial_that_lasts_too_long_passes_to_another_request() {
    let now = now();
    let backend = ejected(now);
    let later = now + FAIL_FOR;
    assert!(backend.begin(later, SECOND).is_some());
    assert!(!backend.is_up(later + SECOND / 2));
    assert!(backend.is_up(later + SECOND));
    assert!(backend.begin(later + SECOND, SECOND).is_some());
    assert!(!backend.is_up(later + SECOND));
}

#[test]
fn only_an_ejected_backend_needs_a_trial_and_not_early() {
    let now = now();
    let backend = backend();
    assert!((0..3).all(|_| backend.begin(now, SECOND).is_some()));
    assert!(backend.failed(now, 1, FAIL_FOR));
    assert!(backend.begin(now + SECOND, SECOND).is_none());
    assert_eq!(backend.back_at(now), Some(now + FAIL_FOR));
}

#[test]
fn only_one_of_many_threads_gets_the_trial() {
    const THREADS: usize = 8;
    for round in 0..200 {
        let now = now() + round * SECOND;
        let backend = ejected(now);
        let (barrier, trials) = (Barrier::new(THREADS), AtomicUsize::new(0));
        let later = now + FAIL_FOR;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    // As a request does.
                    if backend.is_up(later) && backend.begin(later, SECOND).is_some() {
                        trials.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(trials.load(Ordering::Relaxed), 1);
        assert!(backend.succeeded(later));
    }
}

#[test]
fn only_one_of_many_failures_reports_the_ejection() {
    const THREADS: usize = 8;
    let (backend, now) = (backend(), now());
    let told = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..1000 {
                    if backend.failed(now, 5000, FAIL_FOR) {
                        told.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(!backend.is_up(now));
}

#[test]
fn checks_have_the_last_word() {
    let now = now();
    let backend = ejected(now);
    assert!(backend.set_well(false, now));
    assert!(!backend.set_well(false, now));
    assert!(!backend.is_up(now + FAIL_FOR));
    assert_eq!(backend.back_at(now), None);
    assert!(backend.set_well(true, now));
    assert!(backend.is_up(now), "failures before the check are over");
    assert!(!backend.set_well(true, now));
}

#[test]
fn the_share_rises_evenly_after_a_return() {
    let (backend, now) = (backend(), now());
    let full = 3 * SHARE_OF_WEIGHT;
    assert_eq!(backend.share(now, FAIL_FOR), full, "it was never away");
    assert!(backend.set_well(false, now));
    assert!(backend.set_well(true, now));
    assert_eq!(backend.share(now, FAIL_FOR), 1);
    assert_eq!(backend.share(now + FAIL_FOR / 2, FAIL_FOR), full / 2);
    assert_eq!(backend.share(now + FAIL_FOR, FAIL_FOR), full);
    assert_eq!(backend.share(now, Duration::ZERO), full);
    let trial = ejected(now);
    assert!(trial.succeeded(now + FAIL_FOR));
    assert_eq!(trial.share(now + FAIL_FOR + SECOND, 4 * SECOND), full / 4);
}

#[test]
fn health_can_be_copied() {
    let now = now();
    let known = ejected(now);
    let new = backend().with_health_of(&known);
    assert!(!new.is_up(now));
    assert!(new.is_up(now + FAIL_FOR));
}

#[test]
fn very_long_times_do_not_overflow() {
    let (backend, now) = (backend(), now());
    assert!(backend.failed(now, 1, Duration::MAX));
    assert!(!backend.is_up(now + FAIL_FOR));
    assert!(backend.back_at(now).is_some());
    backend.succeeded(now);
    assert!(backend.share(now + SECOND, Duration::MAX) >= 1);
}

#[test]
fn an_outage_lasts_from_the_first_failure_to_the_next_response() {
    let (backend, now) = (backend(), now());
    assert_eq!(backend.end_outage(now), None);
    backend.count_failure(now);
    backend.count_failure(now + SECOND);
    backend.begin_outage(now + SECOND);
    assert_eq!(backend.end_outage(now + 3 * SECOND), Some((3 * SECOND, 2)));
    assert_eq!(backend.end_outage(now + 3 * SECOND), None);
}
