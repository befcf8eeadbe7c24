//! A tripwire for event loop threads: a system call that may block on the disk aborts the process and prints
//! the name of the call.
//!
//! The filter belongs to a thread; threads that a guarded thread starts inherit it. It sees only the
//! numbers in the arguments, so some calls have to be allowed: `openat2`, whose flags are behind a pointer
//! (all calls in this crate go through one function); `read`, `write` and `splice`, which look the same on
//! a socket (files are written by `pwrite`, which is stopped); and `close`. It does not see page faults.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Installs the guard on the calling thread, permanently. `allow_sendfile` is for engines whose bytes leave
/// by that call: [`Disk::needs_sendfile`](crate::Disk::needs_sendfile).
///
/// Sets `PR_SET_NO_NEW_PRIVS` on the thread, and a handler for SIGSYS in the process. Not for production:
/// every system call gets slower, and the process aborts where a delay would do. A panic that prints a
/// backtrace opens files and trips the guard too: its own message comes first.
///
/// # Errors
/// The errors of `sigaction`, `prctl` and `seccomp`; `Unsupported` on other processors than x86-64 and
/// ARM64.
pub fn install(allow_sendfile: bool) -> io::Result<()> {
    let program = program(allow_sendfile)?;
    catch_sigsys()?;
    settle_allocator();
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// When glibc releases memory of a thread for the first time in a process, it opens
/// `/proc/sys/vm/overcommit_memory` (`check_may_shrink_heap`). This makes it do so now.
fn settle_allocator() {
    const BLOCK_BYTES: usize = 64 * 1024;
    const BLOCKS: usize = 128;
    let blocks: Vec<Vec<u8>> = (0..BLOCKS)
        .map(|_| Vec::with_capacity(BLOCK_BYTES))
        .collect();
    drop(black_box(blocks));
}

fn program(allow_sendfile: bool) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
    let filter = SeccompFilter::new(
        rules(allow_sendfile).map_err(io::Error::other)?,
        SeccompAction::Allow,
        SeccompAction::Trap,
        arch,
    );
    filter
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(allow_sendfile: bool) -> Result<Rules, seccompiler::BackendError> {
    let stopped = STOPPED.iter().chain(STOPPED_OLD);
    let stopped = stopped.filter(|(number, _)| !(allow_sendfile && *number == libc::SYS_sendfile));
    // A number without rules is stopped for all arguments.
    let mut rules: Rules = stopped.map(|(number, _)| (*number, Vec::new())).collect();
    rules.insert(libc::SYS_preadv2, vec![without_nowait()?]);
    let may_read = [libc::POSIX_FADV_WILLNEED, libc::POSIX_FADV_DONTNEED];
    let advices: Result<Vec<_>, _> = may_read.into_iter().map(advice).collect();
    rules.insert(libc::SYS_fadvise64, advices?);
    Ok(rules)
}

/// `preadv2(fd, vector, count, low, high, flags)` without `RWF_NOWAIT`.
fn without_nowait() -> Result<SeccompRule, seccompiler::BackendError> {
    let mask = SeccompCmpOp::MaskedEq(libc::RWF_NOWAIT as u64);
    let condition = SeccompCondition::new(5, SeccompCmpArgLen::Dword, mask, 0)?;
    SeccompRule::new(vec![condition])
}

/// `fadvise64(fd, offset, len, advice)`.
fn advice(advice: i32) -> Result<SeccompRule, seccompiler::BackendError> {
    let equal = SeccompCmpOp::Eq;
    let condition = SeccompCondition::new(3, SeccompCmpArgLen::Dword, equal, advice as u64)?;
    SeccompRule::new(vec![condition])
}

/// Calls that are stopped for some arguments only, and their names for the message.
const STOPPED_SOMETIMES: &[(i64, &str)] = &[
    (libc::SYS_preadv2, "preadv2 without RWF_NOWAIT"),
    (libc::SYS_fadvise64, "fadvise64"),
];

macro_rules! calls {
    ($($number:ident),* $(,)?) => {
        &[$((libc::$number, strip(stringify!($number)))),*]
    };
}

/// Calls that may block on a disk for any arguments.
const STOPPED: &[(i64, &str)] = calls![
    SYS_renameat,
    SYS_openat,
    SYS_open_by_handle_at,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_pread64,
    SYS_preadv,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_sync,
    SYS_syncfs,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync_file_range,
    SYS_truncate,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mknodat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_readahead,
    SYS_chdir,
    SYS_execve,
    SYS_execveat,
];

/// Further ones, in place of which other processors have only newer ones.
#[cfg(target_arch = "x86_64")]
const STOPPED_OLD: &[(i64, &str)] = calls![
    SYS_open,
    SYS_creat,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_getdents,
    SYS_unlink,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_mknod,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const STOPPED_OLD: &[(i64, &str)] = &[];

/// `open` for `SYS_open`.
const fn strip(name: &'static str) -> &'static str {
    name.split_at("SYS_".len()).1
}

fn catch_sigsys() -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`: an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = report as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and makes only calls that are
    // safe in a signal handler.
    match unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The part of `siginfo_t` that a SIGSYS of seccomp fills in (`asm-generic/siginfo.h`, 64 bits).
#[repr(C)]
struct SigsysInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    address: *const libc::c_void,
    syscall: i32,
    arch: u32,
}

extern "C" fn report(_: i32, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a `siginfo_t`, which is larger than the part that is read here.
    let number = unsafe { (*info.cast::<SigsysInfo>()).syscall };
    let mut digits = [0; 10];
    print(b"levity: a system call that may wait for the disk, on a thread that must not: ");
    match name_of(number.into()) {
        Some(name) => print(name.as_bytes()),
        None => print(decimal(number.unsigned_abs(), &mut digits)),
    }
    print(b"\n");
    // SAFETY: safe in a signal handler.
    unsafe { libc::abort() };
}

fn name_of(number: i64) -> Option<&'static str> {
    let always = STOPPED.iter().chain(STOPPED_OLD);
    let mut calls = STOPPED_SOMETIMES.iter().chain(always);
    calls
        .find(|(known, _)| *known == number)
        .map(|(_, name)| *name)
}

/// `format!` allocates, which is not allowed in a signal handler.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

fn print(text: &[u8]) {
    // SAFETY: a slice is readable for its length, and `write` is safe in a signal handler.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(name_of(libc::SYS_openat), Some("openat"));
        assert_eq!(
            name_of(libc::SYS_preadv2),
            Some("preadv2 without RWF_NOWAIT")
        );
        assert_eq!(name_of(libc::SYS_openat2), None);
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        let mut digits = [0; 10];
        assert_eq!(decimal(0, &mut digits), b"0");
        assert_eq!(decimal(u32::MAX, &mut digits), b"4294967295");
    }

    #[test]
    fn only_sendfile_can_be_allowed() {
        let strict = rules(false).unwrap();
        let mut lenient = rules(true).unwrap();
        lenient.insert(libc::SYS_sendfile, Vec::new());
        assert_eq!(strict, lenient);
    }
}
