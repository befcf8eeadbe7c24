//! Taking from a resource, for one exchange.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use levity_disk::OpenFile;
use tokio::time::{self, Instant};

use super::account::{Account, Held};
use super::holder::Holder;
use super::stakes::{FileHold, STALLED_AFTER, Stakes};
use super::{Portion, Resource, Shares, Shortage};
use crate::http::client::Client;

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
            holder: Holder::of_request(self.client, self.connection),
            stream: self.stream,
        }
    }
}

/// Takes for one exchange.
#[derive(Clone)]
pub struct Claims {
    stakes: Rc<Stakes>,
    holder: Holder,
    stream: u64,
}

impl Claims {
    /// Nothing of `resource` yet.
    pub fn nothing(&self, resource: Resource, portion: Portion) -> Held {
        let exchange = (self.holder, self.stream);
        self.stakes.nothing(exchange, resource, portion)
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
        taken.inspect_err(|_| count_refused(self.stakes.shares(), resource))?;
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
            // Boxed: few have to wait.
            Err(_) => Box::pin(self.wait_to_grow(held, more)).await,
        }
    }

    async fn wait_to_grow(&self, held: &mut Held, more: usize) -> Result<(), Shortage> {
        let _wanted = Wanted::new(held, more);
        let end = Instant::now() + WAIT_MAX;
        loop {
            let swept = time::timeout_at(end, self.stakes.swept.notified()).await;
            match held.try_grow(more) {
                Err(shortage) if swept.is_err() => {
                    count_refused(held.shares(), held.resource());
                    return Err(shortage);
                }
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Counts `file`, which is open, as long as the result lives.
    pub fn hold_file(&self, file: &Arc<OpenFile>) -> FileHold {
        self.stakes.hold_file((self.holder, self.stream), file)
    }
}

fn count_refused(shares: &Shares, resource: Resource) {
    let refused = &shares.pool(resource).refused;
    refused.fetch_add(1, Ordering::Relaxed);
}

/// Somebody waits for an amount of a resource. Meanwhile its client counts as one that holds some, so that the share of others is
/// smaller. What is beyond its own share is taken from nobody.
struct Wanted {
    shares: Arc<Shares>,
    account: Arc<Account>,
    resource: Resource,
    portion: Portion,
    amount: usize,
}

impl Wanted {
    fn new(held: &Held, amount: usize) -> Self {
        let (shares, resource) = (held.shares().clone(), held.resource());
        let account = held.account().clone();
        account.enter(&shares, resource);
        let is_within = account.is_within_share(&shares, resource, amount);
        let it = Self {
            shares,
            account,
            resource,
            portion: held.portion(),
            amount: if is_within { amount } else { 0 },
        };
        it.counter().fetch_add(amount, Ordering::Relaxed);
        it
    }

    fn counter(&self) -> &AtomicUsize {
        &self.shares.pool(self.resource).wanted[self.portion as usize]
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.counter().fetch_sub(self.amount, Ordering::Relaxed);
        self.account.leave(&self.shares, self.resource);
    }
}
