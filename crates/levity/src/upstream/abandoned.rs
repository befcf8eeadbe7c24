//! Responses that are read although their clients are away, as `resume` has it. They hold connections to backends that others
//! may need, so they have at most half of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::pool::Pool;

/// The abandoned responses of a pool.
#[derive(Debug, Default)]
pub struct AbandonedResponses {
    /// Their numbers, in ascending order.
    numbers: RefCell<VecDeque<u64>>,
    next: Cell<u64>,
}

impl AbandonedResponses {
    fn add(&self) -> u64 {
        let number = self.next.replace(self.next.get() + 1);
        self.numbers.borrow_mut().push_back(number);
        number
    }

    fn remove(&self, number: u64) {
        let mut numbers = self.numbers.borrow_mut();
        if let Ok(at) = numbers.binary_search(&number) {
            numbers.remove(at);
        }
    }

    /// Whether the response is one of the oldest, beyond `max`.
    fn is_surplus(&self, number: u64, max: usize) -> bool {
        let numbers = self.numbers.borrow();
        let surplus = numbers.len().saturating_sub(max);
        numbers.binary_search(&number).is_ok_and(|at| at < surplus)
    }
}

/// A response that is abandoned until this is dropped.
pub struct Abandoned {
    pool: Rc<Pool>,
    number: u64,
}

impl Abandoned {
    /// Notes that a response of the upstream of `pool` is abandoned from now on.
    pub fn new(pool: Rc<Pool>) -> Self {
        Self {
            number: pool.abandoned().add(),
            pool,
        }
    }

    /// Whether it is to end, because it is the oldest and the upstream has too many.
    pub fn gives_way(&self) -> bool {
        let max = self.pool.connections_max() / 2;
        let gives_way = self.pool.abandoned().is_surplus(self.number, max);
        if gives_way {
            self.pool.report_stream(
                "half of `connections` have no client, and it was away for the longest time",
            );
        }
        gives_way
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.pool.abandoned().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_give_way() {
        let responses = AbandonedResponses::default();
        let [first, second, third] = [(); 3].map(|()| responses.add());
        assert!(!responses.is_surplus(first, 3));
        assert!(responses.is_surplus(first, 2) && !responses.is_surplus(second, 2));
        responses.remove(second);
        assert!(!responses.is_surplus(first, 2) && !responses.is_surplus(third, 1));
        assert!(responses.is_surplus(third, 0) && !responses.is_surplus(second, 0));
    }
}
