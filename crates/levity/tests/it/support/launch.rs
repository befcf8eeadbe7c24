//! How the server is started: as a child process, as somebody without rights.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::capture::Capture;
use super::{Server, WAIT_MAX, is_root, tree, wait_until};

/// The user and group "nobody".
pub(super) const NOBODY: u32 = 65534;

/// Port 0: the kernel chooses.
const ANY_PORT: &str = "127.0.0.1:0";

/// A command line on its way.
pub struct Launch {
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    descriptors_max: Option<u32>,
    without_inotify: bool,
    threads_max: Option<u32>,
    guard: bool,
    unread: bool,
    capability: Option<&'static str>,
    /// Holds the configuration and, where the build folder is closed to others, the binary.
    own: tempfile::TempDir,
}

/// What a command that ended by itself said.
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Launch {
    /// Any command line.
    pub fn levity<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let own = tempfile::tempdir().expect("a temporary folder");
        let open_to_all = Permissions::from_mode(0o777);
        fs::set_permissions(own.path(), open_to_all).expect("chmod");
        Self {
            arguments: arguments
                .into_iter()
                .map(|one| one.as_ref().to_owned())
                .collect(),
            environment: Vec::new(),
            folder: None,
            descriptors_max: None,
            without_inotify: false,
            threads_max: None,
            guard: false,
            unread: false,
            capability: None,
            own,
        }
    }

    /// `levity serve` on a free port, with the guard.
    pub fn serve(what: &Path) -> Self {
        let what = [OsStr::new("serve"), what.as_os_str()];
        Self::levity(what).arguments(["--listen", ANY_PORT]).guard()
    }

    /// `levity run` with the guard. The configuration says where to listen; `{own}` in it stands for
    /// a folder that the server may write to.
    pub fn run(config: &str) -> Self {
        let launch = Self::levity(["run", "-c"]).guard();
        let file = launch.own.path().join("levity.toml");
        fs::write(&file, launch.filled_in(config)).expect("write");
        launch.arguments([file])
    }

    /// `levity run` on a free port, with one site that has `root` and whatever else `keys` say of it.
    /// `tables` come first.
    pub fn site(root: &Path, tables: &str, keys: &str) -> Self {
        let listen = format!("[[listen]]\naddress = \"{ANY_PORT}\"\n");
        let site = format!("[[site]]\nroot = \"{}\"\n{keys}\n", root.display());
        Self::run(&format!("{tables}\n{listen}{site}"))
    }

    /// `levity run` on a free port, with one site for which an upstream `app` answers. `to` are its
    /// backends, divided by commas; `more` are keys of the upstream, and tables behind them.
    pub fn proxy(to: &str, more: &str) -> Self {
        let to: Vec<_> = to
            .split(',')
            .map(|one| format!("\"{}\"", one.trim()))
            .collect();
        Self::run(&format!(
            "[[listen]]\naddress = \"{ANY_PORT}\"\n[[site]]\nproxy = \"app\"\n\
             [[upstream]]\nname = \"app\"\nto = [{}]\n{more}\n",
            to.join(", ")
        ))
    }

    fn filled_in(&self, config: &str) -> String {
        config.replace("{own}", self.own.path().to_str().expect("a path in UTF-8"))
    }

    pub fn arguments<A: AsRef<OsStr>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        self.arguments
            .extend(more.into_iter().map(|one| one.as_ref().to_owned()));
        self
    }

    pub fn engine(self, name: &str) -> Self {
        self.arguments(["--engine", name])
    }

    pub fn workers(self, count: usize) -> Self {
        self.arguments(["--workers", &count.to_string()])
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs it in `folder`.
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Leaves its standard output unread: the pipe fills up.
    pub fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// RLIMIT_NOFILE, soft and hard.
    pub fn descriptors_max(mut self, descriptors: u32) -> Self {
        self.descriptors_max = Some(descriptors);
        self
    }

    /// The user has no instance of inotify left.
    pub fn without_inotify(mut self) -> Self {
        self.without_inotify = true;
        self
    }

    /// RLIMIT_NPROC, soft and hard: of all threads of its user.
    pub fn threads_max(mut self, threads: u32) -> Self {
        self.threads_max = Some(threads);
        self
    }

    /// The server has this one, as systemd gives it to a unit (`AmbientCapabilities=`). For tests of root.
    pub fn capability(mut self, name: &'static str) -> Self {
        self.capability = Some(name);
        self
    }

    fn guard(mut self) -> Self {
        self.guard = true;
        self
    }

    /// The folder that `{own}` stands for.
    pub fn own(&self) -> &Path {
        self.own.path()
    }

    /// Starts a server and waits until it listens.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(stderr) => panic!("the server did not start: {stderr}"),
        }
    }

    /// Starts a server; if it ends instead, gives what it said on standard error.
    pub fn try_start(self) -> Result<Server, String> {
        let unread = self.unread;
        let (child, own) = self.spawn();
        let server = Server::new(child, own, unread);
        tree::settle();
        server
    }

    /// Runs a command that ends by itself.
    #[track_caller]
    pub fn ran(self) -> Ran {
        let (mut child, _own) = self.spawn();
        let stdout = Capture::start(child.stdout.take().expect("stdout"));
        let stderr = Capture::start(child.stderr.take().expect("stderr"));
        let start = Instant::now();
        let mut ended = None;
        wait_until("the command ends", || {
            ended = child.try_wait().expect("wait");
            if ended.is_none() && start.elapsed() + WAIT_MAX / 4 > WAIT_MAX {
                // Whoever waits in vain should at least see why.
                eprintln!("still running: {}", stderr.text());
                child.kill().expect("kill");
            }
            ended.is_some()
        });
        Ran {
            status: ended.and_then(|status| status.code()).unwrap_or(-1),
            stdout: stdout.into_text(),
            stderr: stderr.into_text(),
        }
    }

    /// Starts it. The folder is its own, and is to be kept for as long as it runs.
    pub fn spawn(self) -> (Child, tempfile::TempDir) {
        let mut command = self.command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("setpriv and prlimit of util-linux");
        (child, self.own)
    }

    /// `setpriv` and `prlimit` become the server, so that its process is our child. It dies with the
    /// thread that started it, should a test be killed.
    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if is_root() {
            let nobody = NOBODY.to_string();
            command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
        }
        if let Some(name) = self.capability {
            let added = format!("+{name}");
            command.args(["--inh-caps", &added, "--ambient-caps", &added]);
        }
        for (name, limit) in [
            ("nofile", self.descriptors_max),
            ("nproc", self.threads_max),
        ] {
            if let Some(limit) = limit {
                command.args(["prlimit", &format!("--{name}={limit}:{limit}"), "--"]);
            }
        }
        if self.without_inotify {
            // A limit of a user namespace may be lowered by whoever has made it.
            let lowered = "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$@\"";
            command.args([
                "unshare",
                "--user",
                "--map-root-user",
                "sh",
                "-c",
                lowered,
                "sh",
            ]);
        }
        command.arg(self.binary()).args(&self.arguments);
        if self.guard {
            command.arg("--guard");
        }
        command.current_dir(self.folder.as_deref().unwrap_or(self.own.path()));
        command
            .env("NO_COLOR", "1")
            .envs(self.environment.iter().cloned());
        command
    }

    fn binary(&self) -> PathBuf {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_levity"));
        if !is_root() || built.ancestors().skip(1).all(is_open_to_all) {
            return built;
        }
        let reachable = self.own.path().join("levity");
        if fs::hard_link(&built, &reachable).is_err() {
            fs::copy(&built, &reachable).expect("copy of the binary");
        }
        reachable
    }
}

fn is_open_to_all(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.mode() & 0o001 != 0)
}
