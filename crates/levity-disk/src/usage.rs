//! What a thread costs, and how long it had to wait for a processor.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// What one thread has used since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadUsage {
    /// Time on a processor, in user space and in the kernel.
    pub cpu: Duration,
    /// How often it slept: waiting for a lock, a poll, the disk.
    pub voluntary_switches: u64,
    /// How often it was made to wait for another thread or process.
    pub involuntary_switches: u64,
}

/// What the calling thread has used: two system calls, about 400 ns, which never wait.
///
/// The time is the clock's, because `getrusage` brings its own up to date only at a tick or a switch:
/// a thread that has spun for 3.4 ms was seen there with 12 us.
pub fn thread() -> ThreadUsage {
    let usage = rusage();
    ThreadUsage {
        cpu: cpu(),
        voluntary_switches: usage.ru_nvcsw.unsigned_abs(),
        involuntary_switches: usage.ru_nivcsw.unsigned_abs(),
    }
}

/// Makes `call`, and tells whether the calling thread slept in it: for a page of a file, a lock, or
/// memory that the kernel had to find first. Not for a processor. Costs two system calls, which never
/// wait.
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

/// The kernel's number for the calling thread.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// How long thread `tid` of this process was ready to run and had no processor, since it started.
/// Reads `/proc` and blocks: for a watchdog thread, not for the thread that it watches.
///
/// # Errors
/// `NotFound` when the thread is gone or the kernel lacks `CONFIG_SCHED_INFO`; `InvalidData` when
/// the file has another form than `man 5 proc` gives it.
pub fn run_queue_wait(tid: i32) -> io::Result<Duration> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"))?;
    let second = text.split_ascii_whitespace().nth(1);
    let waited_ns = second.and_then(|field| field.parse().ok());
    waited_ns
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat has no second number"))
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
}
