//! A worker for unit tests, with files in a folder of its own, the simulated disk, and clients and backends
//! in memory. Only the test advances its clock.
//!
//! ```ignore
//! with_proxy("", async |rig, app| {
//!     let mut client = rig.client(4096);
//!     client.send(b"GET /app HTTP/1.0\r\n\r\n").await;
//!     let (mut backend, _) = app.asked().await;
//!     backend.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
//!     assert!(client.rest().await.ends_with("ok"));
//!     client.served().await;
//! });
//! ```

#[cfg(feature = "http2")]
pub mod http2;

use std::ffi::CString;
use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use levity_compute::Pool;
use levity_disk::{Disk, Settings};
use levity_net::memory_listener::MemoryListener;
use levity_net::{Peer, Transport};
use levity_telemetry::stats::{Sources, Stats, WorkerStats};
use levity_wire::http1::Chunked;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{self, JoinHandle, LocalSet};
use tokio::time;

use crate::compile::{self, ServiceParts};
use crate::credentials::guesses::Guesses;
use crate::files::cache::SharedCache;
use crate::files::entry::TICK;
use crate::handler::chain::{Handler, Handlers};
use crate::http::h1::conn::Conn;
use crate::loop_core::completions::Completions;
use crate::loop_core::compute::Compute;
use crate::loop_core::zero_copy::ZeroCopy;
use crate::mailboxes::set::SharedMailboxes;
use crate::mailboxes::start;
use crate::serve::{Begins, serve};
use crate::shares::{Bounds, Shares};
use crate::stores::variants::store::VariantStore;
use crate::tls::parts::TlsParts;
use crate::worker::{Worker, WorkerParts};

const CONNECTIONS_MAX: usize = 64;

/// A route to an upstream with one backend.
const PROXY: &str = "[[site.route]]\npath = \"/app\"\nproxy = \"app\"\n\
    [[upstream]]\nname = \"app\"\nto = [\"unix:/app\"]\n";

/// Writes files, and waits until they are settled.
fn fill(root: &TempDir, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = root.path().join(name);
        std::fs::write(&path, content).expect("a file");
        let file = File::options().write(true).open(&path).expect("the file");
        let then = SystemTime::now() - Duration::from_secs(60);
        file.set_modified(then).expect("its time");
    }
    let written = SystemTime::now();
    while !files.is_empty() && written.elapsed().is_ok_and(|age| age <= TICK) {
        std::thread::yield_now();
    }
}

/// Rounds of the event loop after which every task waits. Each round runs all tasks that are ready; a task
/// yields only after much work.
const ROUNDS: usize = 16;

/// On the clock of the runtime. A test may pause the clock; it then advances when all tasks wait.
const TEST_TIME_MAX: Duration = Duration::from_secs(30);

/// A worker with its event loop.
pub struct Rig {
    /// The worker.
    pub worker: Rc<Worker>,
    /// The folder that its site serves.
    pub root: TempDir,
    tasks: LocalSet,
    runtime: Runtime,
}

impl Rig {
    /// A worker with one site. `config` follows the site's root: lines of `[[site]]`, and further tables;
    /// `{root}` stands for the folder.
    pub fn new(config: &str) -> Self {
        Self::build(config, None, &[], None)
    }

    fn build(
        config: &str,
        variants: Option<Arc<VariantStore>>,
        files: &[(&str, &str)],
        first: Option<Box<dyn Handler>>,
    ) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        fill(&root, files);
        let path = root.path().display().to_string();
        let config = config.replace("{root}", &path);
        let text = format!("[disk]\nentry_ttl = \"1h\"\n[[site]]\nroot = \"{path}\"\n{config}");
        let config = levity_config::parse(&text).expect("a valid configuration");
        let disk = Disk::start(Settings {
            engine: "simulated:seed=1".to_owned(),
            ..Settings::default()
        });
        let disk = disk.expect("a simulated disk");
        let pool = Pool::start(levity_compute::Settings {
            threads: 1,
            queue_max: 16,
        });
        let compute = Arc::new(Compute::new(pool.expect("a thread")));
        let shares = Shares::new(&Bounds {
            files: 2 * CONNECTIONS_MAX,
            ..Bounds::of_limits(&config.limits)
        });
        let service_parts = ServiceParts {
            disk: disk.clone(),
            compute: compute.clone(),
            shares: shares.clone(),
            guesses: Guesses::new(1),
            rate_limits: Arc::default(),
            mailboxes: SharedMailboxes::new(1, config.limits.mailbox_memory),
            resume: SharedMailboxes::new(1, config.limits.resume_memory),
            variants,
            kept_files_max: 16,
            has_clients: true,
            tls: TlsParts::default(),
        };
        let service = compile::service(config, &service_parts, None);
        let mut service = service.expect("a folder that opens");
        if let Some(handler) = first {
            let handlers = &mut service.sites[0].routes[0].location.handlers;
            let handlers = handlers.downcast_mut::<Handlers>();
            handlers.expect("its handlers").insert(0, handler);
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let entered = runtime.enter();
        let (completions, delivery) = Completions::new();
        let parts = WorkerParts {
            service: Arc::new(service),
            disk,
            compute,
            shares,
            cache: Arc::new(SharedCache::new(1 << 20, 16, 1)),
            watcher: None,
            zero_copy: ZeroCopy::none(),
            stats: Arc::new(WorkerStats::new(0)),
            logs: Vec::new(),
            connections_max: CONNECTIONS_MAX,
            workers: 1,
            pipes_max: 2,
            explanation: None,
        };
        let (mailboxes, upkeep) = start::single().split();
        let (resume, _) = start::single().split();
        let worker = Worker::new(parts, completions, mailboxes, resume);
        let worker = Rc::new(worker);
        drop(entered);
        let tasks = LocalSet::new();
        tasks.spawn_local(delivery.run());
        tasks.spawn_local(upkeep);
        let rig = Self {
            worker,
            root,
            tasks,
            runtime,
        };
        rig.wait_for_look(files);
        rig
    }

    /// Waits until secrets have been looked at: before that no file is opened inline.
    fn wait_for_look(&self, files: &[(&str, &str)]) {
        let roots = self.worker.service().roots();
        let (Some((name, _)), Some(root)) = (files.first(), roots.first()) else {
            return;
        };
        let name = CString::new(*name).expect("a name");
        let is_open = || match root.open_cached(&name) {
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            Ok(_) => true,
        };
        while !is_open() {
            std::thread::yield_now();
        }
    }

    /// A worker whose site has these files, by name. The files are settled: a tick of the kernel's clock has
    /// passed since they were written.
    pub fn with_files(config: &str, files: &[(&str, &str)]) -> Self {
        Self::build(config, None, files, None)
    }

    /// The same with a store of variants.
    #[cfg(feature = "compress")]
    pub fn with_store(config: &str, files: &[(&str, &str)], store: &Arc<VariantStore>) -> Self {
        Self::build(config, Some(store.clone()), files, None)
    }

    /// A worker whose upstream `app` answers `/app`, and the one backend of that upstream. `keys` are further
    /// keys of the upstream.
    pub fn proxy(keys: &str) -> (Self, Backend) {
        let rig = Self::new(&format!("{PROXY}{keys}"));
        (rig, Backend::new("unix:/app"))
    }

    /// The same with `handler` around what answers.
    pub fn proxy_behind(handler: impl Handler + 'static) -> (Self, Backend) {
        let rig = Self::build(PROXY, None, &[], Some(Box::new(handler)));
        (rig, Backend::new("unix:/app"))
    }

    /// Runs `test` as a task on the event loop, together with the tasks that it starts. Fails when it waits
    /// too long.
    pub fn run<T>(&self, test: impl Future<Output = T>) -> T {
        let test = async { time::timeout(TEST_TIME_MAX, test).await };
        let done = self.runtime.block_on(self.tasks.run_until(test));
        done.expect("what the test waits for comes")
    }

    /// A connection that is not served, and the client's end of it. `bytes_max` is the size of the buffer in
    /// each direction.
    pub fn conn(&self, bytes_max: usize) -> (End, Conn) {
        let (client, served) = Transport::memory(bytes_max);
        let slot = self.worker.core.slots.clone().try_acquire_owned();
        let slot = slot.expect("a slot");
        let conn = Conn::new(self.worker.core.clone(), served, Peer::new(None), slot);
        (End(client), conn)
    }

    /// A client whose connection the worker serves. `bytes_max` is the size of the buffer in each direction.
    pub fn client(&self, bytes_max: usize) -> Client {
        let (end, conn) = self.conn(bytes_max);
        let serving = self
            .tasks
            .spawn_local(serve(self.worker.clone(), conn, Begins::default()));
        Client { end, serving }
    }

    /// Sends `request` at once, and returns everything that arrives until the connection ends.
    pub async fn ask(&self, request: impl AsRef<[u8]>) -> String {
        let mut client = self.client(1 << 16);
        client.send(request).await;
        let response = client.rest().await;
        client.close().await;
        response
    }

    /// Lets all deadlines up to `time` ahead expire, except those of the runtime.
    pub fn pass(&self, time: Duration) {
        let then = Instant::now() + time;
        assert!(self.worker.core.timers.sweep(then, 0).is_none());
    }

    /// Lets all deadlines up to this many seconds ahead expire, and runs the tasks.
    pub async fn pass_seconds(&self, seconds: u64) {
        settle().await;
        self.pass(Duration::from_secs(seconds));
        settle().await;
    }

    /// Asserts that no connection of a client is left.
    #[track_caller]
    pub fn assert_no_client(&self) {
        let worker = &self.worker;
        assert!(worker.core.timers.is_empty(), "a timer is left");
        assert_eq!(worker.core.slots.available_permits(), CONNECTIONS_MAX);
        assert_eq!(
            worker.core.stats.open(),
            0,
            "connections are counted as open"
        );
        assert_eq!(
            worker.core.stats.busy(),
            0,
            "requests are counted as running"
        );
    }

    /// Asserts that no connection of a client is left, and no slot at a backend taken.
    #[track_caller]
    pub fn assert_idle(&self) {
        self.assert_no_client();
        let worker = &self.worker;
        for upstream in &worker.service().upstreams {
            let stats = Stats::new(vec![worker.core.stats.clone()], Sources::default());
            let backends = upstream.backends();
            let ids = backends.iter().map(|backend| backend.id);
            let figures = stats.upstream(&upstream.settings.name, ids);
            assert_eq!(figures.queue, 0, "a request is counted as queued");
            let in_use: u64 = figures.backends.iter().map(|backend| backend.in_use).sum();
            assert_eq!(in_use, 0, "a slot at a backend is taken");
        }
    }
}

/// Runs `test` with a worker that has one upstream, and the backend of it, as [`Rig::proxy`] makes them. Asserts
/// that no connection and no resource of one is left after it.
#[track_caller]
pub fn with_proxy(keys: &str, test: impl AsyncFnOnce(&Rig, &Backend)) {
    let (rig, app) = Rig::proxy(keys);
    rig.run(test(&rig, &app));
    rig.assert_idle();
}

/// Runs the tasks of the event loop until all of them wait.
pub async fn settle() {
    for _ in 0..ROUNDS {
        task::yield_now().await;
    }
}

/// A backend whose part the test plays: the worker connects to it in memory.
pub struct Backend(MemoryListener);

impl Backend {
    /// Listens at `address`, in the syntax of the configuration.
    pub fn new(address: &str) -> Self {
        Self(MemoryListener::bind(address.parse().expect("an address")))
    }

    /// Waits for a connection of the worker; `bytes_max` is the size of its buffer in each direction.
    pub async fn accept(&self, bytes_max: usize) -> End {
        End(self.0.accept(bytes_max).await)
    }

    /// Waits for a connection and the header of a request on it; returns both.
    pub async fn asked(&self) -> (End, String) {
        let mut backend = self.accept(1 << 16).await;
        let head = backend.until("\r\n\r\n").await;
        (backend, head)
    }

    /// Waits for an attempt to connect and refuses it.
    pub async fn refuse(&self) {
        self.0.refuse().await;
    }

    /// The number of waiting attempts to connect.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }
}

/// A client: its end of the connection, and the task that serves the other end.
pub struct Client {
    end: End,
    serving: JoinHandle<()>,
}

impl Client {
    /// Closes the connection and waits until the worker has released its resources.
    pub async fn close(self) {
        drop(self.end);
        self.serving.await.expect("served");
    }

    /// Resets the connection and waits until the worker has released its resources.
    pub async fn break_off(self) {
        self.end.break_off();
        self.serving.await.expect("served");
    }

    /// Waits until the worker has ended the connection and released its resources.
    pub async fn served(self) {
        self.serving.await.expect("served");
    }

    /// Whether the worker has ended the connection.
    pub fn is_served(&self) -> bool {
        self.serving.is_finished()
    }
}

impl Deref for Client {
    type Target = End;

    fn deref(&self) -> &End {
        &self.end
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut End {
        &mut self.end
    }
}

/// The test's end of a connection. Dropping it closes the connection.
pub struct End(Transport);

impl End {
    /// The transport, for a protocol that is not text.
    #[cfg(feature = "http2")]
    pub fn into_transport(self) -> Transport {
        self.0
    }

    /// Sends `bytes`, as fast as the other end reads.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = self.0.write_all(bytes.as_ref()).await;
        sent.expect("the other end takes it");
    }

    /// Shuts down the sending side.
    pub fn end_output(&mut self) {
        self.0.end_output();
    }

    /// Reads at most this many bytes; none at the end.
    pub async fn read(&mut self, bytes_max: usize) -> io::Result<String> {
        let mut bytes = vec![0; bytes_max];
        let count = self.0.read(&mut bytes).await?;
        bytes.truncate(count);
        Ok(String::from_utf8(bytes).expect("text"))
    }

    /// Reads what is available once every task waits, up to the size of the buffer.
    pub async fn arrived(&mut self) -> String {
        settle().await;
        let mut text = String::new();
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.0.try_read(&mut bytes) {
            text.push_str(std::str::from_utf8(&bytes[..count]).expect("text"));
            settle().await;
        }
        text
    }

    /// Reads until the input ends with this text.
    pub async fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let more = self.read(1).await.expect("more comes");
            assert!(!more.is_empty(), "it ends before {end:?}: {text}");
            text.push_str(&more);
        }
        text
    }

    /// Reads to the end of the connection; also returns whether that was a reset.
    pub async fn all(&mut self) -> (String, bool) {
        let mut text = String::new();
        loop {
            match self.read(4096).await {
                Ok(more) if more.is_empty() => return (text, false),
                Ok(more) => text.push_str(&more),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                    return (text, true);
                }
            }
        }
    }

    /// Reads until the other end shuts down; fails on a reset.
    pub async fn rest(&mut self) -> String {
        let (text, is_reset) = self.all().await;
        assert!(!is_reset, "it is reset: {text}");
        text
    }

    /// Reads until the other end resets the connection; fails on an orderly end.
    pub async fn reset(&mut self) -> String {
        let (text, is_reset) = self.all().await;
        assert!(is_reset, "it ends, and is not reset: {text}");
        text
    }

    /// Closes the connection with a reset.
    pub fn break_off(mut self) {
        self.0.reset_on_close();
    }
}

/// An HTTP/1 message without its framing: the first line and the body. `None` when it is incomplete. `ended`
/// is whether the connection ended after it.
pub fn message(text: &str, ended: bool) -> Option<(&str, String)> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let first = lines.next()?;
    let value = |name: &str| {
        let mut lines = lines.clone();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    if let Some(length) = value("Content-Length") {
        let length: usize = length.parse().expect("a length");
        return (body.len() == length).then(|| (first, body.to_owned()));
    }
    if value("Transfer-Encoding").is_none() {
        return ended.then(|| (first, body.to_owned()));
    }
    let mut data = Vec::new();
    let decoded = Chunked::default().decode(body.as_bytes(), |part| data.extend_from_slice(part));
    let decoded = decoded.expect("chunks");
    let body = String::from_utf8(data).expect("text");
    (decoded.done && decoded.consumed == text.len() - head.len() - 4).then_some((first, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered() {
        let rig = Rig::with_files("", &[("file", "content")]);
        let request = "GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let response = rig.run(rig.ask(request));
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\ncontent"), "{response}");
        rig.assert_idle();
    }

    #[test]
    fn messages_are_complete_or_not() {
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        let whole = Some(("HTTP/1.1 200 OK", "ab".to_owned()));
        assert_eq!(message(length, true), whole);
        assert_eq!(message(&length[..length.len() - 1], true), None);
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        assert_eq!(message(chunks, false), whole);
        assert_eq!(message(&chunks[..chunks.len() - 1], true), None);
        let open = "HTTP/1.1 200 OK\r\n\r\nab";
        assert_eq!(message(open, true), whole);
        assert_eq!(message(open, false), None);
    }
}
