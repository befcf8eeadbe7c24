//! System calls that the server never makes: a process that somebody has taken over shall not make them either.
//!
//! The list is short and names what gives power over other processes, the kernel, mounts or time, and what starts programs, also
//! those that no folder has (`memfd_create`). It allows what it does not know, so that a new version of a library breaks nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// The first version of Linux on which a filter costs nothing: it remembers which calls are allowed for all arguments (5.11), and does
/// not turn mitigations of the processor on for a process because it has a filter (5.16).
const FREE_SINCE: (u32, u32) = (5, 16);

/// Has the kernel refuse these calls with EPERM, on all threads of the process and those that they start, permanently (seccomp). Sets
/// `PR_SET_NO_NEW_PRIVS`. Does nothing before Linux 5.16.
///
/// # Errors
/// The errors of `prctl` and `seccomp`; `Unsupported` on other processors than x86-64 and ARM64.
pub fn deny() -> io::Result<()> {
    if version() < FREE_SINCE {
        return Ok(());
    }
    for program in programs()? {
        seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The first two numbers of the kernel's version; zeros if it has others.
fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next())
}

/// The filters. A filter gives all calls that it refuses the same error.
fn programs() -> io::Result<[BpfProgram; 2]> {
    let mut denied: Rules = DENIED.iter().map(|number| (*number, Vec::new())).collect();
    let namespaces = NAMESPACES.iter().map(|flag| has_flag(*flag));
    let namespaces: Result<_, _> = namespaces.collect();
    denied.insert(libc::SYS_clone, namespaces.map_err(io::Error::other)?);
    // Its flags are in memory, which a filter cannot read. The C library then calls `clone`.
    let absent = Rules::from([(libc::SYS_clone3, Vec::new())]);
    Ok([
        program(denied, libc::EPERM)?,
        program(absent, libc::ENOSYS)?,
    ])
}

/// The rules by number of the call: it is refused if one of them matches, or if it has none.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn program(rules: Rules, errno: i32) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
    filter
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

/// Matches a call whose first argument has the flag.
fn has_flag(flag: i32) -> Result<SeccompRule, BackendError> {
    let flag = u64::from(flag.unsigned_abs());
    let is_set = SeccompCmpOp::MaskedEq(flag);
    SeccompRule::new(vec![SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        is_set,
        flag,
    )?])
}

/// The flags of `clone` that make namespaces.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

const DENIED: &[i64] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // The kernel.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    // The machine's time and name.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
];

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn denied_calls_fail_and_others_go_on() {
        // Of this thread only: the other tests go on without the filter.
        let tried = thread::spawn(|| {
            for program in programs().expect("programs") {
                seccompiler::apply_filter(&program).expect("seccomp");
            }
            let chrooted = rustix::process::chroot("/");
            let started = std::process::Command::new("/bin/true").status();
            let read = std::fs::read("/proc/self/status");
            let thread = thread::spawn(|| ()).join();
            assert_eq!(clone_with(libc::CLONE_NEWUSER), Some(libc::EPERM));
            assert_eq!(clone_with(libc::CLONE_NEWNET), Some(libc::EPERM));
            assert_eq!(clone3(), Some(libc::ENOSYS));
            (chrooted, started, read.is_ok(), thread.is_ok())
        });
        assert_eq!(clone3(), Some(libc::EINVAL), "it has no size");
        let (chrooted, started, has_read, has_thread) = tried.join().expect("it ends");
        assert_eq!(chrooted, Err(rustix::io::Errno::PERM));
        let started = started.expect_err("no program starts");
        assert_eq!(started.kind(), io::ErrorKind::PermissionDenied);
        assert!(has_read && has_thread);
    }

    /// The error of a `clone` with this flag; `None` if there is another process, which ends at once.
    fn clone_with(flag: i32) -> Option<i32> {
        // SAFETY: a child has a copy of this memory and its stack, as after `fork`, and does nothing but end.
        let made = unsafe { libc::syscall(libc::SYS_clone, flag | libc::SIGCHLD, 0, 0, 0, 0) };
        if made == 0 {
            // SAFETY: it ends the child without running what the parent has registered.
            unsafe { libc::_exit(0) };
        }
        (made < 0).then(errno)
    }

    /// The error of a `clone3` without arguments, which makes no process.
    fn clone3() -> Option<i32> {
        // SAFETY: the kernel reads no memory of a size of 0.
        let made = unsafe { libc::syscall(libc::SYS_clone3, 0, 0) };
        (made < 0).then(errno)
    }

    fn errno() -> i32 {
        let error = io::Error::last_os_error();
        error.raw_os_error().expect("an error of the kernel")
    }

    #[test]
    fn the_version_of_the_kernel_is_known() {
        assert!(version() > (5, 5));
    }
}
