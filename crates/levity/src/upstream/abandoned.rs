//! Responses that are read although their clients are away, as `resume` has it. They hold connections to backends that others
//! may need, so they have at most half of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

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
    among: Rc<AbandonedResponses>,
    number: u64,
}

impl Abandoned {
    /// Notes that a response is abandoned from now on.
    pub fn new(among: Rc<AbandonedResponses>) -> Self {
        Self {
            number: among.add(),
            among,
        }
    }

    /// Whether it is one of the oldest, beyond `max`.
    pub fn is_surplus(&self, max: usize) -> bool {
        self.among.is_surplus(self.number, max)
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.among.remove(self.number);
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
