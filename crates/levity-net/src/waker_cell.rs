//! A place for the waker of one task.

use std::cell::Cell;
use std::fmt;
use std::task::{Context, Waker};

/// The waker of the task that waits for something, at most one.
#[derive(Default)]
pub struct WakerCell(Cell<Option<Waker>>);

impl WakerCell {
    /// The task of `context` waits, instead of one before.
    pub fn set(&self, context: &Context<'_>) {
        let known = self.0.take();
        let known = known.filter(|known| known.will_wake(context.waker()));
        self.0.set(known.or_else(|| Some(context.waker().clone())));
    }

    /// Wakes the task, which waits no longer.
    pub fn wake(&self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }

    /// Wakes the task, which waits on.
    pub fn wake_by_ref(&self) {
        if let Some(waker) = self.0.take() {
            waker.wake_by_ref();
            self.0.set(Some(waker));
        }
    }

    /// The task that waits.
    pub fn get(&self) -> Option<Waker> {
        let waker = self.0.take();
        self.0.set(waker.clone());
        waker
    }
}

impl fmt::Debug for WakerCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WakerCell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::wakes::Wakes;

    #[test]
    fn the_last_task_is_woken_once_or_as_often_as_asked() {
        let (cell, early, late) = (
            WakerCell::default(),
            Arc::new(Wakes::default()),
            Arc::new(Wakes::default()),
        );
        let wakers: [Waker; 2] = [early.clone().into(), late.clone().into()];
        for waker in [&wakers[0], &wakers[1], &wakers[1]] {
            cell.set(&Context::from_waker(waker));
        }
        assert!(cell.get().is_some_and(|waker| waker.will_wake(&wakers[1])));
        cell.wake_by_ref();
        cell.wake_by_ref();
        cell.wake();
        cell.wake();
        assert_eq!([early.count(), late.count()], [0, 3]);
        assert!(cell.get().is_none());
    }
}
