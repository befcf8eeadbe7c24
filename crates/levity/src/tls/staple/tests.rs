//! When responders are asked.

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

fn staple(now: SystemTime, age: Duration, rest: Duration) -> Staple {
    Staple {
        der: Vec::new(),
        this_update: now - age,
        next_update: now + rest,
    }
}

fn known(now: SystemTime) -> Known {
    Known {
        question: None,
        file: PathBuf::new(),
        staple: None,
        due: Some(now),
        failures: 0,
        complaint: None,
    }
}

#[test]
fn a_response_is_renewed_at_about_half_of_its_life() {
    let now = SystemTime::now();
    let fresh = staple(now, Duration::ZERO, 100 * HOUR);
    assert_eq!(after_success(&fresh, now, 0.0), now + 50 * HOUR);
    assert_eq!(after_success(&fresh, now, 1.0), now + 40 * HOUR);
    // A responder that has nothing newer is not asked at each look.
    let old = staple(now, 99 * HOUR, HOUR);
    assert_eq!(after_success(&old, now, 0.0), now + HOUR / 2);
    let ending = staple(now, HOUR, Duration::from_secs(1));
    assert_eq!(after_success(&ending, now, 0.0), now + INTERVAL_MIN);
    assert!((0..1000).all(|_| (0.0..1.0).contains(&random())));
}

#[test]
fn delays_double_with_each_failure() {
    let minutes =
        [1, 2, 3, 6, 7, 33, u32::MAX].map(|failures| after_failures(failures).as_secs() / 60);
    assert_eq!(minutes, [1, 2, 4, 32, 60, 60, 60]);
}

#[test]
fn a_failure_leaves_a_response_that_is_valid_and_a_revocation_does_not() {
    let now = SystemTime::now();
    let mut known = known(now);
    known.note(&Ok(staple(now, HOUR, HOUR)), now);
    assert!(known.staple_at(now).is_some());
    known.note(&Err(Refusal::Unusable(String::new())), now);
    assert_eq!(known.due, Some(now + RETRY_DELAY_MIN));
    assert!(known.staple_at(now + HOUR - 2 * MARGIN).is_some());
    assert!(known.staple_at(now + HOUR - MARGIN).is_none());
    known.note(&Err(Refusal::Revoked), now);
    assert_eq!(known.due, Some(now + 2 * RETRY_DELAY_MIN));
    assert!(known.staple_at(now).is_none());
}
