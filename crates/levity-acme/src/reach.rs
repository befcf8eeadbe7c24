//! Whether an authority can be reached.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Log;

/// How long nobody tries to reach an authority that could not be reached: each name would wait for a time-out.
const PAUSE: Duration = Duration::from_secs(60);

/// What is known of the way to an authority.
#[derive(Debug)]
pub struct Reach {
    /// Its host.
    host: String,
    log: Log,
    /// Since the first request that failed, until there is a response.
    outage: Mutex<Option<Outage>>,
}

#[derive(Debug)]
struct Outage {
    reason: String,
    /// When the last request was given up.
    given_up: Option<Instant>,
}

impl Reach {
    pub fn new(host: &str, log: Log) -> Self {
        Self {
            host: host.to_owned(),
            log,
            outage: Mutex::default(),
        }
    }

    /// Why the authority could not be reached a moment ago, if nothing else is known since.
    pub fn outage(&self) -> Option<String> {
        let outage = self.lock();
        let outage = outage.as_ref()?;
        let is_recent = outage.given_up.is_some_and(|at| at.elapsed() < PAUSE);
        is_recent.then(|| outage.reason.clone())
    }

    /// Notes a request that has not reached it. The first one is logged.
    pub fn failed(&self, reason: &str) {
        let mut outage = self.lock();
        if outage.is_none() {
            (self.log)(format_args!(
                "the authority {} cannot be reached: {reason}",
                self.host
            ));
        }
        let given_up = outage.take().and_then(|before| before.given_up);
        *outage = Some(Outage {
            reason: reason.to_owned(),
            given_up,
        });
    }

    /// Notes that a request is not sent again.
    pub fn give_up(&self) {
        if let Some(outage) = self.lock().as_mut() {
            outage.given_up = Some(Instant::now());
        }
    }

    /// Notes a response.
    pub fn answered(&self) {
        if self.lock().take().is_some() {
            (self.log)(format_args!("the authority {} answers again", self.host));
        }
    }

    /// Has the next request sent, whatever was found.
    pub fn try_again(&self) {
        if let Some(outage) = self.lock().as_mut() {
            outage.given_up = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_outage_is_logged_once_and_remembered() {
        static LINES: AtomicUsize = AtomicUsize::new(0);
        let reach = Reach::new("ca.test", |_| {
            LINES.fetch_add(1, Ordering::Relaxed);
        });
        let lines = || LINES.load(Ordering::Relaxed);
        reach.answered();
        assert_eq!(lines(), 0);
        reach.failed("refused");
        reach.failed("late");
        // The request is still sent again.
        assert_eq!((lines(), reach.outage()), (1, None));
        reach.give_up();
        assert_eq!(reach.outage().as_deref(), Some("late"));
        reach.try_again();
        assert_eq!(reach.outage(), None);
        reach.failed("refused");
        reach.give_up();
        reach.answered();
        assert_eq!((lines(), reach.outage()), (2, None));
        reach.failed("refused");
        assert_eq!(lines(), 3);
    }
}
