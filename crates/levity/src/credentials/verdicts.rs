//! What a worker knows about passwords that it has seen: verdicts, and passwords that are being verified.

use std::cell::Cell;
use std::collections::HashMap;
use std::mem;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Digest;

/// How long a right password is not verified again.
const RIGHT_TTL: Duration = Duration::from_secs(300);

/// How long a wrong password is not verified again: a program that repeats it costs one hash in this time.
const WRONG_TTL: Duration = Duration::from_secs(5);

/// Verdicts in each of two generations, of right passwords and of wrong ones each. About 1 MiB in all.
const VERDICTS_MAX: usize = 4096;

/// The verdicts of one worker.
#[derive(Default)]
pub struct Verdicts {
    /// Apart, so that guesses do not drive them out.
    right: Generations,
    wrong: Generations,
    pending: HashMap<Digest, Rc<Pending>>,
}

/// A password that is being verified.
#[derive(Default)]
pub struct Pending {
    is_right: Cell<Option<bool>>,
    ended: Cell<bool>,
    changed: Notify,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Digest, Instant>,
    old: HashMap<Digest, Instant>,
}

impl Generations {
    /// Whether the digest is known, and will be for some time.
    fn has(&self, digest: &Digest, now: Instant) -> bool {
        let until = self.young.get(digest).or_else(|| self.old.get(digest));
        until.is_some_and(|until| now < *until)
    }

    fn insert(&mut self, digest: Digest, until: Instant) {
        if self.young.len() >= VERDICTS_MAX {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(digest, until);
    }
}

impl Verdicts {
    /// Whether the password is right; `None` if that is not known.
    pub fn get(&self, digest: &Digest, now: Instant) -> Option<bool> {
        match (self.right.has(digest, now), self.wrong.has(digest, now)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// The verification in progress, if there is one.
    pub fn pending(&self, digest: &Digest) -> Option<Rc<Pending>> {
        self.pending.get(digest).cloned()
    }

    /// A verification begins. It must [end](Self::end).
    pub fn begin(&mut self, digest: Digest) -> Rc<Pending> {
        let pending = Rc::new(Pending::default());
        self.pending.insert(digest, pending.clone());
        pending
    }

    /// A verification has ended, without a verdict if it failed.
    pub fn end(&mut self, digest: Digest, is_right: Option<bool>, now: Instant) {
        match is_right {
            Some(true) => self.right.insert(digest, now + RIGHT_TTL),
            Some(false) => self.wrong.insert(digest, now + WRONG_TTL),
            None => {}
        }
        if let Some(pending) = self.pending.remove(&digest) {
            pending.is_right.set(is_right);
            pending.ended.set(true);
            pending.changed.notify_waiters();
        }
    }
}

impl Pending {
    /// Waits for the end. Returns the verdict, `None` if the verification failed.
    pub async fn verdict(&self) -> Option<bool> {
        while !self.ended.get() {
            self.changed.notified().await;
        }
        self.is_right.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn a_right_password_is_known_for_longer_than_a_wrong_one() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        assert_eq!(verdicts.get(&digest(1), now), None);
        verdicts.end(digest(1), Some(true), now);
        verdicts.end(digest(2), Some(false), now);
        verdicts.end(digest(3), None, now);
        let at = |number, later| verdicts.get(&digest(number), now + later);
        assert_eq!(
            (at(1, Duration::ZERO), at(2, Duration::ZERO)),
            (Some(true), Some(false))
        );
        assert_eq!(at(3, Duration::ZERO), None);
        assert_eq!((at(1, WRONG_TTL), at(2, WRONG_TTL)), (Some(true), None));
        assert_eq!(at(1, RIGHT_TTL), None);
    }

    #[test]
    fn guesses_do_not_drive_out_right_passwords() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        verdicts.end(digest(0), Some(true), now);
        for number in 1..4 * VERDICTS_MAX {
            verdicts.end(digest(number), Some(false), now);
        }
        assert_eq!(verdicts.get(&digest(0), now), Some(true));
        assert!(verdicts.wrong.young.len() + verdicts.wrong.old.len() <= 2 * VERDICTS_MAX);
    }

    #[tokio::test]
    async fn all_who_wait_get_the_verdict() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        for outcome in [Some(true), Some(false), None] {
            verdicts.begin(digest(1));
            let pending = verdicts.pending(&digest(1)).expect("it is pending");
            let (first, second) = (pending.verdict(), pending.verdict());
            let end = async { verdicts.end(digest(1), outcome, now) };
            let (first, second, ()) = tokio::join!(first, second, end);
            assert_eq!((first, second), (outcome, outcome));
            assert!(verdicts.pending(&digest(1)).is_none());
        }
    }
}
