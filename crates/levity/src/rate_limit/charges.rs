//! What one request has taken from limits.

use std::cell::Cell;
use std::iter;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_config::RATE_LIMITS_MAX;

use super::limit::{RateLimit, Slowed};
use super::table::Key;
use crate::message::client::Client;

/// What a request has taken from the limits of a location, and of those that it was rewritten at. Concurrent requests are counted
/// until it is dropped. Small, because it is a part of every request.
#[derive(Default)]
pub struct Charges<'a> {
    client: Option<&'a Client>,
    limits: &'a [Arc<RateLimit>],
    /// The key under which the request counts, for each of `limits`; `None` where it does not count.
    keys: [Option<Key>; RATE_LIMITS_MAX],
    /// The limits that have refused the request or slowed down the response, or would have; a bit each.
    hits: Cell<u8>,
    earlier: Option<Box<Charges<'a>>>,
    /// The request is only explained: what hits it is neither counted nor logged.
    is_explained: bool,
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
    /// Nothing so far, of a request that is answered or only explained.
    pub fn new(is_explained: bool) -> Self {
        let mut none = Self::default();
        none.is_explained = is_explained;
        none
    }

    /// Counts a request of `client` for `path` under `limits`, except those that it has met before.
    ///
    /// # Errors
    /// How long the client has to wait. The request then counts nowhere.
    pub fn admit(
        &mut self,
        limits: &'a [Arc<RateLimit>],
        client: &'a Client,
        path: &[u8],
        now: Instant,
    ) -> Result<(), Duration> {
        if ptr::eq(self.limits, limits) {
            return Ok(());
        }
        if !self.limits.is_empty() {
            let next = Self::new(self.is_explained);
            self.earlier = Some(Box::new(mem::replace(self, next)));
        }
        (self.client, self.limits) = (Some(client), limits);
        let mut wait: Option<Duration> = None;
        for (index, limit) in limits.iter().enumerate() {
            if self.has_met_before(limit) {
                continue;
            }
            let key = limit.key(client.ip, path);
            match limit.admit(key, now) {
                Ok(()) => self.keys[index] = Some(key),
                Err(more) => {
                    self.hit(index, now);
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
        self.all_counted().any(|(limit, _)| limit.is_of_bytes())
    }

    /// Takes up to `want` bytes, at least one, from the limits of bytes.
    pub fn bytes(&self, want: usize, now: Instant) -> Grant {
        let want = want as u64;
        let portions = self.all_counted();
        let portions = portions.filter_map(|(limit, key)| limit.portion(key, now, want));
        let bytes = portions.min().unwrap_or(want);
        let until = self.levels().filter_map(|level| level.reserve(bytes, now));
        Grant {
            at: until.max(),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// Takes bytes from the limits of one location. Returns when they may leave, if not now.
    fn reserve(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let mut until = None;
        for (index, limit, key) in self.counted() {
            if let Slowed::Until(instant) = limit.reserve(key, now, bytes) {
                if self.hits.get() & bit(index) == 0 {
                    self.hit(index, now);
                }
                if !limit.only_reports() {
                    until = until.max(Some(instant));
                }
            }
        }
        until
    }

    /// Gives back bytes that were not sent.
    pub fn give_back(&self, bytes: usize) {
        for (limit, key) in self.all_counted() {
            limit.give_back(key, bytes as u64);
        }
    }

    /// The limit that has refused the request or slowed down the response; else one that would have.
    pub fn first_hit(&self) -> Option<&'a RateLimit> {
        let hit = |level: &Self| {
            let (limits, hits) = (level.limits.iter().enumerate(), level.hits.get());
            limits.filter(move |(index, _)| hits & bit(*index) != 0)
        };
        let hits = || self.levels().flat_map(hit).map(|(_, limit)| &**limit);
        hits()
            .find(|limit| !limit.only_reports())
            .or_else(|| hits().next())
    }

    fn hit(&self, index: usize, now: Instant) {
        self.hits.update(|hits| hits | bit(index));
        if !self.is_explained {
            let client = self.client.and_then(|client| client.ip);
            self.limits[index].hit(client, now);
        }
    }

    fn has_met_before(&self, limit: &Arc<RateLimit>) -> bool {
        let mut met = self.levels().skip(1).flat_map(|level| level.limits);
        met.any(|met| Arc::ptr_eq(met, limit))
    }

    /// Itself, and the locations before.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |level| level.earlier.as_deref())
    }

    /// The limits of this location under which the request counts.
    fn counted(&self) -> impl Iterator<Item = (usize, &'a RateLimit, Key)> {
        let limits = self.limits.iter().zip(self.keys).enumerate();
        limits.filter_map(|(index, (limit, key))| Some((index, &**limit, key?)))
    }

    fn all_counted(&self) -> impl Iterator<Item = (&'a RateLimit, Key)> {
        let counted = self.levels().flat_map(Self::counted);
        counted.map(|(_, limit, key)| (limit, key))
    }

    /// The request is refused. It has met its limits all the same.
    fn undo(&mut self) {
        self.counted().for_each(|(_, limit, key)| limit.undo(key));
        self.keys = [None; RATE_LIMITS_MAX];
        if let Some(earlier) = &mut self.earlier {
            earlier.undo();
        }
    }
}

fn bit(index: usize) -> u8 {
    1 << index
}

impl Drop for Charges<'_> {
    fn drop(&mut self) {
        for (index, limit, key) in self.counted() {
            // Not before: a later limit may have refused the request, and a limit of bytes slowed down the response.
            if self.hits.get() & bit(index) == 0 {
                limit.count_passed();
            }
            limit.end(key);
        }
    }
}

#[cfg(test)]
mod tests;
