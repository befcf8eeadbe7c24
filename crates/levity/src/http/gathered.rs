//! The part of a request body that is in memory.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource, Shortage};

/// Bytes of a request body in memory, which count to the client's share of `Resource::Bodies`. Only [`RequestBody`] adds some. Those of
/// the server's own requests are few, and count to no share.
///
/// [`RequestBody`]: super::request_body::RequestBody
#[derive(Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    /// As much as there are bytes, and during a poll as many more as may be added. `None` until the first, and during a wait.
    held: Option<Held>,
    wait: Option<Wait>,
}

/// The wait for more memory, with what is held already.
type Wait = Pin<Box<dyn Future<Output = (Held, Result<(), Shortage>)>>>;

impl Gathered {
    /// Waits until `more` bytes may be added; the next call of [`add`](Self::add) adds them.
    ///
    /// # Errors
    /// When there was no room in time.
    pub(super) fn poll_room(
        &mut self,
        claims: &Claims,
        more: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Shortage>> {
        if self.wait.is_none() {
            if self.try_room(claims, more).is_ok() {
                return Poll::Ready(Ok(()));
            }
            self.wait = self.held.take().map(|mut held| {
                let claims = claims.clone();
                Box::pin(async move {
                    let grown = claims.grow(&mut held, more).await;
                    (held, grown)
                }) as Wait
            });
        }
        let Some(wait) = &mut self.wait else {
            return Poll::Ready(Ok(()));
        };
        let (held, grown) = ready!(wait.as_mut().poll(context));
        (self.wait, self.held) = (None, Some(held));
        Poll::Ready(grown)
    }

    /// The same without a wait. What there is room for already is not taken again.
    ///
    /// # Errors
    /// When there is no room.
    pub(super) fn try_room(&mut self, claims: &Claims, more: usize) -> Result<(), Shortage> {
        let nothing = || claims.nothing(Resource::Bodies, Portion::Whole);
        let held = self.held.get_or_insert_with(nothing);
        let room = held.amount().saturating_sub(self.bytes.len());
        held.try_grow(more.saturating_sub(room))
    }

    /// Calls `add` with the bytes, and gives back the room that it has not used. Without bytes no memory is kept.
    pub(super) fn add<T>(&mut self, add: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let added = add(&mut self.bytes);
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
        self.count();
        added
    }

    /// Whether it waits for memory, and not for the client.
    pub fn waits_for_room(&self) -> bool {
        self.wait.is_some()
    }

    /// Removes all bytes, whose memory the next ones may use.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count();
    }

    /// Room for parts of a body that are read from a file, each of at most as many bytes as `held` has.
    pub fn for_parts(held: Held) -> Self {
        Self {
            held: Some(held),
            ..Self::default()
        }
    }

    /// Replaces the bytes by the next such part, or by those of a request of the server's own.
    pub fn set_part(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// The bytes, and what they hold, even during a wait for more: it is to be dropped with them.
    pub fn into_parts(self) -> (Vec<u8>, impl Sized) {
        (self.bytes, (self.held, self.wait))
    }

    fn count(&mut self) {
        if let Some(held) = &mut self.held {
            let bytes = self.bytes.len();
            // A client over HTTP/1 may have sent a little more together with its header.
            held.grow(bytes.saturating_sub(held.amount()));
            held.shrink_to(bytes);
        }
    }
}

impl Deref for Gathered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Gathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gathered({} bytes)", self.bytes.len())
    }
}
