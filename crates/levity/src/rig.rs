//! A worker for unit tests: files in a folder of its own, the simulated disk, clients in memory. Nothing but the test
//! moves its time.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::{Disk, Settings};
use levity_net::{Peer, Transport};
use levity_telemetry::stats::WorkerStats;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, LocalSet};

use crate::cache::Shared;
use crate::http::h1::conn::Conn;
use crate::route::Service;
use crate::serve::serve;
use crate::upstream::sendfile::store::PreloadStore;
use crate::worker::{Given, Worker};

/// A worker and the loop that it lives on.
pub struct Rig {
    /// The worker.
    pub worker: Rc<Worker>,
    /// The folder that its site serves.
    pub root: TempDir,
    tasks: LocalSet,
    runtime: Runtime,
}

impl Rig {
    /// A worker with one site. `config` follows its root, as lines of `[[site]]` and tables behind it.
    pub fn new(config: &str) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let text = format!("[[site]]\nroot = \"{}\"\n{config}", root.path().display());
        let config = levity_config::parse(&text).expect("a valid configuration");
        let disk = Disk::start(Settings {
            engine: "simulated:seed=1".to_owned(),
            ..Settings::default()
        });
        let disk = disk.expect("a simulated disk");
        let service = Service::new(config, &disk, &[]).expect("a folder that opens");
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let entered = runtime.enter();
        let worker = Rc::new(Worker::new(Given {
            service: Arc::new(service),
            disk,
            cache: Arc::new(Shared::new(1 << 20, 16, 1)),
            watcher: None,
            stats: Arc::new(WorkerStats::new(0)),
            log: None,
            connections_max: 64,
            preload: Arc::new(PreloadStore::new(16)),
            workers: 1,
        }));
        drop(entered);
        Self {
            worker,
            root,
            tasks: LocalSet::new(),
            runtime,
        }
    }

    /// Runs `test` as a task of the loop, beside what it starts.
    pub fn run<T>(&self, test: impl Future<Output = T>) -> T {
        self.runtime.block_on(self.tasks.run_until(test))
    }

    /// A connection, and the client's end of it. `bytes_max` is the size of the buffer in each direction.
    pub fn conn(&self, bytes_max: usize) -> (Transport, Conn) {
        let (client, served) = Transport::memory(bytes_max);
        let slot = self.worker.slots.clone().try_acquire_owned();
        let slot = slot.expect("a slot");
        let conn = Conn::new(self.worker.clone(), served, Peer::new(None), slot);
        (client, conn)
    }

    /// The same, and the task that serves it.
    pub fn connect(&self, bytes_max: usize) -> (Transport, JoinHandle<()>) {
        let (client, conn) = self.conn(bytes_max);
        (client, self.tasks.spawn_local(serve(conn, false)))
    }

    /// All deadlines that lie at most so far ahead pass.
    pub fn pass(&self, time: Duration) {
        let then = Instant::now() + time;
        assert!(self.worker.timers.sweep(then, 0).is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered() {
        let rig = Rig::new("");
        std::fs::write(rig.root.path().join("file"), "content").expect("a file");
        let (mut client, serving) = rig.connect(4096);
        let mut response = Vec::new();
        rig.run(async {
            let request = b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            client.write_all(request).await.expect("sent");
            let mut buffer = [0; 1024];
            loop {
                match client.read(&mut buffer).await.expect("received") {
                    0 => break,
                    count => response.extend_from_slice(&buffer[..count]),
                }
            }
            drop(client);
            serving.await.expect("served");
        });
        let response = String::from_utf8(response).expect("text");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\ncontent"), "{response}");
    }

    #[test]
    fn an_idle_client_is_let_go() {
        let rig = Rig::new("");
        let (mut client, serving) = rig.connect(4096);
        rig.run(async {
            tokio::task::yield_now().await;
            rig.pass(Duration::from_secs(3600));
            serving.await.expect("served");
            assert_eq!(client.read(&mut [0; 16]).await.expect("an end"), 0);
        });
    }
}
