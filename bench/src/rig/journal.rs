//! The journal of changes that the rig makes to the machine, and how each is undone.
//!
//! A change is recorded in a file before it is made, and removed from it after it is undone. Normally guards undo the
//! changes. If the benchmark dies without running them (a signal, `panic = "abort"`), a second process, the reaper, undoes
//! them: it waits for the end of a pipe that only the benchmark holds. If both die, the next run undoes them first.

use crate::failure::{Context, Failure, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The time-out of an undo step whose object is busy.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// A step that undoes one change. It is idempotent, and affects only what the rig has made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Step {
    /// Unmount this mount point.
    Unmount(PathBuf),
    /// Detach the loop devices that are backed by this file.
    DetachLoops(PathBuf),
    /// Kill the process with this ID, if it still has this start time (clock ticks since boot).
    Kill {
        /// Process ID.
        pid: i32,
        /// Field 22 of `/proc/PID/stat`.
        started: u64,
    },
    /// Continue the stopped process with this ID, if it still has this start time.
    Resume {
        /// Process ID.
        pid: i32,
        /// Field 22 of `/proc/PID/stat`.
        started: u64,
    },
    /// Kill the processes in the control group and remove it.
    RemoveGroup(PathBuf),
    /// Remove the file.
    RemoveFile(PathBuf),
    /// Remove the directory with its content.
    RemoveDirectory(PathBuf),
    /// Restore the old content, such as a setting in `/sys`.
    Restore(PathBuf, String),
}

/// The changes that are not undone yet.
pub struct Journal {
    path: PathBuf,
    steps: RefCell<Vec<Step>>,
    /// Locked until the benchmark ends; two benchmarks would distort each other's figures.
    lock: Option<File>,
    /// The reaper. It waits for the end of its standard input.
    reaper: Child,
}

/// Undoes its step when dropped.
#[must_use]
pub struct Guard {
    journal: Rc<Journal>,
    step: Step,
}

impl Journal {
    /// Locks the directory, undoes the changes of an interrupted run, and starts the reaper.
    ///
    /// # Errors
    /// Another benchmark uses this directory.
    pub fn open(dir: &Path) -> Result<Rc<Self>> {
        let lock = lock_file(dir)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .context(|| format!("another benchmark is using {}", dir.display()))?;
        undo_leftovers(dir)?;
        let reaper = start_reaper(dir)?;
        Ok(Rc::new(Self {
            path: journal_path(dir),
            steps: RefCell::default(),
            lock: Some(lock),
            reaper,
        }))
    }

    /// Records a change that is about to be made.
    ///
    /// # Errors
    /// The journal cannot be written; the change must not be made.
    pub fn note(self: &Rc<Self>, step: Step) -> Result<Guard> {
        self.steps.borrow_mut().push(step.clone());
        write_steps(&self.path, &self.steps.borrow())?;
        Ok(Guard {
            journal: Rc::clone(self),
            step,
        })
    }

    fn strike(&self, step: &Step) -> Result<()> {
        let mut steps = self.steps.borrow_mut();
        if let Some(last) = steps.iter().rposition(|noted| noted == step) {
            steps.remove(last);
        }
        write_steps(&self.path, &steps)
    }
}

impl Drop for Journal {
    /// Ends the reaper, which finds nothing to undo.
    fn drop(&mut self) {
        drop(self.lock.take());
        // `wait` closes the pipe first.
        let _ = self.reaper.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let undone = self
            .step
            .undo()
            .and_then(|()| self.journal.strike(&self.step));
        if let Err(error) = undone {
            eprintln!("levity-bench: {error}");
        }
    }
}

/// The reaper: waits until standard input ends, then undoes the changes.
///
/// # Errors
/// A step fails.
pub fn reap(dir: &Path) -> Result<()> {
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .context(|| "wait for the benchmark".into())?;
    let lock = lock_file(dir)?;
    flock(&lock, FlockOperation::LockExclusive).context(|| "lock the journal".into())?;
    undo_leftovers(dir)
}

/// In its own process group, where Ctrl-C in the terminal does not reach it.
fn start_reaper(dir: &Path) -> Result<Child> {
    let program = std::env::current_exe().context(|| "path of this program".into())?;
    Command::new(program)
        .arg("reap")
        .arg(dir)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .context(|| "start the reaper".into())
}

fn lock_file(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .context(|| format!("open {}", path.display()))
}

fn journal_path(dir: &Path) -> PathBuf {
    dir.join("journal")
}

fn write_steps(path: &Path, steps: &[Step]) -> Result<()> {
    let json = serde_json::to_string(steps).context(|| "journal".into())?;
    std::fs::write(path, json).context(|| format!("write {}", path.display()))
}

/// Undoes the recorded changes, newest first. Tries every step. Returns the first error; failed steps stay recorded.
fn undo_leftovers(dir: &Path) -> Result<()> {
    let path = journal_path(dir);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(());
    };
    let mut left: Vec<Step> =
        serde_json::from_str(&text).context(|| format!("read {}", path.display()))?;
    let mut first_error = None;
    for index in (0..left.len()).rev() {
        match left[index].undo() {
            Ok(()) => drop(left.remove(index)),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    write_steps(&path, &left)?;
    first_error.map_or(Ok(()), Err)
}

impl Step {
    /// Undoes the change, if there is one. Blocks until it is done, for at most ten seconds.
    ///
    /// # Errors
    /// The object stays busy, or the kernel refuses.
    pub fn undo(&self) -> Result<()> {
        match self {
            Self::Unmount(path) => until_done(|| unmount(path)),
            Self::DetachLoops(file) => until_done(|| detach_loops(file)),
            Self::Kill { pid, started } => until_done(|| end_process(*pid, *started)),
            Self::Resume { pid, started } => {
                resume(*pid, *started);
                Ok(())
            }
            Self::RemoveGroup(path) => until_done(|| remove_group(path)),
            Self::RemoveFile(path) => removed(path, std::fs::remove_file(path)),
            Self::RemoveDirectory(path) => removed(path, std::fs::remove_dir_all(path)),
            Self::Restore(path, value) => {
                std::fs::write(path, value).context(|| format!("restore {}", path.display()))
            }
        }
    }

    /// The step that ends this child.
    ///
    /// # Errors
    /// The child has already ended.
    pub fn kill(child: &Child) -> Result<Self> {
        let pid = child.id().cast_signed();
        let started =
            start_time(pid).ok_or_else(|| Failure::new(format!("process {pid} ended at once")))?;
        Ok(Self::Kill { pid, started })
    }

    /// The step that continues this child.
    ///
    /// # Errors
    /// The child has already ended.
    pub fn resume(child: &Child) -> Result<Self> {
        Self::kill(child).map(|step| match step {
            Self::Kill { pid, started } => Self::Resume { pid, started },
            other => other,
        })
    }
}

/// Retries until it succeeds: a mount is busy until its last user has ended.
fn until_done(mut attempt: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + BUSY_MAX;
    loop {
        match attempt() {
            Ok(true) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(error),
            Ok(false) if Instant::now() > end => {
                return Err(Failure::new("still busy after ten seconds"));
            }
            Ok(false) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn unmount(path: &Path) -> Result<bool> {
    if !is_mounted(path)? {
        return Ok(true);
    }
    run_quietly(Command::new("umount").arg(path))?;
    Ok(!is_mounted(path)?)
}

fn is_mounted(path: &Path) -> Result<bool> {
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").context(|| "read the mounts".into())?;
    let wanted = path.to_string_lossy();
    Ok(mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&*wanted)))
}

fn detach_loops(file: &Path) -> Result<bool> {
    let devices = loops_of(file)?;
    for device in &devices {
        run_quietly(Command::new("losetup").arg("--detach").arg(device))?;
    }
    Ok(devices.is_empty() || loops_of(file)?.is_empty())
}

/// By the name in `/sys`, because `losetup -j` would stat a FUSE file whose server may be gone.
fn loops_of(file: &Path) -> Result<Vec<PathBuf>> {
    let blocks = std::fs::read_dir("/sys/block").context(|| "list /sys/block".into())?;
    let backed_by_file = |name: &String| {
        let backing = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end()) == file)
    };
    let names = blocks
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names
        .filter(backed_by_file)
        .map(|name| Path::new("/dev").join(name))
        .collect())
}

fn end_process(pid: i32, started: u64) -> Result<bool> {
    if start_time(pid) != Some(started) {
        return Ok(true);
    }
    send(pid, Signal::KILL);
    Ok(false)
}

/// None once the process has ended, even if it is a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain spaces and parentheses.
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ');
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        None
    } else {
        fields.nth(18)?.parse().ok()
    }
}

fn resume(pid: i32, started: u64) {
    if start_time(pid) == Some(started) {
        send(pid, Signal::CONT);
    }
}

fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // ESRCH: it has ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// Ignores that something does not exist.
fn removed(path: &Path, result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn remove_group(path: &Path) -> Result<bool> {
    let Ok(processes) = std::fs::read_to_string(path.join("cgroup.procs")) else {
        return Ok(true);
    };
    processes
        .lines()
        .filter_map(|line| line.parse().ok())
        .for_each(|pid| send(pid, Signal::KILL));
    std::fs::remove_dir(path).context(|| format!("remove {}", path.display()))?;
    Ok(true)
}

/// Runs a tool. Its standard error becomes part of the error.
///
/// # Errors
/// It cannot be started or does not exit with 0.
pub(crate) fn run_quietly(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .context(|| format!("run {name}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::new(format!(
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(dir: &Path, steps: &[Step]) {
        write_steps(&journal_path(dir), steps).unwrap();
    }

    #[test]
    fn changes_are_undone_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let setting = dir.path().join("setting");
        let restore = |value: &str| Step::Restore(setting.clone(), value.into());
        noted(dir.path(), &[restore("oldest"), restore("newest")]);
        undo_leftovers(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "oldest");
        assert_eq!(
            std::fs::read_to_string(journal_path(dir.path())).unwrap(),
            "[]"
        );
    }

    #[test]
    fn a_failed_step_stays_recorded_and_the_others_are_undone() {
        let dir = tempfile::tempdir().unwrap();
        let setting = dir.path().join("setting");
        let impossible = Step::Restore(dir.path().join("missing/setting"), "x".into());
        noted(
            dir.path(),
            &[
                Step::Restore(setting.clone(), "old".into()),
                impossible.clone(),
            ],
        );
        assert!(undo_leftovers(dir.path()).is_err());
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "old");
        let left = std::fs::read_to_string(journal_path(dir.path())).unwrap();
        assert_eq!(left, serde_json::to_string(&[impossible]).unwrap());
    }

    #[test]
    fn kills_the_recorded_process_and_no_other_with_its_id() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let Step::Kill { pid, started } = Step::kill(&child).unwrap() else {
            unreachable!()
        };
        Step::Kill {
            pid,
            started: started + 1,
        }
        .undo()
        .unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        Step::Kill { pid, started }.undo().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn nothing_to_undo_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        Step::Unmount(absent.clone()).undo().unwrap();
        Step::DetachLoops(absent.clone()).undo().unwrap();
        Step::RemoveGroup(absent.clone()).undo().unwrap();
        Step::RemoveFile(absent.clone()).undo().unwrap();
        Step::RemoveDirectory(absent).undo().unwrap();
        undo_leftovers(dir.path()).unwrap();
    }
}
