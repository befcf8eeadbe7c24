//! The socket by which the server is controlled: `POST /reload` and `GET /health`, for root and the user of the server.

use std::borrow::Cow;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levity_config::address::Address;
use levity_disk::patiently;
use levity_net::{Bound, Inherited, Listener, Peer};
use levity_telemetry::escape::escaped;
use levity_wire::http1::Method;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::exchange::{self, Asked, Reply, TEXT};
use super::pages::health;
use crate::process::reload::bind;
use crate::status::Status;

/// What systemd sets for a unit with `RuntimeDirectory=`: folders with colons between them.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// The name of the socket in such a folder.
const NAME: &str = "control";

/// The folder of the unit in the packages.
const FOLDER_USUAL: &str = "/run/levity";

/// For a response: a reload waits for some seconds for each folder that does not respond.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// The maximum number of requests that wait for the outcome of a reload. The other connections are left for questions
/// after the health.
const WAITING_MAX: usize = 8;

/// The name in the query of a reload whose outcome the client waits for.
pub const WAIT: &str = "wait";

/// The name in the query of the path of the configuration file that the client means.
pub const FILE: &str = "file";

/// A reload that was asked for, and who is told the outcome.
pub type Order = oneshot::Sender<Outcome>;

/// The notes about the new configuration, or why it was refused; in lines.
pub type Outcome = Result<String, String>;

/// The path of the socket of a server whose configuration names `configured`; `None` if it has none.
pub fn path(configured: Option<&Path>) -> Option<PathBuf> {
    let set = || {
        let folders = std::env::var(RUNTIME_DIRECTORY).ok()?;
        let first = Path::new(folders.split(':').next()?);
        first.is_absolute().then(|| first.join(NAME))
    };
    configured.map(Path::to_owned).or_else(set)
}

/// Where a server is asked that has no other path.
pub fn path_usual() -> PathBuf {
    Path::new(FOLDER_USUAL).join(NAME)
}

/// A socket that is served until it is dropped. A reload may move it: whoever has asked for that is still answered.
pub struct Control {
    _stop: oneshot::Sender<()>,
    _bound: Bound,
}

impl Control {
    /// Listens at `path`. Blocks, for seconds at most.
    ///
    /// # Errors
    /// When that is not possible; the error names the path.
    pub fn start(path: &Path, commands: Commands) -> io::Result<Self> {
        let address = Address::Unix(path.to_owned());
        let mut bound = bind(&address, 1, &Inherited::default())?;
        // Until then, and afterwards, the user of whoever connects decides.
        let close = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o600));
        patiently(path, close).and_then(|closed| closed)?;
        let listener = Listener::new(bound.sockets.remove(0))?;
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(exchange::serve(listener, Arc::new(commands), stopped));
        Ok(Self {
            _stop: stop,
            _bound: bound,
        })
    }
}

/// What clients can do.
#[derive(Clone)]
pub struct Commands {
    status: Arc<Status>,
    orders: mpsc::Sender<Order>,
    waiting: Arc<Semaphore>,
    /// The configuration file of the server; `None` without one.
    file: Option<PathBuf>,
}

impl Commands {
    /// Commands of a server with the configuration `file`. Reloads that are asked for go to `orders`.
    pub fn new(status: Arc<Status>, orders: mpsc::Sender<Order>, file: Option<&Path>) -> Self {
        Self {
            status,
            orders,
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            file: file.and_then(|file| std::path::absolute(file).ok()),
        }
    }
}

impl exchange::Pages for Commands {
    fn response_time_max(&self) -> Duration {
        RESPONSE_TIME_MAX
    }

    async fn respond(&self, asked: Asked<'_>, peer: &Peer) -> Reply {
        if !peer.is_own_user() {
            return Reply::refused(
                403,
                "only root and the user of the server can use this socket",
            );
        }
        let value = |name: &str| value(asked.query.unwrap_or_default(), name);
        if let Some(other) = value(FILE).filter(|file| !self.is_file(file)) {
            return self.refuse_other(&other);
        }
        match (asked.path, asked.method) {
            (b"/reload", Method::Post) => self.reload(value(WAIT).is_some()).await,
            (b"/reload", _) => Reply::not_allowed("POST"),
            (b"/health", Method::Get | Method::Head) => health(&self.status),
            (b"/health", _) => Reply::not_allowed("GET, HEAD"),
            _ => Reply::not_found(),
        }
    }
}

/// The value of a name in a query.
fn value<'a>(query: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let mut pairs = form_urlencoded::parse(query);
    pairs
        .find(|(known, _)| known == name)
        .map(|(_, value)| value)
}

impl Commands {
    fn is_file(&self, file: &str) -> bool {
        self.file.as_deref() == Some(Path::new(file))
    }

    fn refuse_other(&self, other: &str) -> Reply {
        let own = self.file.as_deref().map(Path::display);
        let own = own.map_or("no file".to_owned(), |file| file.to_string());
        let other = escaped(other.as_bytes());
        let reason = format!("the server at this socket was started with {own}, not with {other}");
        Reply::refused(409, &reason)
    }

    async fn reload(&self, waits: bool) -> Reply {
        let Ok(_waiting) = self.waiting.clone().try_acquire_owned() else {
            return Reply::refused(503, "too many reloads are waited for");
        };
        let (order, outcome) = oneshot::channel();
        // One that nobody takes any more is dropped, which the client is told.
        let _ = self.orders.send(order).await;
        if !waits {
            return Reply {
                status: 202,
                ..Reply::ok(TEXT, "the configuration is being reloaded\n".into())
            };
        }
        match outcome.await {
            Ok(Ok(notes)) => Reply::ok(TEXT, notes + "the configuration is reloaded\n"),
            Ok(Err(reason)) => Reply {
                status: 422,
                ..Reply::ok(TEXT, reason)
            },
            Err(_) => Reply::refused(503, "the server ends"),
        }
    }
}
