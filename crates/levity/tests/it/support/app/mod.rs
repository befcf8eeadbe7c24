//! Applications as processes of their own, for the server to stand in front of. Their code is in
//! `tests/apps`.

mod program;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::capture::Capture;
use super::launch::NOBODY;
use super::socket::Socket;
use super::{Client, Tree, is_root};
pub use program::EXTERNAL;
use program::{Listens, Program};

/// Tomcat may take its time to start while all other tests run.
const START_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Bytes at the end of what an application said that a failing test shows.
const SHOWN_MAX: usize = 8 * 1024;

/// Runs an application in a process group of its own until standard input ends, which it does with
/// the value that holds the other end or with the test process, however that dies. No signal at the
/// parent's death could do this: it would come when the thread ends that ran the first test, and would
/// spare the application's own children. Then the group is killed and the folder `$1` removed.
const KEEPER: &str = r#"
own=$1
shift
setsid "$@" </dev/null &
app=$!
exec >/dev/null 2>&1
read -r _
kill -KILL "-$app" || kill -KILL "$app"
wait "$app"
rm -rf "$own"
"#;

/// A running application. It may be shared with other tests.
pub struct App(Arc<Process>);

struct Process {
    keeper: Child,
    /// The keeper's standard input.
    life: Option<ChildStdin>,
    said: [Capture; 2],
    address: String,
}

/// Makes a function that gives the one application of its kind that all tests share.
macro_rules! shared {
    ($($(#[$meta:meta])* $name:ident)+) => {$(
        $(#[$meta])*
        pub fn $name() -> Self {
            static ONE: OnceLock<Arc<Process>> = OnceLock::new();
            Self(ONE.get_or_init(|| start(program::$name)).clone())
        }
    )+};
}

impl App {
    shared! {
        /// FastCGI on a Unix socket; any script that it can read, such as those of [`App::php`].
        php_fpm
        /// HTTP/1.1 on TCP: WSGI with a thread per request, Django and Flask.
        gunicorn
        /// HTTP/1.1 on TCP: ASGI with WebSockets.
        uvicorn
        /// SCGI on a Unix socket: the WSGI application of `gunicorn`.
        uwsgi
        /// HTTP/1.1 on TCP: the chat of `examples/chat`, with Flask.
        chat
        /// HTTP/1.1 on TCP: Express with the middleware of GRIP.
        express
        /// HTTP/1.1 on a Unix socket: Rack.
        puma
        /// DNS: every name is at 127.0.0.1.
        names
        /// AJP13 on TCP, with [`App::TOMCAT_SECRET`].
        tomcat
    }

    /// What Tomcat demands of its peers.
    pub const TOMCAT_SECRET: &str = "between us";

    /// One more gunicorn, which ends with the value: for a test that kills its application.
    pub fn own_gunicorn() -> Self {
        Self(start(program::gunicorn))
    }

    /// An Apache with `mod_deflate` and the files of `root`, which ends with the value.
    pub fn apache(root: &Path) -> Self {
        Self(start(|own| program::apache(own, root)))
    }

    /// An nginx with these `server` blocks, in which `listen 80` stands for its address. Ends with the value.
    pub fn nginx(servers: &str) -> Self {
        Self(start(|own| program::nginx(own, servers)))
    }

    /// An authority that speaks ACME, with its own certificate in `folder`; see [`program::pebble`]. Ends with the value.
    pub fn pebble(
        folder: &Path,
        names: &Self,
        doors: [u16; 2],
        wants_accounts: bool,
        environment: &[(&'static str, &str)],
    ) -> Self {
        let at = names.address();
        Self(start(|own| {
            program::pebble(own, folder, at, doors, wants_accounts, environment)
        }))
    }

    /// The same with another names server at `names`.
    pub fn pebble_with(folder: &Path, names: &str, doors: [u16; 2]) -> Self {
        Self(start(|own| {
            program::pebble(own, folder, names, doors, false, &[])
        }))
    }

    /// FastCGI with more memory than [`App::php_fpm`] has, which ends with the value.
    pub fn large_php_fpm() -> Self {
        Self(start(program::php_fpm_large))
    }

    /// A database server on a Unix socket, which ends with the value.
    pub fn mariadb() -> Self {
        Self(start(program::mariadb))
    }

    /// A document root with the PHP scripts.
    pub fn php() -> Tree {
        let tree = Tree::new();
        for entry in fs::read_dir(sources("php")).expect("a folder of scripts") {
            let entry = entry.expect("an entry");
            tree.file(entry.file_name(), fs::read(entry.path()).expect("read"));
        }
        tree
    }

    /// In the form of the configuration: `unix:/path` or `127.0.0.1:80`.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// A client that speaks to it without a server between.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::to(self.address())
    }

    /// What it and its children have said on standard output and standard error so far.
    pub fn said(&self) -> String {
        self.0.said.each_ref().map(Capture::text).concat()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        if thread::panicking() {
            let said = self.said().into_bytes();
            let end = &said[said.len().saturating_sub(SHOWN_MAX)..];
            let end = String::from_utf8_lossy(end);
            eprintln!("--- the application at {}:\n{end}---", self.address());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.life = None;
        // Fails only when somebody else has waited for it.
        let _ = self.keeper.wait();
    }
}

/// Starts it as somebody without rights, and waits until it accepts connections.
fn start(program: impl FnOnce(&Path) -> Program) -> Arc<Process> {
    let own = tempfile::tempdir().expect("a temporary folder").keep();
    fs::set_permissions(&own, Permissions::from_mode(0o777)).expect("chmod");
    let program = program(&own);
    let mut keeper = command(&own, &program)
        .spawn()
        .expect("sh and setpriv of util-linux");
    let mut process = Process {
        life: keeper.stdin.take(),
        said: [
            Capture::start(keeper.stdout.take().expect("stdout")),
            Capture::start(keeper.stderr.take().expect("stderr")),
        ],
        keeper,
        address: String::new(),
    };
    process.address = process.listens(&program.listens);
    Arc::new(process)
}

fn command(own: &Path, program: &Program) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", KEEPER, "keeper"]).arg(own);
    if is_root() {
        let nobody = NOBODY.to_string();
        command.args(["setpriv", "--clear-groups"]);
        command.args(["--reuid", &nobody, "--regid", &nobody]);
    }
    command
        .args(&program.words)
        .envs(program.environment.iter().cloned())
        .env("HOME", own)
        .env("TMPDIR", own)
        .current_dir(own)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Process {
    #[track_caller]
    fn listens(&self, listens: &Listens) -> String {
        let start = Instant::now();
        loop {
            let address = self.address_now(listens);
            if let Some(address) = address.filter(|address| Socket::connect(address).is_ok()) {
                return address;
            }
            let ended = self.said.iter().all(Capture::has_ended);
            if ended || start.elapsed() > START_MAX {
                let said = self.said.each_ref().map(Capture::text).concat();
                panic!("it does not listen (`cargo xtask test` installs what is missing): {said}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Its address as far as it is known.
    fn address_now(&self, listens: &Listens) -> Option<String> {
        match listens {
            Listens::On(socket) => Some(format!("unix:{}", socket.display())),
            Listens::At(address) => Some(address.to_string()),
            Listens::Saying(before) => self.said.iter().find_map(|said| {
                let text = said.text();
                let (_, rest) = text.split_once(before)?;
                let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                // A line that is still being written has half a port.
                let complete = port.len() < rest.len();
                complete.then(|| format!("127.0.0.1:{port}"))
            }),
        }
    }
}

/// Code of applications in this repository.
pub fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/apps")
        .join(name)
}
