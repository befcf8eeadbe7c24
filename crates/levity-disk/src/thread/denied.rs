//! System calls that the server never makes: a process that somebody has taken over shall not make them either.
//!
//! The list is short and names what gives power over other processes, the kernel, mounts or time. It allows what it does not know,
//! so that a new version of a library breaks nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

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
    seccompiler::apply_filter_all_threads(&program()?).map_err(io::Error::other)
}

/// The first two numbers of the kernel's version; zeros if it has others.
fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next())
}

fn program() -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
    // A number without rules is refused for all arguments.
    let rules: BTreeMap<_, _> = DENIED.iter().map(|number| (*number, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
    filter
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

const DENIED: &[i64] = &[
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
            let program = program().expect("a program");
            seccompiler::apply_filter(&program).expect("seccomp");
            let chrooted = rustix::process::chroot("/");
            let read = std::fs::read("/proc/self/status");
            (chrooted, read.is_ok())
        });
        let (chrooted, has_read) = tried.join().expect("it ends");
        assert_eq!(chrooted, Err(rustix::io::Errno::PERM));
        assert!(has_read);
    }

    #[test]
    fn the_version_of_the_kernel_is_known() {
        assert!(version() > (5, 5));
    }
}
