//! The resources that a thread has used, and the time that it waited for a processor.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::mem::{self, MaybeUninit};
use std::time::Duration;

/// The resources that one thread has used since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadUsage {
    /// Time on a processor, in user space and in the kernel.
    pub cpu: Duration,
    /// Voluntary context switches: it waited for a lock, a poll, the disk.
    pub voluntary_switches: u64,
}

/// The usage of the calling thread. Takes two system calls, about 400 ns; does not block.
///
/// The processor time is that of the thread's clock. `getrusage` updates its own only at a tick or a switch:
/// it reported 12 us for a thread that had spun for 3.4 ms.
pub fn thread() -> ThreadUsage {
    let usage = rusage();
    ThreadUsage {
        cpu: cpu(),
        voluntary_switches: usage.ru_nvcsw.unsigned_abs(),
    }
}

/// Runs `call`. Also returns whether the calling thread slept in it: for a page of a file, a lock, or memory
/// that the kernel had to reclaim first, but not for a processor. Adds two system calls, which do not
/// block.
pub fn slept_during<T>(call: impl FnOnce() -> T) -> (T, bool) {
    let before = rusage().ru_nvcsw;
    let outcome = call();
    (outcome, rusage().ru_nvcsw != before)
}

fn rusage() -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a `rusage`, which the kernel fills; `RUSAGE_THREAD` is always known.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    debug_assert_eq!(result, 0);
    // SAFETY: all zeroes is a valid `rusage`, and so is what the kernel wrote.
    unsafe { usage.assume_init() }
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's time is not negative")
}

/// The kernel's ID of the calling thread.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The time that thread `tid` of this process was ready to run without a processor, since it started.
/// Reads `/proc` and blocks: for a watchdog thread, not for the watched thread.
///
/// # Errors
/// `NotFound` when the thread is gone or the kernel lacks `CONFIG_SCHED_INFO`; `InvalidData` when
/// the file does not have the form that proc(5) describes.
pub fn run_queue_wait(tid: i32) -> io::Result<Duration> {
    waited(&fs::read_to_string(schedstat(tid))?)
}

fn schedstat(tid: i32) -> String {
    format!("/proc/self/task/{tid}/schedstat")
}

/// The run queue wait of the thread that opened it, in a file that stays open: a look costs no search for a path, so that the
/// thread may look at itself while it serves.
#[derive(Debug)]
pub struct OwnRunQueueWait(File);

impl OwnRunQueueWait {
    /// Of the calling thread. Reads `/proc`: before the thread is guarded.
    ///
    /// # Errors
    /// As [`run_queue_wait`].
    pub fn open() -> io::Result<Self> {
        File::open(schedstat(thread_id())).map(Self)
    }

    /// The wait since the thread started. Takes two system calls, which do not block: the kernel makes the text from
    /// counters in memory.
    ///
    /// # Errors
    /// As [`run_queue_wait`].
    pub fn read(&self) -> io::Result<Duration> {
        // Three numbers of 64 bits at most.
        let mut text = [0; 64];
        let mut file = &self.0;
        file.rewind()?;
        let length = file.read(&mut text)?;
        waited(&String::from_utf8_lossy(&text[..length]))
    }
}

fn waited(schedstat: &str) -> io::Result<Duration> {
    let second = schedstat.split_ascii_whitespace().nth(1);
    let waited_ns = second.and_then(|field| field.parse().ok());
    waited_ns
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat has no second number"))
}

/// Jobs between two looks at the calling thread's run queue wait: a look takes 1 us.
const JOBS_PER_LOOK: u32 = 8;

/// How a thread looks at its own wait from time to time.
#[derive(Default)]
struct Looks {
    /// Since the last look.
    jobs: u32,
    /// At that look.
    wait: Duration,
    /// Stays open: to find the file takes longer than to read it. `Some(None)` where the kernel does not tell.
    own: Option<Option<OwnRunQueueWait>>,
}

thread_local! {
    static LOOKS: RefCell<Looks> = RefCell::default();
}

/// Counts a job that the calling thread has done. At every eighth job, returns how long the thread has waited for a
/// processor per job since the previous one. `None` otherwise, and where the kernel does not tell. Reads `/proc`: not for
/// event loops.
pub(crate) fn run_queue_wait_per_job() -> Option<Duration> {
    LOOKS.with_borrow_mut(Looks::count)
}

impl Looks {
    fn count(&mut self) -> Option<Duration> {
        self.jobs += 1;
        if self.jobs < JOBS_PER_LOOK {
            return None;
        }
        self.jobs = 0;
        let own = || OwnRunQueueWait::open().ok();
        let wait = self.own.get_or_insert_with(own).as_ref()?.read().ok()?;
        let before = mem::replace(&mut self.wait, wait);
        Some(wait.saturating_sub(before) / JOBS_PER_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn work_is_counted_where_it_is_done() {
        // Far more than it costs to start a thread, however busy the machine.
        let work = Duration::from_millis(50);
        let before = thread().cpu;
        while thread().cpu < before + work {}
        let idle = std::thread::spawn(thread).join().unwrap();
        assert!(idle.cpu < work);
    }

    #[test]
    fn a_sleep_is_a_voluntary_switch() {
        let (to_thread, commands) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            let before = thread().voluntary_switches;
            ready.send(thread_id()).unwrap();
            commands.recv().unwrap();
            thread().voluntary_switches > before
        });
        let tid = is_ready.recv().unwrap();
        let state = || fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        while !state().contains(") S ") {
            std::thread::yield_now();
        }
        to_thread.send(()).unwrap();
        assert!(sleeper.join().unwrap());
    }

    #[test]
    fn a_call_that_sleeps_is_known() {
        let ((), slept) = slept_during(|| std::thread::sleep(Duration::from_millis(1)));
        assert!(slept);
        let calls = |_| slept_during(thread_id).1;
        assert!(!(0..100).all(calls), "none of them sleeps");
    }

    #[test]
    fn the_run_queue_is_read() {
        run_queue_wait(thread_id()).unwrap();
        let gone = std::thread::spawn(thread_id).join().unwrap();
        assert!(run_queue_wait(gone).is_err());
    }

    #[test]
    fn one_job_in_eight_looks() {
        let looked = (0..32).filter(|_| run_queue_wait_per_job().is_some());
        assert_eq!(looked.count(), 4);
    }

    #[test]
    fn a_thread_reads_its_own_wait_again_and_again() {
        let own = OwnRunQueueWait::open().unwrap();
        let of_tid = || run_queue_wait(thread_id()).unwrap();
        for _ in 0..3 {
            let before = of_tid();
            let read = own.read().unwrap();
            assert!((before..=of_tid()).contains(&read));
        }
    }
}
