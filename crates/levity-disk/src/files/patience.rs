//! Calls on files outside of the request path, as at a start: a mount that does not answer keeps nobody waiting for ever.
//!
//! Each call runs in a thread of its own, for which its caller waits [`WAIT_MAX`]. The device that it has reached by then is
//! silent: nobody calls it any more, so that further paths there fail at once, until a call that was left behind has returned. A pipe
//! that nobody writes to, and other files that wait for somebody, say nothing about their device. But whoever forgot one of them forgot
//! others too: they are waited for [`FURTHER_PART`] of that time.

use std::any::Any;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{self, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::crossing;
use super::mounts::{Table, UNKNOWN};
use crate::thread::lock;

/// How long a call is waited for. A disk that sleeps takes some seconds until it turns.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The part of [`WAIT_MAX`] for a pipe while another one is silent.
const FURTHER_PART: u32 = 20;

/// In place of the device of a file that waits for somebody.
const SOMEBODY: u64 = u64::MAX;

/// Gets the path of each call that is left behind.
static REPORT: OnceLock<fn(&Path)> = OnceLock::new();

/// [`WAIT_MAX`] in milliseconds, unless a test has set another one.
static WAIT_MS: AtomicU64 = AtomicU64::new(WAIT_MAX.as_secs() * 1000);

static LEFT: Mutex<Left> = Mutex::new(Left {
    calls: Vec::new(),
    begun: 0,
    returned: 0,
});

/// Calls that nobody waits for any more.
struct Left {
    calls: Vec<LeftCall>,
    /// All calls that have begun.
    begun: u64,
    /// Those that were left behind, and have returned since.
    returned: u64,
}

struct LeftCall {
    number: u64,
    /// The device that does not answer, unless it is that of `/`, without which there is nothing, or not known.
    device: Option<u64>,
    /// Whether it waits for somebody.
    is_for_somebody: bool,
    /// Absolute.
    path: PathBuf,
}

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Runs the calls of this thread, until one of them does not return.
    static HELPER: RefCell<Option<Sender<Job>>> = const { RefCell::new(None) };
}

/// Sets how long a call is waited for in this process. For tests.
pub fn set_patience(wait: Duration) {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    WAIT_MS.store(millis, Ordering::Relaxed);
}

/// The number of calls so far that have returned when nobody waited for them any more: what did not respond before may do so
/// once it has changed. Does not wait.
pub fn late_returns() -> u64 {
    lock(&LEFT).returned
}

/// Has `report` called with each path that does not respond in time, once until it does: what is being made may need more such paths,
/// so that its end, and a word about them, is far. Only the first call counts.
pub fn on_late(report: fn(&Path)) {
    let _ = REPORT.set(report);
}

/// Ends the thread that makes such calls for the calling one; the next call starts another. For what a thread hands on to those that it
/// starts from now on. Does not wait.
pub fn end_patient_thread() {
    HELPER.set(None);
}

/// What `call` on `path` gives. Blocks, for ten seconds at most.
///
/// # Errors
/// `TimedOut` when the path, or a mount on the way to it, does not respond; then `call` may go on in its thread. Other errors when
/// `call` panics, or there is no thread.
pub fn patiently<T: Send + 'static>(
    path: &Path,
    call: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    patiently_with(path, Vec::new(), call)
}

/// As [`patiently`], for a call that also needs `others`, of which is known that they [respond](responds).
///
/// # Errors
/// As [`patiently`].
pub fn patiently_with<T: Send + 'static>(
    path: &Path,
    others: Vec<PathBuf>,
    call: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    let mut call = Some(call);
    let call = move |path: &Path| -> Given {
        let call = call.take().expect("there is one path");
        Box::new(call(path))
    };
    let mut calls = Calls::begin(vec![path.to_owned()], others, Box::new(call))?;
    calls.next(path).map_or_else(|| Err(no_response()), of_type)
}

/// What `call` on each of `paths` gives, in their order. Cheaper than [`patiently`] for each. Blocks, for ten seconds at most for each
/// device that does not respond.
pub fn patiently_for_each<T: Send + 'static>(
    paths: &[PathBuf],
    call: fn(&Path) -> T,
) -> Vec<io::Result<T>> {
    let mut results = Vec::with_capacity(paths.len());
    while results.len() < paths.len() {
        let rest = paths[results.len()..].to_vec();
        let call = move |path: &Path| -> Given { Box::new(call(path)) };
        let mut calls = match Calls::begin(rest, Vec::new(), Box::new(call)) {
            Ok(calls) => calls,
            Err(error) => {
                results.push(Err(error));
                continue;
            }
        };
        while results.len() < paths.len() {
            let Some(result) = calls.next(&paths[results.len()]) else {
                results.push(Err(no_response()));
                break;
            };
            results.push(of_type(result));
        }
    }
    results
}

/// Whether `path` responds: a file is opened and read from, as far as it is there. Blocks, for ten seconds at most.
///
/// # Errors
/// As [`patiently`].
pub fn responds(path: &Path) -> io::Result<()> {
    patiently(path, |path| {
        // Whoever needs the file finds out what is wrong with it. A pipe is not read from, because it would have lost what was read.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path);
        if let Ok(file) = opened
            && file.metadata().is_ok_and(|meta| meta.is_file())
        {
            let _ = (&file).take(1).read(&mut [0]);
        }
    })
}

/// The content of a file, up to `bytes_max`; that of a pipe once it is written. Blocks, for ten seconds at most.
///
/// # Errors
/// As [`patiently`], and when the file cannot be read.
pub fn read_patiently(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let read = move |path: &Path| {
        let mut bytes = Vec::new();
        File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    patiently(path, read)?
}

/// What a call gives. Channels for each type of it would be a seventh of what the compiler makes of `levity-config`.
type Given = Box<dyn Any + Send>;

fn of_type<T: 'static>(given: io::Result<Given>) -> io::Result<T> {
    given.map(|given| {
        *given
            .downcast()
            .expect("what the call of this caller gives")
    })
}

/// Calls on several paths, one after the other, in the helper of this thread.
struct Calls {
    number: u64,
    /// The device that was reached last.
    reached: Arc<AtomicU64>,
    /// `None` once they are left behind.
    results: Option<Receiver<io::Result<Given>>>,
}

impl Calls {
    fn begin(
        paths: Vec<PathBuf>,
        others: Vec<PathBuf>,
        mut call: Box<dyn FnMut(&Path) -> Given + Send>,
    ) -> io::Result<Self> {
        let number = {
            let mut left = lock(&LEFT);
            left.begun += 1;
            left.begun
        };
        let reached = Arc::new(AtomicU64::new(UNKNOWN));
        let (given, results) = mpsc::channel();
        let at = reached.clone();
        run(Box::new(move || {
            for path in paths {
                let path = path::absolute(path);
                let got = path.and_then(|path| {
                    approach(&path, &others, &at)?;
                    // The thread is for the next calls too.
                    let called = catch_unwind(AssertUnwindSafe(|| call(&path)));
                    called.map_err(|_| io::Error::other("a call on a file has panicked"))
                });
                if !hand_over(number, got, &given) {
                    break;
                }
            }
        }))?;
        Ok(Self {
            number,
            reached,
            results: Some(results),
        })
    }

    /// The next result, that for `path`. `None` when it does not come in time: then all that are left are left behind.
    fn next(&mut self, path: &Path) -> Option<io::Result<Given>> {
        let results = self.results.as_ref()?;
        let wait = Duration::from_millis(WAIT_MS.load(Ordering::Relaxed));
        let is_for_somebody = || self.reached.load(Ordering::Relaxed) == SOMEBODY;
        let received = match results.recv_timeout(wait / FURTHER_PART) {
            Err(RecvTimeoutError::Timeout) if !(is_for_somebody() && is_one_forgotten()) => {
                results.recv_timeout(wait - wait / FURTHER_PART)
            }
            received => received,
        };
        match received {
            Ok(got) => Some(got),
            Err(RecvTimeoutError::Disconnected) => Some(Err(ended())),
            Err(RecvTimeoutError::Timeout) => self.leave(path),
        }
    }

    /// Leaves the calls behind, unless there is a result by now.
    fn leave(&mut self, path: &Path) -> Option<io::Result<Given>> {
        let absolute = path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut left = lock(&LEFT);
        if let Some(Ok(got)) = self.results.as_ref().map(Receiver::try_recv) {
            return Some(got);
        }
        let device = self.reached.load(Ordering::Relaxed);
        let is_known = left.calls.iter().any(|call| call.path == absolute);
        left.calls.push(LeftCall {
            number: self.number,
            device: Some(device).filter(|device| ![UNKNOWN, SOMEBODY].contains(device)),
            is_for_somebody: device == SOMEBODY,
            path: absolute,
        });
        // From now on, a result is late.
        self.results = None;
        drop(left);
        HELPER.set(None);
        if let Some(report) = REPORT.get().filter(|_| !is_known) {
            report(path);
        }
        None
    }
}

/// Has the helper of this thread run `job`.
fn run(job: Job) -> io::Result<()> {
    HELPER.with_borrow_mut(|helper| {
        let jobs = match helper.take() {
            Some(jobs) => jobs,
            None => start()?,
        };
        jobs.send(job).map_err(|_| ended())?;
        *helper = Some(jobs);
        Ok(())
    })
}

fn ended() -> io::Error {
    io::Error::other("the thread for calls on files has ended")
}

fn start() -> io::Result<Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let serve = move || queue.iter().for_each(|job| job());
    let thread = thread::Builder::new().name("file-calls".to_owned());
    thread.spawn(serve)?;
    Ok(jobs)
}

/// Goes along `path`, from device to device. Each is in `reached` before it is accessed, and [`SOMEBODY`] once only a file that waits
/// for somebody, the one at `path` or one of `others`, can hold up a call.
fn approach(path: &Path, others: &[PathBuf], reached: &AtomicU64) -> io::Result<()> {
    reached.store(UNKNOWN, Ordering::Relaxed);
    let top = Table::now().device(b"/").unwrap_or(UNKNOWN);
    crossing::along(path, |device| match device {
        _ if device == top => Ok(()),
        _ if is_silent(device) => Err(no_response()),
        _ => {
            reached.store(device, Ordering::Relaxed);
            Ok(())
        }
    })?;
    if waits_for_somebody(path) || others.iter().any(|other| waits_for_somebody(other)) {
        // Whoever tries again would leave one thread more behind each time.
        if is_forgotten(path) {
            return Err(no_response());
        }
        reached.store(SOMEBODY, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether there is a pipe, a socket or a device, whose other end may be silent.
fn waits_for_somebody(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

fn is_silent(device: u64) -> bool {
    let left = lock(&LEFT);
    left.calls.iter().any(|call| call.device == Some(device))
}

/// Whether a file that waits for somebody has been left behind.
fn is_one_forgotten() -> bool {
    lock(&LEFT).calls.iter().any(|call| call.is_for_somebody)
}

/// Whether a call on `path`, which is absolute, has been left behind there.
fn is_forgotten(path: &Path) -> bool {
    let left = lock(&LEFT);
    let mut calls = left.calls.iter();
    calls.any(|call| call.is_for_somebody && call.path == path)
}

fn no_response() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "does not respond")
}

/// Gives a result to whoever waits for it. False if that is nobody.
fn hand_over(number: u64, got: io::Result<Given>, given: &Sender<io::Result<Given>>) -> bool {
    let mut left = lock(&LEFT);
    let is_awaited = given.send(got).is_ok();
    if !is_awaited {
        let before = left.calls.len();
        left.calls.retain(|call| call.number != number);
        left.returned += (before - left.calls.len()) as u64;
    }
    is_awaited
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Meta;

    /// A call that returns once `end` is dropped.
    fn wait_for(end: Receiver<()>) -> impl FnOnce(&Path) + Send + 'static {
        move |_| {
            let _ = end.recv();
        }
    }

    #[test]
    fn a_silent_device_is_left_alone_until_it_answers() {
        set_patience(Duration::from_millis(50));
        let (end, ends) = mpsc::channel::<()>();
        let returned = late_returns();
        let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
        let silent = Err(io::ErrorKind::TimedOut);
        assert_eq!(
            kind(patiently("/proc/version".as_ref(), wait_for(ends))),
            silent
        );
        // At once, and without a call.
        let called = |path: &str| kind(patiently(path.as_ref(), |_| ()));
        assert_eq!(called("/proc/stat"), silent);
        assert_eq!(called("/proc"), silent);
        assert_eq!(called("/"), Ok(()));
        assert_eq!(called("/none/there"), Ok(()));
        let device = Meta::from(rustix::fs::stat("/proc").expect("a folder")).device;
        assert!(is_silent(device));
        drop(end);
        while is_silent(device) {
            thread::yield_now();
        }
        assert!(late_returns() > returned);
        assert_eq!(called("/proc/stat"), Ok(()));
        assert!(responds("/proc/version".as_ref()).is_ok());
    }

    #[test]
    fn no_path_of_the_main_device_harms_another_one() {
        set_patience(Duration::from_millis(50));
        let (_end, ends) = mpsc::channel::<()>();
        let result = patiently("/".as_ref(), wait_for(ends));
        assert_eq!(
            result.expect_err("it waits").kind(),
            io::ErrorKind::TimedOut
        );
        assert!(patiently("/".as_ref(), |_| ()).is_ok());
    }

    #[test]
    fn a_call_that_panics_ends_no_other() {
        let paths = ["/", "/slow", "/b"].map(PathBuf::from);
        let results = patiently_for_each(&paths, |path| assert!(!path.ends_with("slow")));
        let is_done: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(is_done, [true, false, true]);
        assert!(patiently("/".as_ref(), |_| panic!("on purpose")).is_err());
        assert!(patiently("/".as_ref(), |_| ()).is_ok());
    }

    /// Not its device, but whoever would write to it.
    #[test]
    fn a_pipe_without_a_writer_is_silent_alone() {
        set_patience(Duration::from_millis(50));
        // The device of `/` is never silent.
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let [pipe, file] = ["pipe", "file"].map(|name| folder.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
        File::create(&file).expect("a file");
        let device = Meta::from(rustix::fs::stat(&file).expect("a file")).device;
        let open = |path: PathBuf| move |_: &Path| File::open(path).map(drop);
        let alone = patiently(&pipe, open(pipe.clone()));
        let beside = patiently_with(&file, vec![pipe.clone()], open(pipe.clone()));
        for result in [alone, beside] {
            assert_eq!(
                result.expect_err("it waits").kind(),
                io::ErrorKind::TimedOut
            );
            assert!(!is_silent(device));
        }
        // At once, and without another thread that waits.
        let again = patiently(&pipe, |_| ());
        assert_eq!(again.expect_err("it waits").kind(), io::ErrorKind::TimedOut);
        assert!(responds(&file).is_ok());
        // Lets the threads go on.
        drop(File::options().write(true).open(&pipe));
    }

    /// Blocks for as long as the test of a silent device needs, where that is asked for.
    fn slow_if_named(path: &Path) -> bool {
        if path.ends_with("slow") {
            thread::sleep(Duration::from_millis(200));
        }
        true
    }

    #[test]
    fn one_path_holds_up_no_other() {
        set_patience(Duration::from_millis(50));
        let paths = ["/a", "/slow", "/b", "/c"].map(PathBuf::from);
        let results = patiently_for_each(&paths, slow_if_named);
        let responds: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(responds, [true, false, true, true]);
    }
}
