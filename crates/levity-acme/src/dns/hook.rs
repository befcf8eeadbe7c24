//! A program of the operator that changes the DNS.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, Command};
use tokio::{select, task, time};

/// The limit of time of one call. It includes the time until the record is visible.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How much of the end of standard error is reported, in bytes.
const STDERR_BYTES_MAX: usize = 1024;

/// How long standard error is read after the end of the program. A process that it left behind may keep it open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);

/// A program that is called as `PROGRAM... set|remove NAME VALUE`, with the name and the value also in the variables
/// `LEVITY_DNS_NAME` and `LEVITY_DNS_VALUE`. Its `set` ends when the record is visible.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The program and its first arguments.
    pub program: Vec<String>,
}

impl Hook {
    /// Calls the program with `set`.
    ///
    /// # Errors
    /// In words, with the last lines of its standard error.
    pub async fn set(&self, name: &str, value: &str) -> Result<(), String> {
        self.call(["set", name, value], TIMEOUT).await
    }

    /// Calls the program with `remove`.
    ///
    /// # Errors
    /// In words, with the last lines of its standard error.
    pub async fn remove(&self, name: &str, value: &str) -> Result<(), String> {
        self.call(["remove", name, value], TIMEOUT).await
    }

    async fn call(&self, arguments: [&str; 3], timeout: Duration) -> Result<(), String> {
        let [action, name, _] = arguments;
        let called = format!("`{} {action} {name}`", self.program.join(" "));
        let command = self.command(arguments)?;
        let mut running = start(command)
            .await
            .map_err(|error| format!("{called} cannot be started: {error}"))?;
        let mut stderr = Tail::default();
        let (ended, problem) = match time::timeout(timeout, running.wait(&mut stderr)).await {
            Ok(Ok(status)) => (status.success(), ended(status)),
            Ok(Err(error)) => (false, format!("cannot be waited for: {error}")),
            Err(_) => (false, format!("did not end within {timeout:?}")),
        };
        match (ended, stderr.text()) {
            (true, _) => Ok(()),
            (false, text) if text.is_empty() => Err(format!("{called} {problem}")),
            (false, text) => Err(format!("{called} {problem}: {text}")),
        }
    }

    fn command(&self, arguments: [&str; 3]) -> Result<Command, String> {
        let (program, first) = self
            .program
            .split_first()
            .ok_or("the hook has no program")?;
        let [_, name, value] = arguments;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(arguments)
            .env("LEVITY_DNS_NAME", name)
            .env("LEVITY_DNS_VALUE", value)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // So that its own children can be killed with it.
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }
}

/// Starts a program on a thread that may block: the start waits until the program is read from the disk.
async fn start(mut command: Command) -> std::io::Result<Running> {
    let started = task::spawn_blocking(move || command.spawn().map(Running)).await;
    started.map_err(std::io::Error::other)?
}

/// A program that is killed with its process group, unless it has ended.
struct Running(Child);

impl Running {
    /// Waits for the end of the program, and reads its standard error.
    async fn wait(&mut self, tail: &mut Tail) -> std::io::Result<ExitStatus> {
        let stderr = self.0.stderr.take();
        let reading = tail.read(stderr);
        tokio::pin!(reading);
        select! {
            () = &mut reading => self.0.wait().await,
            status = self.0.wait() => {
                let _ = time::timeout(STDERR_TIMEOUT, reading).await;
                status
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // There is no number once the end of the program is known: it may belong to another process then.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            // An error means that no process is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The last bytes of standard error.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    /// Reads until the end, or an error, which says no more than the end.
    async fn read(&mut self, stderr: Option<ChildStderr>) {
        let Some(mut stderr) = stderr else { return };
        let mut piece = [0; STDERR_BYTES_MAX];
        while let Ok(count @ 1..) = stderr.read(&mut piece).await {
            self.bytes.extend_from_slice(&piece[..count]);
            let surplus = self.bytes.len().saturating_sub(STDERR_BYTES_MAX);
            self.bytes.drain(..surplus);
            self.is_cut |= surplus > 0;
        }
    }

    /// The whole lines as one line without control characters.
    fn text(&self) -> String {
        let line_end = self.bytes.iter().position(|&byte| byte == b'\n');
        let start = line_end.filter(|_| self.is_cut).map_or(0, |end| end + 1);
        let text = String::from_utf8_lossy(&self.bytes[start..]);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines.collect::<Vec<_>>().join("; ");
        line.replace(char::is_control, " ")
    }
}

/// How a program has ended, in words.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with the exit status {code}"),
        (None, Some(signal)) => format!("was ended by the signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "_acme-challenge.example.org";

    /// A hook that is a shell script. Its arguments are `$1` to `$3`.
    fn script(text: &str) -> Hook {
        let program = ["sh", "-c", text, "hook"].map(str::to_owned).to_vec();
        Hook { program }
    }

    async fn error(text: &str) -> String {
        script(text).set(NAME, "v").await.unwrap_err()
    }

    #[tokio::test]
    async fn gets_arguments_and_variables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calls");
        let shown = path.display();
        let hook = script(&format!(
            r#"echo "$* $LEVITY_DNS_NAME $LEVITY_DNS_VALUE" >> {shown}; echo noise; echo noise >&2"#
        ));
        hook.set(NAME, "v a").await.unwrap();
        hook.remove(NAME, "v b").await.unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!("set {NAME} v a {NAME} v a\nremove {NAME} v b {NAME} v b\n")
        );
    }

    #[tokio::test]
    async fn a_failure_has_status_and_standard_error() {
        let problem = error("echo first >&2; printf '\\tsecond\\033[31m\\n\\n' >&2; exit 3").await;
        let (_, said) = problem.split_once("hook set").unwrap();
        assert_eq!(
            said,
            format!(" {NAME}` ended with the exit status 3: first; second [31m")
        );
        assert!(error("exit 4").await.ends_with("the exit status 4"));
        assert!(error("kill -9 $$").await.ends_with("by the signal 9"));
    }

    #[tokio::test]
    async fn standard_error_is_cut_at_a_line() {
        let problem = error("seq 100000 >&2; exit 1").await;
        let (_, said) = problem.split_once("status 1: ").unwrap();
        assert!(said.len() <= 2 * STDERR_BYTES_MAX, "{said}");
        assert!(said.ends_with("99999; 100000"), "{said}");
        let first: u32 = said.split(';').next().unwrap().parse().unwrap();
        assert!((99_800..100_000).contains(&first), "{first}");
        let problem = error("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1").await;
        assert!(problem.ends_with(&format!("status 1: {}", "x".repeat(STDERR_BYTES_MAX))));
    }

    #[tokio::test]
    async fn a_process_left_behind_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        // The process in the background reads the pipe until the test is over.
        let hook = script(&format!(
            "mkfifo {0}; cat {0} & echo text >&2; exit 1",
            fifo.display()
        ));
        let problem = hook.set(NAME, "v").await.unwrap_err();
        assert!(problem.ends_with("status 1: text"), "{problem}");
        std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    }

    #[tokio::test]
    async fn one_that_takes_too_long_fails() {
        let timeout = Duration::from_millis(50);
        let hook = script("exec sleep 1000");
        let called = hook.call(["set", NAME, "v"], timeout).await;
        let problem = called.unwrap_err();
        assert!(problem.ends_with("` did not end within 50ms"), "{problem}");
    }

    #[tokio::test]
    async fn what_is_not_waited_for_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        let hook = script(&format!("cat {} & wait", fifo.display()));
        let opened = task::spawn_blocking(move || std::fs::File::options().write(true).open(fifo));
        // The pipe can be opened when the child of the hook has opened it.
        let mut pipe = select! {
            ended = hook.set(NAME, "v") => panic!("{ended:?}"),
            pipe = opened => pipe.unwrap().unwrap(),
        };
        // Writing fails when nobody has the pipe open for reading any more.
        while std::io::Write::write(&mut pipe, b"x").is_ok() {
            task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_that_cannot_be_started() {
        let program = vec!["/no/such/program".to_owned()];
        let problem = Hook { program }.set(NAME, "v").await.unwrap_err();
        let start = format!("`/no/such/program set {NAME}` cannot be started: No such file");
        assert!(problem.starts_with(&start), "{problem}");
        let program = vec![];
        let problem = Hook { program }.set(NAME, "v").await.unwrap_err();
        assert_eq!(problem, "the hook has no program");
    }
}
