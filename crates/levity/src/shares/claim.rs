//! Taking from a resource, for one exchange.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{self, Instant};

use super::account::Held;
use super::common::{Common, CommonHold};
use super::holder::Holder;
use super::stakes::{Exchange, STALLED_AFTER, Stakes};
use super::{Portion, Resource, Shortage};
use crate::message::client::Client;

/// How long an exchange waits for a resource: longer than it takes others to be stalled.
pub const WAIT_MAX: Duration = STALLED_AFTER.saturating_add(Duration::from_secs(1));

/// Who asks for something, as an exchange knows it.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// The client.
    pub client: &'a Client,
    /// The number of its connection.
    pub connection: u64,
    /// The number of the stream, which is that of its timer.
    pub stream: u64,
}

impl Requester<'_> {
    /// Takes for its exchange, on the event loop of `stakes`.
    pub fn claims(&self, stakes: &Rc<Stakes>) -> Claims {
        Claims {
            stakes: stakes.clone(),
            exchange: Exchange {
                holder: Holder::of_request(self.client, self.connection),
                connection: self.connection,
                stream: self.stream,
            },
        }
    }
}

/// Takes for one exchange.
#[derive(Clone)]
pub struct Claims {
    stakes: Rc<Stakes>,
    exchange: Exchange,
}

impl Claims {
    /// Nothing of `resource` yet.
    pub fn nothing(&self, resource: Resource, portion: Portion) -> Held {
        self.stakes.nothing(self.exchange, resource, portion)
    }

    /// How much there is of `resource`.
    pub fn max(&self, resource: Resource) -> usize {
        self.stakes.shares().max(resource)
    }

    /// Whether anybody may take one more of `resource`.
    pub fn is_plenty(&self, resource: Resource) -> bool {
        self.stakes.shares().is_plenty(resource)
    }

    /// Nothing yet of what may outlive the exchange, and which its end need not give back: it counts to the client only.
    pub fn nothing_lasting(&self, resource: Resource, portion: Portion) -> Held {
        let holder = self.exchange.holder;
        self.stakes.nothing_lasting(holder, resource, portion)
    }

    /// Takes `amount` of `resource`, if there is as much. Does not wait.
    ///
    /// # Errors
    /// When there is not.
    pub fn try_take(
        &self,
        resource: Resource,
        amount: usize,
        portion: Portion,
    ) -> Result<Held, Shortage> {
        let mut held = self.nothing(resource, portion);
        let taken = held.try_grow(amount);
        taken.inspect_err(|_| held.count_missed(amount))?;
        Ok(held)
    }

    /// The same, but waits for it, at most [`WAIT_MAX`].
    ///
    /// # Errors
    /// When there was not as much in that time.
    pub async fn take(
        &self,
        resource: Resource,
        amount: usize,
        portion: Portion,
    ) -> Result<Held, Shortage> {
        let mut held = self.nothing(resource, portion);
        self.grow(&mut held, amount).await?;
        Ok(held)
    }

    /// Takes `more` in addition to `held`. Waits in the same way.
    ///
    /// # Errors
    /// When there was not as much in that time. Then it has as much as before.
    pub async fn grow(&self, held: &mut Held, more: usize) -> Result<(), Shortage> {
        match held.try_grow(more) {
            Ok(()) => Ok(()),
            Err(shortage) if !held.may_have(more) => {
                held.count_refused();
                Err(shortage)
            }
            // Boxed: few have to wait.
            Err(_) => Box::pin(self.wait_to_grow(held, more)).await,
        }
    }

    async fn wait_to_grow(&self, held: &mut Held, more: usize) -> Result<(), Shortage> {
        let wanted = Wanted::new(held, more);
        let end = Instant::now() + WAIT_MAX;
        loop {
            wanted.note();
            let swept = time::timeout_at(end, self.stakes.swept.notified()).await;
            match wanted.held.try_grow(more) {
                Err(shortage) if swept.is_err() => {
                    wanted.held.count_refused();
                    return Err(shortage);
                }
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Counts `common` as long as the result lives.
    pub fn hold(&self, common: Arc<dyn Common>) -> CommonHold {
        self.stakes.hold(self.exchange, common)
    }
}

#[cfg(test)]
impl Claims {
    /// Those of a client that is alone, where encoders and decoders have `coders` bytes each.
    pub fn alone(coders: usize) -> Self {
        let shares = super::Shares::new(&super::Bounds {
            files: 0,
            coders,
            bodies: 0,
            spool: 0,
        });
        Self {
            stakes: Stakes::new(shares),
            exchange: Exchange {
                holder: Holder::Connection(0),
                connection: 0,
                stream: 0,
            },
        }
    }

    /// How much of `resource` is used.
    pub fn used(&self, resource: Resource) -> usize {
        self.stakes.shares().used(resource)
    }
}

/// Somebody waits for an amount of a resource.
struct Wanted<'h> {
    held: &'h mut Held,
    amount: usize,
    /// It is added to what all want.
    is_added: bool,
}

impl<'h> Wanted<'h> {
    fn new(held: &'h mut Held, amount: usize) -> Self {
        held.set_awaited(true);
        let is_added = !held.is_over_share(amount);
        if is_added {
            held.wanted().fetch_add(amount, Ordering::Relaxed);
        }
        Self {
            held,
            amount,
            is_added,
        }
    }

    /// Has it reclaimed. For a client that has its share one part after the other: if all that has stalled made way for what waits
    /// of the same client, nothing would have stalled when another one comes.
    fn note(&self) {
        if !self.is_added {
            self.held.note_missed(self.amount);
        }
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        if self.is_added {
            self.held.wanted().fetch_sub(self.amount, Ordering::Relaxed);
        }
        self.held.set_awaited(false);
    }
}
