//! Completions of the disk on their way to the requests of an event loop.
//!
//! A disk that is faster than the processor completes thousands of jobs per second. A loop that
//! shares its processor with the disk threads would be woken for each of them, send one file, and
//! sleep again. So while many jobs are in flight, the loop collects completions for a millisecond,
//! as network drivers do with interrupts. Connections and timers wake it as ever. After each four
//! completions connections have their turn.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use levity_disk::{Completion, Reply};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::{task, time};

/// How long completions are collected: the resolution of the runtime's timers.
const PAUSE: Duration = Duration::from_millis(1);

/// The minimum of completions per [`PAUSE`] for which a pause is worth it.
const COMPLETIONS_MIN: usize = 2;

/// A pause requires that the jobs in flight keep the disks busy for this many pauses: no disk is idle because
/// of it, and no response is noticeably later.
const PAUSES_AHEAD_MIN: usize = 8;

/// How long none follows a pause that has halved the rate of completions.
const PAUSES_APART: Duration = Duration::from_millis(100);

/// Completions that are delivered before connections have their turn: each makes the loop send up to a chunk.
const DELIVERED_MAX: usize = 4;

/// Where the jobs of a loop are completed.
pub struct Completions {
    sender: UnboundedSender<Answered>,
    arrived: Arrived,
}

/// Takes the completions to the requests that wait for them.
pub struct Delivery(Arrived);

/// The completions that have arrived at the loop.
#[derive(Clone)]
struct Arrived(Rc<RefCell<UnboundedReceiver<Answered>>>);

/// A completion, and where a request waits for it.
struct Answered {
    requester: oneshot::Sender<Completion>,
    completion: Completion,
}

/// Counts as a job in flight until it is dropped.
struct QueuedReply {
    requester: oneshot::Sender<Completion>,
    completions: UnboundedSender<Answered>,
}

impl Completions {
    /// The two ends for a loop.
    pub fn new() -> (Self, Delivery) {
        let (sender, receiver) = unbounded_channel();
        let arrived = Arrived(Rc::new(RefCell::new(receiver)));
        let delivery = Delivery(arrived.clone());
        (Self { sender, arrived }, delivery)
    }

    /// The reply for a job, and where its completion arrives once [`Delivery::run`] has seen it.
    pub fn reply(&self) -> (Box<dyn Reply>, oneshot::Receiver<Completion>) {
        let (requester, receiver) = oneshot::channel();
        let reply = QueuedReply {
            requester,
            completions: self.sender.clone(),
        };
        (Box::new(reply), receiver)
    }

    /// Waits for `future`, which waits for completions, at most for `time`. What has arrived by then counts, delivered or
    /// not: a loop that is behind with its work must not blame the disk for it.
    pub async fn within<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        if let Ok(output) = time::timeout(time, future.as_mut()).await {
            return Some(output);
        }
        while let Some(answered) = self.arrived.try_next() {
            answered.deliver();
        }
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }
}

impl Arrived {
    /// `None` once all senders are gone.
    async fn next(&self) -> Option<Answered> {
        poll_fn(|context| self.0.borrow_mut().poll_recv(context)).await
    }

    /// `None` if there is none now.
    fn try_next(&self) -> Option<Answered> {
        self.0.borrow_mut().try_recv().ok()
    }

    /// The number of jobs in flight: all senders but one belong to jobs.
    fn in_flight(&self) -> usize {
        self.0.borrow().sender_strong_count().saturating_sub(1)
    }
}

impl Answered {
    fn deliver(self) {
        // An error means that the client has gone; the bytes return to their pool.
        let _ = self.requester.send(self.completion);
    }
}

impl Reply for QueuedReply {
    fn is_awaited(&self) -> bool {
        !self.requester.is_closed()
    }

    fn send(self: Box<Self>, completion: Completion) {
        let requester = self.requester;
        // An error means that the loop has ended; the bytes return to their pool.
        let _ = self.completions.send(Answered {
            requester,
            completion,
        });
    }
}

impl Delivery {
    /// Delivers until [`Completions`] is dropped and the last job has ended.
    pub async fn run(self) {
        let mut pace = Pace::new(Instant::now());
        while let Some(first) = self.0.next().await {
            let mut next = Some(first);
            let mut delivered = 0;
            while let Some(answered) = next {
                answered.deliver();
                delivered += 1;
                if delivered % DELIVERED_MAX == 0 {
                    task::yield_now().await;
                }
                next = self.0.try_next();
            }
            if pace.pauses(Instant::now(), delivered, self.0.in_flight()) {
                time::sleep(PAUSE).await;
            }
        }
    }
}

/// Decides whether to collect completions.
struct Pace {
    /// Of the present period, which lasts for [`PAUSE`] or longer.
    start: Instant,
    delivered: usize,
    /// Completions per second without pauses, if the present period is a pause.
    rate_before: Option<f64>,
    /// No pause begins before.
    next_pause: Instant,
}

impl Pace {
    fn new(start: Instant) -> Self {
        Self {
            start,
            delivered: 0,
            rate_before: None,
            next_pause: start,
        }
    }

    /// Records that `delivered` completions were delivered by `now`. Returns whether to pause while `in_flight`
    /// jobs are in flight.
    fn pauses(&mut self, now: Instant, delivered: usize, in_flight: usize) -> bool {
        self.delivered += delivered;
        let elapsed = now.saturating_duration_since(self.start);
        if elapsed < PAUSE {
            return false;
        }
        let rate = self.delivered as f64 / elapsed.as_secs_f64();
        (self.start, self.delivered) = (now, 0);
        let rate_before = self.rate_before.take();
        // The jobs in flight are those of another disk, and this one waited for the loop.
        if rate_before.is_some_and(|before| rate < before / 2.0) {
            self.next_pause = now + PAUSES_APART;
        }
        let per_pause = (rate * PAUSE.as_secs_f64()) as usize;
        let pauses = now >= self.next_pause
            && per_pause >= COMPLETIONS_MIN
            && in_flight >= per_pause * PAUSES_AHEAD_MIN;
        self.rate_before = pauses.then(|| rate_before.unwrap_or(rate));
        pauses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn canceled() -> Completion {
        Completion {
            result: Err(io::ErrorKind::Other.into()),
            queued: Duration::ZERO,
            service: Duration::ZERO,
            direct: false,
        }
    }

    /// Whether a loop pauses that has received `completions` in `time`.
    fn pauses(completions: usize, time: Duration, in_flight: usize) -> bool {
        let start = Instant::now();
        Pace::new(start).pauses(start + time, completions, in_flight)
    }

    #[test]
    fn a_fast_disk_with_many_jobs_lets_the_loop_pause() {
        let enough = COMPLETIONS_MIN * PAUSES_AHEAD_MIN;
        assert!(pauses(COMPLETIONS_MIN, PAUSE, enough));
        assert!(!pauses(COMPLETIONS_MIN - 1, PAUSE, 1000));
        assert!(!pauses(COMPLETIONS_MIN, PAUSE, enough - 1));
        assert!(pauses(10 * COMPLETIONS_MIN, 10 * PAUSE, enough));
        assert!(!pauses(9 * COMPLETIONS_MIN, 10 * PAUSE, 1000));
    }

    #[test]
    fn completions_add_up_until_the_period_ends() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..COMPLETIONS_MIN {
            assert!(!pace.pauses(start + PAUSE / 2, 1, 1000));
        }
        assert!(pace.pauses(start + PAUSE, 0, 1000));
        assert!(!pace.pauses(start + 2 * PAUSE, 0, 1000));
    }

    /// Many jobs wait for a slow disk, and a few clients read from a fast one.
    #[test]
    fn a_pause_that_slows_a_disk_down_is_not_repeated() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let mut period = |time, delivered| {
            now += time;
            pace.pauses(now, delivered, 1000)
        };
        assert!(period(PAUSE, 40));
        assert!(period(2 * PAUSE, 60));
        assert!(period(2 * PAUSE, 41));
        assert!(!period(2 * PAUSE, 39));
        assert!(!period(PAUSES_APART / 2, 1000));
        assert!(period(PAUSES_APART / 2, 1000));
    }

    /// The loop is so busy that it does not come to deliver.
    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_in_time_is_not_late() {
        let (completions, _delivery) = Completions::new();
        let (replies, receivers): (Vec<_>, Vec<_>) = (0..24).map(|_| completions.reply()).unzip();
        let (unanswered, late) = completions.reply();
        replies.into_iter().for_each(|reply| reply.send(canceled()));
        let limit = Duration::from_secs(1);
        for receiver in receivers {
            let completion = completions.within(limit, receiver).await;
            assert!(completion.is_some_and(|completion| completion.is_ok()));
        }
        assert!(completions.within(limit, late).await.is_none());
        assert!(!unanswered.is_awaited());
    }

    /// Also those that arrive while the loop pauses.
    #[tokio::test]
    async fn every_completion_arrives() {
        const JOBS: usize = 1000;
        let (completions, delivery) = Completions::new();
        let (replies, receivers): (Vec<_>, Vec<_>) = (0..JOBS).map(|_| completions.reply()).unzip();
        drop(completions);
        let thread = std::thread::spawn(|| {
            for reply in replies {
                assert!(reply.is_awaited());
                reply.send(canceled());
            }
        });
        let received = async {
            for receiver in receivers {
                receiver.await.expect("a completion");
            }
        };
        tokio::join!(delivery.run(), received);
        thread.join().expect("no panic");
    }

    #[tokio::test]
    async fn a_dropped_reply_ends_the_wait() {
        let (completions, delivery) = Completions::new();
        let (reply, receiver) = completions.reply();
        drop((reply, completions));
        delivery.run().await;
        assert!(receiver.await.is_err());
    }

    #[test]
    fn nobody_waits_once_the_request_has_ended() {
        let (completions, _delivery) = Completions::new();
        let (reply, receiver) = completions.reply();
        drop(receiver);
        assert!(!reply.is_awaited());
    }
}
