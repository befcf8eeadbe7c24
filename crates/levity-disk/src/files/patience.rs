//! Calls on files outside of the request path, as at a start: a mount that does not answer keeps nobody waiting for ever.
//!
//! Each call runs in a thread of its own, for which its caller waits [`WAIT_MAX`]. The device that it has reached by then is
//! silent: nobody calls it any more, so that further paths there fail at once, until a call that was left behind has returned.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{self, Path};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::crossing::{KnownDevices, first_new_from_top};
use super::mounts::Table;
use crate::thread::lock;

/// How long a call is waited for. A disk that sleeps takes some seconds until it turns.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// [`WAIT_MAX`] in milliseconds, unless a test has set another one.
static WAIT_MS: AtomicU64 = AtomicU64::new(WAIT_MAX.as_secs() * 1000);

/// Stands for a device that is not known.
const UNKNOWN: u64 = 0;

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

/// What `call` on `path` gives. Blocks, for ten seconds at most.
///
/// # Errors
/// `TimedOut` when the path, or a mount on the way to it, does not respond; then `call` may go on in its thread. Other errors when
/// there is no thread.
pub fn patiently<T: Send + 'static>(
    path: &Path,
    call: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    let path = path::absolute(path)?;
    let number = begin();
    let reached = Arc::new(AtomicU64::new(UNKNOWN));
    let (result, received) = mpsc::sync_channel(1);
    let at = reached.clone();
    run(Box::new(move || {
        let got = approach(&path, &at).map(|()| call(&path));
        hand_over(number, got, &result);
    }))?;
    match received.recv_timeout(Duration::from_millis(WAIT_MS.load(Ordering::Relaxed))) {
        Ok(got) => got,
        Err(RecvTimeoutError::Timeout) => leave(number, &reached, received),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the call has panicked")),
    }
}

/// Whether `path` responds: a file is opened and read from, as far as it is there. Blocks, for ten seconds at most.
///
/// # Errors
/// As [`patiently`].
pub fn responds(path: &Path) -> io::Result<()> {
    patiently(path, |path| {
        // Whoever needs the file finds out what is wrong with it. A pipe is not read from, because it would have lost what was read.
        if let Ok(file) = open(path)
            && file.metadata().is_ok_and(|meta| meta.is_file())
        {
            let _ = (&file).take(1).read(&mut [0]);
        }
    })
}

/// The content of a file, up to `bytes_max`. Blocks, for ten seconds at most.
///
/// # Errors
/// As [`patiently`], and when the file cannot be read.
pub fn read_patiently(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let read = move |path: &Path| {
        let file = open(path)?;
        // Whoever writes to a pipe may be about to.
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    patiently(path, read)?
}

/// Opens a file. The open of a pipe would wait for somebody who writes to it.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn begin() -> u64 {
    let mut left = lock(&LEFT);
    left.begun += 1;
    left.begun
}

/// Has the helper of this thread run `job`.
fn run(job: Job) -> io::Result<()> {
    HELPER.with_borrow_mut(|helper| {
        let jobs = match helper.take() {
            Some(jobs) => jobs,
            None => start()?,
        };
        let sent = jobs.send(job);
        *helper = Some(jobs);
        sent.map_err(|_| io::Error::other("the thread for calls on files has ended"))
    })
}

fn start() -> io::Result<Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let serve = move || queue.iter().for_each(|job| job());
    let thread = thread::Builder::new().name("file-calls".to_owned());
    thread.spawn(serve)?;
    Ok(jobs)
}

/// Goes along `path`, from device to device. Each is in `reached` before it is accessed.
fn approach(path: &Path, reached: &AtomicU64) -> io::Result<()> {
    let mut previous = Vec::new();
    let charged = Table::now().device(b"/").unwrap_or(UNKNOWN);
    loop {
        let known = KnownDevices {
            previous: &previous,
            charged,
        };
        let Some(device) = first_new_from_top(path, known)? else {
            return Ok(());
        };
        if is_silent(device) {
            return Err(no_response());
        }
        reached.store(device, Ordering::Relaxed);
        previous.push(device);
    }
}

fn is_silent(device: u64) -> bool {
    let left = lock(&LEFT);
    left.calls.iter().any(|call| call.device == Some(device))
}

fn no_response() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "does not respond")
}

fn hand_over<T>(number: u64, got: io::Result<T>, result: &SyncSender<io::Result<T>>) {
    let mut left = lock(&LEFT);
    if result.try_send(got).is_err() {
        left.calls.retain(|call| call.number != number);
        left.returned += 1;
    }
}

/// Leaves a call behind, unless it has just returned.
fn leave<T>(number: u64, reached: &AtomicU64, received: Receiver<io::Result<T>>) -> io::Result<T> {
    let mut left = lock(&LEFT);
    if let Ok(got) = received.try_recv() {
        return got;
    }
    let device = reached.load(Ordering::Relaxed);
    left.calls.push(LeftCall {
        number,
        device: Some(device).filter(|device| *device != UNKNOWN),
    });
    // From now on, the call counts as late.
    drop(received);
    drop(left);
    HELPER.set(None);
    Err(no_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Meta;

    /// A call that returns once `end` is dropped.
    fn wait_for(end: Receiver<()>) -> impl FnOnce(&Path) + Send + 'static {
        move |_| drop(end.recv())
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
        while late_returns() == returned {
            thread::yield_now();
        }
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
}
