//! The queue of one device: whose turn it is.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use crate::engine::Class;
use crate::intake::Waiting;
use crate::loads::Load;

/// Jobs of class `First` in a row before one of class `Next` gets its turn.
const FIRST_IN_A_ROW_MAX: usize = 3;

/// The queue of one device. Kept once made: their number is that of the mounts ever seen.
pub(crate) struct Lane {
    /// Where others read how full it is.
    load: Arc<Load>,
    first: VecDeque<Waiting>,
    next: VecDeque<Waiting>,
    pub(crate) in_flight: usize,
    /// Jobs of class `First` started since the last of class `Next`.
    first_in_a_row: usize,
}
impl Lane {
    pub(crate) fn new(load: Arc<Load>) -> Lane {
        Lane {
            load,
            first: VecDeque::new(),
            next: VecDeque::new(),
            in_flight: 0,
            first_in_a_row: 0,
        }
    }

    /// Call it after every change, before the lock is let go.
    pub(crate) fn tell(&self) {
        self.load.set(self.queued(), self.in_flight);
    }

    pub(crate) fn empty(&mut self) -> VecDeque<Waiting> {
        let mut all = mem::take(&mut self.first);
        all.append(&mut self.next);
        self.tell();
        all
    }

    pub(crate) fn queued(&self) -> usize {
        self.first.len() + self.next.len()
    }

    pub(crate) fn queue(&mut self, class: Class) -> &mut VecDeque<Waiting> {
        match class {
            Class::First => &mut self.first,
            Class::Next | Class::Prefetch => &mut self.next,
        }
    }

    /// Takes the jobs that nobody waits for off the heads of both queues.
    pub(crate) fn drop_unwanted(&mut self, unwanted: &mut Vec<Waiting>) {
        for queue in [&mut self.first, &mut self.next] {
            while queue.front().is_some_and(|head| !head.job.reply.wanted()) {
                unwanted.extend(queue.pop_front());
            }
        }
        self.tell();
    }

    /// Whose turn it is, if there is a slot.
    pub(crate) fn next_class(&self, depth: usize) -> Option<Class> {
        if self.in_flight >= depth {
            return None;
        }
        match (self.first.is_empty(), self.next.is_empty()) {
            (true, true) => None,
            (true, false) => Some(Class::Next),
            (false, true) => Some(Class::First),
            (false, false) if self.first_in_a_row < FIRST_IN_A_ROW_MAX => Some(Class::First),
            (false, false) => Some(Class::Next),
        }
    }

    /// Bytes that the next job of a class reads.
    pub(crate) fn len_of_next(&mut self, class: Class) -> usize {
        let next = self.queue(class).front();
        next.map_or(0, |waiting| waiting.job.op.memory())
    }

    pub(crate) fn pop(&mut self, class: Class) -> Option<Waiting> {
        match class {
            Class::First => self.first_in_a_row += 1,
            Class::Next | Class::Prefetch => self.first_in_a_row = 0,
        }
        self.queue(class).pop_front()
    }
}
