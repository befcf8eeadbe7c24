//! The application as a process: the command line of `levity-bench backend`, and starting it.

use super::Protocol;
use crate::failure::{Context, Failure, Result};
use crate::rig::Rig;
use crate::rig::cgroup::{Group, Limits};
use crate::rig::confine;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The time-out of the start.
const START_MAX: Duration = Duration::from_secs(10);
/// Temporary files count as memory of the process that writes them.
const LIMITS: Limits = Limits {
    memory_bytes_max: 4 << 30,
    processors_max: None,
};

/// The protocol, the socket and the behaviour of the application.
#[derive(Clone, Debug, clap::Args)]
pub struct Backend {
    /// The Unix socket.
    #[arg(long)]
    pub socket: PathBuf,
    /// The protocol.
    #[arg(long, value_enum)]
    pub protocol: Protocol,
    /// The time to process a request, in microseconds.
    #[arg(long, default_value_t = 0)]
    pub work_us: u64,
    /// The maximum number of requests processed at the same time.
    #[arg(long, default_value_t = 1)]
    pub at_once: usize,
    /// A file to which the ID of each request is appended when its processing begins.
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// The folder for bodies in temporary files.
    #[arg(long)]
    pub files: Option<PathBuf>,
    /// The response header that names a temporary file.
    #[arg(long, default_value = "X-Sendfile-Temporary")]
    pub field: String,
    /// The text before the name of the file in that header; by default the folder.
    #[arg(long)]
    pub prefix: Option<String>,
    /// The number of temporary files that are kept; the oldest is removed. 0 if the proxy removes them.
    #[arg(long, default_value_t = 0)]
    pub kept: usize,
}

impl Backend {
    /// An application that responds at once, at this socket.
    #[must_use]
    pub fn new(socket: &Path, protocol: Protocol) -> Self {
        Self {
            socket: socket.into(),
            protocol,
            work_us: 0,
            at_once: 1,
            log: None,
            files: None,
            field: "X-Sendfile-Temporary".into(),
            prefix: None,
            kept: 0,
        }
    }

    /// Runs in this process until it is killed.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn run(&self) -> Result<()> {
        super::serve(self)
    }

    fn arguments(&self) -> Vec<String> {
        let protocol = match self.protocol {
            Protocol::Http => "http",
            Protocol::Fastcgi => "fastcgi",
        };
        let mut arguments = vec![
            "backend".to_owned(),
            format!("--socket={}", self.socket.display()),
            format!("--protocol={protocol}"),
            format!("--work-us={}", self.work_us),
            format!("--at-once={}", self.at_once),
            format!("--field={}", self.field),
            format!("--kept={}", self.kept),
        ];
        let paths = [("log", &self.log), ("files", &self.files)];
        arguments.extend(paths.iter().filter_map(|(option, path)| {
            let path = path.as_ref()?;
            Some(format!("--{option}={}", path.display()))
        }));
        arguments.extend(self.prefix.iter().map(|text| format!("--prefix={text}")));
        arguments
    }

    /// Starts it as an unprivileged process in a control group of its own, on the CPU of the load. Waits until it
    /// listens.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, rig: &Rig) -> Result<RunningBackend> {
        let program = rig.own_program()?;
        let mut command_line = vec![program.to_string_lossy().into_owned()];
        command_line.extend(self.arguments());
        RunningBackend::start(rig, &self.socket, command_line)
    }
}

/// A running application. Dropping it ends the process.
pub struct RunningBackend {
    /// Its control group, which measures CPU time.
    pub group: Group,
    socket: PathBuf,
    command_line: Vec<String>,
    cpu: Option<usize>,
    child: Child,
}

impl RunningBackend {
    /// Starts a program that will listen at `socket`, as [`Backend::start`] does.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(rig: &Rig, socket: &Path, command_line: Vec<String>) -> Result<Self> {
        let name = socket.file_stem().unwrap_or_default().to_string_lossy();
        let group = Group::create(rig.journal(), &format!("backend-{name}"), LIMITS)?;
        let cpu = rig.load_cpu();
        // A socket file that an earlier process left would be mistaken for the new socket.
        let _ = std::fs::remove_file(socket);
        let child = spawn(&group, cpu, &command_line)?;
        let mut backend = Self {
            group,
            socket: socket.into(),
            command_line,
            cpu,
            child,
        };
        backend.wait_until_it_listens()?;
        Ok(backend)
    }

    /// Sends SIGKILL: requests in progress are lost.
    ///
    /// # Errors
    /// It has already ended.
    pub fn kill(&mut self) -> Result<()> {
        let status = self
            .child
            .try_wait()
            .context(|| "wait for a backend".into())?;
        if let Some(status) = status {
            return Err(Failure::new(format!("a backend has ended: {status}")));
        }
        self.child.kill().context(|| "kill a backend".into())?;
        self.child
            .wait()
            .context(|| "wait for a backend".into())
            .map(drop)
    }

    /// Starts it again after a kill. Does not wait until it listens.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart(&mut self) -> Result<()> {
        self.child = spawn(&self.group, self.cpu, &self.command_line)?;
        Ok(())
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let end = Instant::now() + START_MAX;
        while UnixStream::connect(&self.socket).is_err() {
            let ended = self
                .child
                .try_wait()
                .context(|| "wait for a backend".into())?;
            if ended.is_some() || Instant::now() > end {
                let program = &self.command_line[0];
                return Err(Failure::new(format!("{program} does not listen")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn spawn(group: &Group, cpu: Option<usize>, command_line: &[String]) -> Result<Child> {
    confine::server(&group.paths(), cpu, None, command_line)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context(|| format!("start {}", command_line[0]))
}

impl Drop for RunningBackend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}
