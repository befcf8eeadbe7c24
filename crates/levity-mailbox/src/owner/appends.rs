//! Appends that have begun. The results of a box are taken in the order of the calls, and one box does not wait for another.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::Replies;
use crate::name::Name;
use crate::store::{Appended, Appending, StoreError};

type Results = Vec<Result<Appended, StoreError>>;

/// The end of the append of that number.
type Ending = Pin<Box<dyn Future<Output = (u64, Results)>>>;

/// Appends, by numbers in the order of the calls.
#[derive(Default)]
pub(super) struct Appends {
    /// Those that ended at once, as in memory, while no other was pending. They come before all others.
    at_once: VecDeque<Append>,
    next: u64,
    begun: HashMap<u64, Append>,
    /// The appends to each box.
    of_boxes: HashMap<Name, VecDeque<u64>>,
    pending: FuturesUnordered<Ending>,
    /// Those that have ended, with no earlier one to any of their boxes.
    ended: VecDeque<u64>,
}

/// An append to some boxes.
pub(super) struct Append {
    pub names: Vec<Name>,
    /// What it has ended with.
    pub results: Option<Results>,
    pub reply: Replies,
}

impl Appends {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.at_once.is_empty()
    }

    /// Adds one that follows all others.
    pub(super) fn push(&mut self, names: Vec<Name>, mut appending: Appending, reply: Replies) {
        let results = match self.begun.is_empty() {
            true => (&mut appending).now_or_never(),
            false => None,
        };
        let append = Append {
            names,
            results,
            reply,
        };
        if append.results.is_some() {
            return self.at_once.push_back(append);
        }
        let number = self.next;
        self.next += 1;
        for name in &append.names {
            let of_box = self.of_boxes.entry(name.clone()).or_default();
            if of_box.back() != Some(&number) {
                of_box.push_back(number);
            }
        }
        self.begun.insert(number, append);
        let appending = async move { (number, appending.await) };
        self.pending.push(Box::pin(appending));
    }

    /// Waits for the end of one of them.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some((number, results)) = ready!(self.pending.poll_next_unpin(context)) else {
            return Poll::Pending;
        };
        if let Some(append) = self.begun.get_mut(&number) {
            append.results = Some(results);
        }
        self.note_end(number);
        Poll::Ready(())
    }

    /// One that has ended.
    pub(super) fn take(&mut self) -> Option<Append> {
        if let Some(append) = self.at_once.pop_front() {
            return Some(append);
        }
        let number = self.ended.pop_front()?;
        let append = self.begun.remove(&number)?;
        for name in &append.names {
            if let Some(following) = self.leave(name, number) {
                self.note_end(following);
            }
        }
        Some(append)
    }

    /// Ends the turn of an append at a box. Returns the one that follows.
    fn leave(&mut self, name: &Name, number: u64) -> Option<u64> {
        let of_box = self.of_boxes.get_mut(name)?;
        if of_box.front() != Some(&number) {
            return None;
        }
        of_box.pop_front();
        let following = of_box.front().copied();
        if following.is_none() {
            self.of_boxes.remove(name);
        }
        following
    }

    /// Notes an append that has ended, if no earlier one holds it up.
    fn note_end(&mut self, number: u64) {
        let is_first = |name: &Name| {
            let of_box = self.of_boxes.get(name);
            of_box.and_then(VecDeque::front) == Some(&number)
        };
        let append = self.begun.get(&number);
        if append.is_some_and(|one| one.results.is_some() && one.names.iter().all(is_first)) {
            self.ended.push_back(number);
        }
    }
}
