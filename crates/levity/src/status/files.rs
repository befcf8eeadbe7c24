//! The most requested files, from the counts of the workers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, oneshot};
use tokio::time;

use crate::serve::event_loop::Message;
use levity_telemetry::escape::escaped;
use levity_telemetry::popular::{FileCount, SketchCounts, Snapshot, merge};

/// Files in each list.
const FILES_MAX: usize = 20;

/// The time-out for a worker's response; the last snapshot of a slower one is used.
const RESPONSE_TIME_MAX: Duration = Duration::from_millis(200);

/// A channel to each worker. Requests for the files take turns, so that a slow worker has at most one query.
pub struct Files(Mutex<Vec<WorkerQuery>>);

struct WorkerQuery {
    worker: UnboundedSender<Message>,
    pending: Option<oneshot::Receiver<Snapshot>>,
    latest: Option<Snapshot>,
}

impl Files {
    pub fn new(workers: Vec<UnboundedSender<Message>>) -> Self {
        let query = |worker| WorkerQuery {
            worker,
            pending: None,
            latest: None,
        };
        Self(Mutex::new(workers.into_iter().map(query).collect()))
    }

    /// The files by requests and by bytes. Waits for the workers, [`RESPONSE_TIME_MAX`] at most.
    pub async fn json(&self) -> Value {
        let mut queries = self.0.lock().await;
        queries.iter_mut().for_each(WorkerQuery::send);
        let deadline = Instant::now() + RESPONSE_TIME_MAX;
        for query in queries.iter_mut() {
            let answer = time::timeout_at(deadline.into(), query.answer()).await;
            query.take(answer.ok());
        }
        let all: Vec<_> = queries
            .iter()
            .filter_map(|query| query.latest.as_ref())
            .collect();
        figures(&all)
    }
}

impl WorkerQuery {
    fn send(&mut self) {
        if self.pending.is_some() {
            return;
        }
        let (reply, answer) = oneshot::channel();
        // A worker that has ended drops the query and with it the reply channel.
        let _ = self.worker.send(Message::Popular(reply));
        self.pending = Some(answer);
    }

    /// `None` from a worker that has ended.
    async fn answer(&mut self) -> Option<Snapshot> {
        self.pending.as_mut()?.await.ok()
    }

    /// Stores the result; `None` when it took too long.
    fn take(&mut self, answer: Option<Option<Snapshot>>) {
        if let Some(answer) = answer {
            self.pending = None;
            self.latest = answer;
        }
    }
}

fn figures(all: &[&Snapshot]) -> Value {
    let time = all.iter().map(|snapshot| snapshot.time).max();
    let requests = all.iter().flat_map(|snapshot| &snapshot.requests);
    let bytes = all.iter().flat_map(|snapshot| &snapshot.bytes);
    json!({
        "seconds": super::seconds(time.unwrap_or_default()),
        "by_requests": list(requests, |file| json!({
            "file": escaped(&file.name),
            "requests": file.least,
            "requests_max": file.most,
        })),
        "by_bytes": list(bytes, |file| json!({
            "file": escaped(&file.name),
            "sent_bytes": file.least,
            "sent_bytes_max": file.most,
        })),
    })
}

fn list<'l>(
    lists: impl Iterator<Item = &'l SketchCounts> + Clone,
    json: impl Fn(&FileCount) -> Value,
) -> Vec<Value> {
    merge(lists, FILES_MAX).iter().map(json).collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use levity_telemetry::popular::Popular;

    fn snapshot(path: &str) -> Snapshot {
        let now = Instant::now();
        let mut popular = Popular::new(now);
        popular.count(b"h", path.as_bytes(), 5);
        popular.snapshot(now)
    }

    fn reply(told: &mut mpsc::UnboundedReceiver<Message>, path: &str) {
        match told.try_recv() {
            Ok(Message::Popular(reply)) => reply.send(snapshot(path)).expect("somebody waits"),
            _ => panic!("nothing was asked"),
        }
    }

    #[test]
    fn a_worker_that_does_not_answer_is_asked_once() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("runtime");
        runtime.block_on(async {
            let (quick, mut by_quick) = mpsc::unbounded_channel();
            let (stuck, mut by_stuck) = mpsc::unbounded_channel();
            let files = Files::new(vec![stuck, quick]);
            let (json, ()) = tokio::join!(files.json(), async { reply(&mut by_quick, "/<b>\n") });
            assert_eq!(json["by_requests"][0]["file"], r"h/<b>\x0a");
            assert_eq!(json["by_bytes"][0]["sent_bytes"], 5);
            let (json, ()) = tokio::join!(files.json(), async { reply(&mut by_quick, "/later") });
            assert_eq!(json["by_requests"][0]["file"], "h/later");
            assert_eq!(by_stuck.len(), 1);
            // The worker responds again, with the result of an old query.
            reply(&mut by_stuck, "/stuck");
            let (json, ()) = tokio::join!(files.json(), async { reply(&mut by_quick, "/later") });
            let listed = json["by_requests"].as_array().expect("a list");
            assert_eq!(listed.len(), 2, "{json}");
        });
    }
}
