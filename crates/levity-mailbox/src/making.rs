//! A form of a message that is made off the event loop, for which receivers wait.

use std::cell::{OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::task::yield_now;

use crate::budget::Reservation;

/// A message in some form, or a part of it. All receivers of the event loop that send it share the bytes.
#[derive(Debug, Clone)]
pub struct Encoded(Rc<(Vec<u8>, Option<Reservation>)>);

impl Encoded {
    /// Bytes whose memory is `reservation`.
    #[must_use]
    pub fn counted(bytes: Vec<u8>, reservation: Reservation) -> Self {
        Self(Rc::new((bytes, Some(reservation))))
    }
}

impl From<Vec<u8>> for Encoded {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Rc::new((bytes, None)))
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

/// The number of receivers that are woken before others run.
const WOKEN_MAX: usize = 64;

/// A form that is being made, or has been.
#[derive(Default)]
pub struct Making {
    made: OnceCell<Option<Encoded>>,
    /// Those that wait. One that has gone stays until the form is made.
    waiting: RefCell<Vec<Waker>>,
}

/// The place of one receiver among those that wait for a form.
#[derive(Debug, Default)]
pub struct Place(Option<usize>);

impl Making {
    /// The form, once it has been made; `None` if there is none.
    pub fn poll(&self, context: &mut Context<'_>, place: &mut Place) -> Poll<Option<Encoded>> {
        if let Some(made) = self.made.get() {
            return Poll::Ready(made.clone());
        }
        let mut waiting = self.waiting.borrow_mut();
        match place.0 {
            Some(index) => waiting[index].clone_from(context.waker()),
            None => {
                place.0 = Some(waiting.len());
                waiting.push(context.waker().clone());
            }
        }
        Poll::Pending
    }

    pub(crate) fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// Hands the form to those that wait, and wakes them, a bounded number at a time.
    pub async fn finish(&self, form: Option<Encoded>) {
        // A form is made once: the first one stays.
        let _ = self.made.set(form);
        loop {
            let woken = {
                let mut waiting = self.waiting.borrow_mut();
                let left = waiting.len().saturating_sub(WOKEN_MAX);
                waiting.split_off(left)
            };
            if woken.is_empty() {
                return;
            }
            woken.into_iter().for_each(Waker::wake);
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn receivers_are_woken_once_and_in_turn() {
        let making = Rc::new(Making::default());
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let mut context = Context::from_waker(&waker);
        let mut places: Vec<_> = (0..=WOKEN_MAX).map(|_| Place::default()).collect();
        for _ in 0..2 {
            for place in &mut places {
                assert!(making.poll(&mut context, place).is_pending());
            }
        }
        let rung = || bell.0.load(Ordering::Relaxed);
        let mut finishing = Box::pin(making.finish(Some(b"x".to_vec().into())));
        let mut others = Context::from_waker(Waker::noop());
        assert!(finishing.as_mut().poll(&mut others).is_pending());
        assert_eq!(rung(), WOKEN_MAX);
        finishing.await;
        assert_eq!(rung(), WOKEN_MAX + 1);
        let made = making.poll(&mut context, &mut places[0]);
        assert!(matches!(made, Poll::Ready(Some(form)) if *form == *b"x"));
    }
}
