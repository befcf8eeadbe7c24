//! What is unread of request bodies beyond the window of a connection.
//!
//! A body that gives its credit back frees memory, but what the client may send because of it cannot be taken back. If the client
//! sends that for bodies that nobody reads, it counts to its share again. To leave it in the socket would be cheaper, but there it
//! holds up whatever the client sends behind it: the windows of its responses, and the end of the very bodies that are in the way.

use std::rc::Rc;

use super::Conn;
use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource, Shortage};

/// The memory of what is unread beyond the window.
#[derive(Default)]
pub(super) struct Excess {
    /// For the client of the last body. Before the first one there is no credit.
    claims: Option<Rc<Claims>>,
    held: Option<Held>,
}

impl Excess {
    /// Has as much as `bytes`, or less.
    fn shrink_to(&mut self, bytes: usize) {
        match &mut self.held {
            Some(held) if bytes > 0 => held.shrink_to(bytes),
            _ => self.held = None,
        }
    }

    /// What it has, and how much less than `bytes` that is.
    fn lacking(&mut self, bytes: usize) -> Option<(&mut Held, usize)> {
        let amount = self.held.as_ref().map_or(0, Held::amount);
        let lacking = bytes.checked_sub(amount).filter(|&lacking| lacking > 0)?;
        let claims = self.claims.as_ref()?;
        // Of no exchange: it may be that of several bodies.
        let nothing = || claims.nothing_lasting(Resource::Bodies, Portion::Whole);
        Some((self.held.get_or_insert_with(nothing), lacking))
    }
}

impl Conn {
    /// What is unread counts as `claims` from now on.
    pub(in crate::http::h2) fn count_excess_as(&self, claims: &Rc<Claims>) {
        self.excess.borrow_mut().claims = Some(claims.clone());
    }

    /// Something has arrived.
    ///
    /// # Errors
    /// When there is no memory for what is unread beyond the window.
    pub(in crate::http::h2) fn take_excess(&self) -> Result<(), Shortage> {
        let bytes = self.excess_bytes();
        match self.excess.borrow_mut().lacking(bytes) {
            Some((held, lacking)) => {
                let taken = held.try_grow(lacking);
                taken.inspect_err(|_| held.count_missed(lacking))
            }
            None => Ok(()),
        }
    }

    /// Something was read, or the window has changed: what had a place in it is here already.
    pub(super) fn follow_excess(&self) {
        let bytes = self.excess_bytes();
        let mut excess = self.excess.borrow_mut();
        excess.shrink_to(bytes);
        if let Some((held, lacking)) = excess.lacking(bytes) {
            held.grow(lacking);
        }
    }

    fn excess_bytes(&self) -> usize {
        self.wire.borrow().excess() as usize
    }
}
