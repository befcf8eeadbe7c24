//! What one request has taken from limits.

use std::cell::Cell;
use std::net::IpAddr;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_config::RATE_LIMITS_MAX;

use super::limit::{RateLimit, Slowed};
use super::table::Key;

/// A limit that a request has met, with the key that it counts under; without one if the limit would have refused it.
type Charge<'a> = (&'a RateLimit, Option<Key>);

/// What a request has taken. Concurrent requests are counted until it is dropped.
#[derive(Default)]
pub struct Charges<'a> {
    client: Option<IpAddr>,
    first: [Option<Charge<'a>>; RATE_LIMITS_MAX],
    /// A request that was rewritten may meet the limits of several routes.
    rest: Vec<Charge<'a>>,
    limits_bytes: bool,
    /// The charges whose limits have slowed down the response, a bit each.
    slowed: Cell<u32>,
    /// The index of the charge whose limit is in the log.
    hit: Cell<Option<usize>>,
}

/// Bytes that a response may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// At least one, and at most as many as were asked for.
    pub bytes: usize,
    /// Not before this instant; `None` for now.
    pub at: Option<Instant>,
}

impl<'a> Charges<'a> {
    /// Counts a request of `client` for `path` under `limits`, except those that it has met before.
    ///
    /// # Errors
    /// How long the client has to wait. The request then counts nowhere.
    pub fn admit(
        &mut self,
        limits: &'a [Arc<RateLimit>],
        client: Option<IpAddr>,
        path: &[u8],
        now: Instant,
    ) -> Result<(), Duration> {
        self.client = client;
        let mut wait: Option<Duration> = None;
        for limit in limits {
            if self.iter().any(|(met, _)| ptr::eq(met, &**limit)) {
                continue;
            }
            let key = limit.key(client, path);
            match limit.admit(key, now) {
                Ok(()) => {
                    self.push(limit, Some(key));
                }
                Err(more) => {
                    limit.hit(client, now);
                    let index = self.push(limit, None);
                    self.note(index, limit);
                    if !limit.only_reports() {
                        // The other limits are asked too, because the client has to wait for the last of them.
                        wait = wait.max(Some(more));
                    }
                }
            }
        }
        match wait {
            None => Ok(()),
            Some(wait) => {
                self.undo();
                Err(wait)
            }
        }
    }

    /// Whether a limit applies to the bytes of the response.
    pub fn limit_bytes(&self) -> bool {
        self.limits_bytes
    }

    /// Takes up to `want` bytes, at least one, from the limits of bytes.
    pub fn bytes(&self, want: usize, now: Instant) -> Grant {
        let want = want as u64;
        let portions = self.counted();
        let portions = portions.filter_map(|(limit, key)| limit.portion(key, now, want));
        let bytes = portions.min().unwrap_or(want);
        let mut at = None;
        for (index, (limit, key)) in self.iter().enumerate() {
            let slowed = key.map(|key| limit.reserve(key, now, bytes));
            if let Some(Slowed::Until(instant)) = slowed {
                let bit = 1_u32.wrapping_shl(u32::try_from(index).unwrap_or_default());
                if self.slowed.get() & bit == 0 {
                    self.slowed.update(|slowed| slowed | bit);
                    limit.hit(self.client, now);
                    self.note(index, limit);
                }
                if !limit.only_reports() {
                    at = at.max(Some(instant));
                }
            }
        }
        Grant {
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            at,
        }
    }

    /// Gives back bytes that were not sent.
    pub fn give_back(&self, bytes: usize) {
        for (limit, key) in self.counted() {
            limit.give_back(key, bytes as u64);
        }
    }

    /// The limit that has refused the request or slowed down the response; else one that would have.
    pub fn hit(&self) -> Option<&'a RateLimit> {
        let (limit, _) = self.iter().nth(self.hit.get()?)?;
        Some(limit)
    }

    /// Keeps the limit of a charge for the log, unless there is one that matters as much.
    fn note(&self, index: usize, limit: &RateLimit) {
        let is_stronger = |noted: &RateLimit| noted.only_reports() && !limit.only_reports();
        if self.hit().is_none_or(is_stronger) {
            self.hit.set(Some(index));
        }
    }

    /// Returns the index of the charge.
    fn push(&mut self, limit: &'a RateLimit, key: Option<Key>) -> usize {
        self.limits_bytes |= limit.is_of_bytes();
        match self.first.iter().position(Option::is_none) {
            Some(free) => {
                self.first[free] = Some((limit, key));
                free
            }
            None => {
                self.rest.push((limit, key));
                self.first.len() + self.rest.len() - 1
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = Charge<'a>> {
        let first = self.first.iter().map_while(|charge| *charge);
        first.chain(self.rest.iter().copied())
    }

    fn counted(&self) -> impl Iterator<Item = (&'a RateLimit, Key)> {
        self.iter().filter_map(|(limit, key)| Some((limit, key?)))
    }

    /// The request is refused. It has met its limits all the same.
    fn undo(&mut self) {
        self.counted().for_each(|(limit, key)| limit.undo(key));
        let first = self.first.iter_mut().flatten();
        first.chain(&mut self.rest).for_each(|(_, key)| *key = None);
        self.limits_bytes = false;
    }
}

impl Drop for Charges<'_> {
    fn drop(&mut self) {
        self.counted().for_each(|(limit, key)| limit.end(key));
    }
}

#[cfg(test)]
mod tests;
