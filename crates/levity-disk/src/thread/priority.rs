//! Thread priorities: event loops get a processor before disk threads and threads that compute.
//!
//! A loop that never waits for a disk may still wait for a processor. There are many disk threads, they
//! copy, and with the kernel's default time slice (1 to 3 ms) each runs for a whole slice before the loop
//! gets its turn. So a loop requests the shortest slice, which lets it preempt threads with longer slices
//! as soon as it wakes up, and disk threads lower their weight.
//!
//! Neither call needs a privilege, and neither starves a thread: a slice moves a turn forward without
//! adding to a thread's share, and a disk thread keeps a fifteenth of the weight of a loop.
//!
//! A thread inherits both from its parent, so each thread calls one of these functions itself.

use std::mem;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{getpid, getpriority_process, setpriority_process};

use crate::syscall;

/// The shortest slice that the kernel grants (`sched_setattr` clamps to 0.1 to 100 ms).
const LOOP_SLICE: Duration = Duration::from_micros(100);

/// Selects the kernel's default slice.
const DEFAULT_SLICE: Duration = Duration::ZERO;

/// Added to the nice value with which the process was started: a weight of 70 instead of 1024
/// (`sched_prio_to_weight` in the kernel). It is a compromise. Heavier threads together outweigh a loop as soon as
/// a few are ready to run. Lighter ones wait for long beside a program that computes: 100 KB from a fast disk then take
/// 0.4 ms at nice 12, and 16 ms at nice 19.
const DISK_NICE: i32 = 12;

/// Gives the calling thread, an event loop, a short time slice, so that it gets a processor soon after it
/// wakes up. Call it at the start of the thread. Does not block.
///
/// Needs Linux 6.12. On an older kernel, or where a seccomp filter refuses the call, it has no effect, and
/// only the lower priority of disk threads helps. A thread whose scheduling policy is not `SCHED_OTHER` is
/// left unchanged.
pub fn set_for_loop() {
    let _ = set_slice(LOOP_SLICE);
}

/// Lowers the priority of the calling thread, one that serves the disk or computes for a response, below that of event
/// loops. Call it at the start of the thread. Does not block. Has no effect where the calls are refused.
pub fn set_for_disk() {
    let _ = set_disk_nice();
    let _ = set_slice(DEFAULT_SLICE);
}

/// Lets the calling thread run only while a processor is idle (`SCHED_IDLE`, Linux 2.6.23): work that nobody waits for
/// delays nobody. Call it at the start of the thread. Does not block. Where the call is refused, or the policy of the
/// thread is not `SCHED_OTHER`, it has the priority of a disk thread.
pub fn set_for_idle() {
    set_for_disk();
    let _ = set_idle_policy();
}

fn set_idle_policy() -> Result<(), Errno> {
    let mut attributes = syscall::sched_getattr()?;
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.size = mem::size_of_val(&attributes) as u32;
        attributes.sched_policy = libc::SCHED_IDLE as u32;
        syscall::sched_setattr(&attributes)?;
    }
    Ok(())
}

/// Relative to the main thread, whose ID is that of the process: a thread that was started by a disk thread
/// has the nice value of one already.
fn set_disk_nice() -> Result<(), Errno> {
    let of_process = getpriority_process(Some(getpid()))?;
    setpriority_process(None, of_process + DISK_NICE)
}

/// Sets only the time slice of the calling thread. Zero selects the kernel's default. A kernel before 6.12
/// ignores it.
fn set_slice(slice: Duration) -> Result<(), Errno> {
    let mut attributes = syscall::sched_getattr()?;
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.size = mem::size_of_val(&attributes) as u32;
        attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
        syscall::sched_setattr(&attributes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Instant;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use crate::thread::usage;

    /// Nice value and slice of the calling thread. The slice is zero on a kernel before 6.12.
    fn scheduling() -> (i32, Duration) {
        let attributes = syscall::sched_getattr().unwrap();
        let slice = Duration::from_nanos(attributes.sched_runtime);
        (attributes.sched_nice, slice)
    }

    #[test]
    fn a_loop_has_a_short_slice_and_keeps_its_nice_value() {
        let (before, after) = thread::spawn(|| {
            let before = scheduling();
            set_for_loop();
            (before, scheduling())
        })
        .join()
        .unwrap();
        assert_eq!(after.0, before.0);
        let expected = match before.1.is_zero() {
            true => Duration::ZERO,
            false => LOOP_SLICE,
        };
        assert_eq!(after.1, expected);
    }

    /// Also one that a loop has started, as happens under `sendfile`.
    #[test]
    fn a_disk_thread_inherits_nothing_from_a_loop() {
        let (own, disk) = thread::spawn(|| {
            let own = scheduling();
            set_for_loop();
            let disk = thread::spawn(|| {
                set_for_disk();
                scheduling()
            });
            (own, disk.join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(disk, ((own.0 + DISK_NICE).min(19), own.1));
    }

    /// The pool grows when a job ends, too, on the thread that has done it.
    #[test]
    fn a_disk_thread_has_the_rank_of_the_one_that_starts_it() {
        let (first, second) = thread::spawn(|| {
            set_for_disk();
            let second = thread::spawn(|| {
                set_for_disk();
                scheduling()
            });
            (scheduling(), second.join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(second, first);
    }

    #[test]
    fn idle_work_has_the_idle_policy() {
        let policy = thread::spawn(|| {
            set_for_idle();
            syscall::sched_getattr().unwrap().sched_policy
        });
        assert_eq!(policy.join().unwrap(), libc::SCHED_IDLE as u32);
    }

    /// With one processor for both, and a loop that takes all it can get.
    #[test]
    fn a_busy_loop_does_not_starve_a_disk_thread() {
        const WORK: Duration = Duration::from_millis(5);
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&n| allowed.is_set(n)).unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                set_for_loop();
                let start = Instant::now();
                while !done.load(Ordering::Relaxed) {
                    assert!(start.elapsed() < Duration::from_secs(60), "it starves");
                }
            });
            scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                set_for_disk();
                while usage::thread().cpu < WORK {}
                done.store(true, Ordering::Relaxed);
            });
        });
    }
}
