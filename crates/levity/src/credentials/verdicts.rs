//! What a worker knows about passwords that it has seen: verdicts, and passwords that are being verified.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::generations::Generations;
use super::guesses::{Check, WRONG_TTL};
use super::{Digest, Guess};
use crate::message::client_prefix::ClientPrefix;

/// How long a right password is not verified again.
const RIGHT_TTL: Duration = Duration::from_secs(300);

/// Verdicts in each of two generations: of wrong passwords, and of right ones by client. About 1.5 MiB in all.
const VERDICTS_MAX: usize = 4096;

/// The verdicts of one worker.
pub struct Verdicts {
    /// Right passwords that a client itself has given. The bounds on guessing are not asked about them.
    earned: Generations<Guess>,
    /// Apart, so that guesses do not drive out right passwords.
    wrong: Generations<Digest>,
    pending: HashMap<Digest, Rc<Pending>>,
}

/// A password that is being verified.
#[derive(Default)]
pub struct Pending {
    /// Those of all clients that wait. They belong to nobody's request: a client that leaves is charged for its guess.
    checks: RefCell<HashMap<ClientPrefix, Check>>,
    is_right: Cell<Option<bool>>,
    ended: Cell<bool>,
    changed: Notify,
}

impl Default for Verdicts {
    fn default() -> Self {
        Self {
            earned: Generations::new(VERDICTS_MAX),
            wrong: Generations::new(VERDICTS_MAX),
            pending: HashMap::new(),
        }
    }
}

impl Verdicts {
    /// Whether the client itself has given this password here, and it was right.
    pub fn is_earned(&self, guess: &Guess, now: Instant) -> bool {
        self.earned.has(guess, now)
    }

    /// The client may come in with this password, which is right.
    pub fn earn(&mut self, guess: Guess, now: Instant) {
        self.earned.insert(guess, now + RIGHT_TTL);
    }

    /// Whether the password was found to be wrong. Any client may have given it, so only one whose guess is counted may learn it.
    pub fn is_wrong(&self, digest: &Digest, now: Instant) -> bool {
        self.wrong.has(digest, now)
    }

    /// The verification in progress, if there is one.
    pub fn pending(&self, digest: &Digest) -> Option<Rc<Pending>> {
        self.pending.get(digest).cloned()
    }

    /// A verification begins. It must [end](Self::end).
    pub fn begin(&mut self, digest: Digest, check: Check) -> Rc<Pending> {
        let pending = Rc::new(Pending::default());
        pending.add(check);
        self.pending.insert(digest, pending.clone());
        pending
    }

    /// A verification has ended, without a verdict if it failed.
    pub fn end(&mut self, digest: Digest, is_right: Option<bool>, now: Instant) {
        if is_right == Some(false) {
            self.wrong.insert(digest, now + WRONG_TTL);
        }
        if let Some(pending) = self.pending.remove(&digest) {
            pending.end(is_right, now);
        }
    }
}

impl Pending {
    /// Whether the client waits for this verdict.
    pub fn has(&self, client: ClientPrefix) -> bool {
        self.checks.borrow().contains_key(&client)
    }

    /// Another client waits for the verdict.
    pub fn join(&self, check: Check) {
        self.add(check);
    }

    fn add(&self, check: Check) {
        self.checks.borrow_mut().insert(check.client(), check);
    }

    fn end(&self, is_right: Option<bool>, now: Instant) {
        let checks = self.checks.take();
        if let Some(is_right) = is_right {
            checks
                .into_values()
                .for_each(|check| check.finish(is_right, now));
        }
        self.is_right.set(is_right);
        self.ended.set(true);
        self.changed.notify_waiters();
    }

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
    use std::sync::Arc;

    use super::super::guesses::{Admission, Guesses};
    use super::*;

    fn digest(number: usize) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn a_wrong_password_is_known_for_a_time() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        verdicts.end(digest(1), Some(false), now);
        verdicts.end(digest(2), Some(true), now);
        verdicts.end(digest(3), None, now);
        assert!(verdicts.is_wrong(&digest(1), now));
        assert!(!verdicts.is_wrong(&digest(1), now + WRONG_TTL));
        assert!(!verdicts.is_wrong(&digest(2), now) && !verdicts.is_wrong(&digest(3), now));
    }

    fn check(guesses: &Arc<Guesses>, guess: Guess, now: Instant) -> Check {
        match guesses.begin(guess, now) {
            Ok(Admission::Check(check)) => check,
            _ => panic!("refused, or right"),
        }
    }

    #[tokio::test]
    async fn all_who_wait_get_the_verdict_and_are_charged_for_it() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        let guesses = Guesses::new(1);
        let by = |ip: &str| Guess {
            client: ClientPrefix::new(Some(ip.parse().expect("an address"))),
            digest: digest(1),
        };
        let (one, other) = (by("192.0.2.1"), by("192.0.2.2"));
        for outcome in [Some(false), None, Some(true)] {
            verdicts.begin(digest(1), check(&guesses, one, now));
            let pending = verdicts.pending(&digest(1)).expect("it is pending");
            assert!(pending.has(one.client) && !pending.has(other.client));
            pending.join(check(&guesses, other, now));
            assert!(pending.has(other.client));
            let (first, second) = (pending.verdict(), pending.verdict());
            let end = async { verdicts.end(digest(1), outcome, now) };
            let (first, second, ()) = tokio::join!(first, second, end);
            assert_eq!((first, second), (outcome, outcome));
            assert!(verdicts.pending(&digest(1)).is_none());
        }
        for guess in [one, other] {
            let admission = guesses.begin(guess, now);
            assert!(matches!(admission, Ok(Admission::Right)));
        }
    }
}
