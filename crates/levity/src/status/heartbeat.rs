//! Whether the event loops turn: each is asked again and again, and answers between two of its tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::serve::event_loop::Message;

/// The usual pause between two questions.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Which loops have answered. Time is counted by the turns of the control thread that asks them: while that one sleeps, as after SIGSTOP,
/// no loop is late.
#[derive(Debug)]
pub struct Heartbeat {
    interval: Duration,
    /// The number of intervals in which the control thread has turned.
    turns: AtomicU32,
    /// The turns in which loops have last answered, by their numbers.
    answered: Vec<AtomicU32>,
}

impl Heartbeat {
    /// Asks the loops at the other ends of these channels until they end. For the control thread's runtime.
    pub fn start(workers: &[mpsc::UnboundedSender<Message>], interval: Duration) -> Arc<Self> {
        let heartbeat = Arc::new(Self {
            interval,
            turns: AtomicU32::new(0),
            answered: workers.iter().map(|_| AtomicU32::new(0)).collect(),
        });
        tokio::spawn(heartbeat.clone().turn());
        for (number, worker) in workers.iter().enumerate() {
            let asking = heartbeat.clone().ask(number, worker.clone());
            tokio::spawn(asking);
        }
        heartbeat
    }

    /// The number of a loop that has not answered for as long as `time`.
    pub fn silent_loop(&self, time: Duration) -> Option<usize> {
        let turns = self.turns.load(Ordering::Relaxed);
        self.answered.iter().position(|answered| {
            let missed = turns.saturating_sub(answered.load(Ordering::Relaxed));
            self.interval * missed >= time
        })
    }

    async fn turn(self: Arc<Self>) {
        let mut ticks = self.ticks();
        loop {
            ticks.tick().await;
            self.turns.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One question is under way at a time: a loop that does not turn collects none.
    async fn ask(self: Arc<Self>, number: usize, worker: mpsc::UnboundedSender<Message>) {
        let mut ticks = self.ticks();
        loop {
            ticks.tick().await;
            let (reply, answer) = oneshot::channel();
            // An error means that the loop has ended.
            if worker.send(Message::Answer(reply)).is_err() || answer.await.is_err() {
                return;
            }
            let turns = self.turns.load(Ordering::Relaxed);
            self.answered[number].store(turns, Ordering::Relaxed);
        }
    }

    fn ticks(&self) -> Interval {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    #[test]
    fn a_loop_that_does_not_answer_is_found_and_asked_once() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("runtime");
        runtime.block_on(async {
            let (stuck, by_stuck) = mpsc::unbounded_channel();
            let (quick, mut by_quick) = mpsc::unbounded_channel();
            let heartbeat = Heartbeat::start(&[quick, stuck], INTERVAL);
            let answering = tokio::spawn(async move {
                while let Some(Message::Answer(reply)) = by_quick.recv().await {
                    reply.send(()).expect("somebody waits");
                }
            });
            assert_eq!(heartbeat.silent_loop(INTERVAL * 2), None);
            for _ in 0..5 {
                advance(INTERVAL).await;
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(heartbeat.silent_loop(INTERVAL * 2), Some(1));
            assert_eq!(heartbeat.silent_loop(INTERVAL * 10), None);
            assert_eq!(by_stuck.len(), 1);
            answering.abort();
        });
    }
}
