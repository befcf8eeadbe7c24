//! System calls that rustix does not offer, or that must all go through one function.

pub(crate) mod aio;

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The only way to open a path after start-up: the seccomp guard cannot see whether `RESOLVE_CACHED` is set,
/// because the flags are behind a pointer.
pub(crate) fn openat2(
    directory: impl AsFd,
    path: &CStr,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve)
}

/// The bytes that were written to a TCP socket and that its peer has not acknowledged (`SIOCOUTQ`). Does not block.
/// Any descriptor may be asked; it is not changed.
///
/// # Errors
/// The errors of `ioctl`, such as ENOTTY for another kind of file.
pub fn unacknowledged_bytes(socket: RawFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one `int`, to which the pointer leads, and nothing else. A descriptor that is closed is
    // an error.
    let result = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &mut bytes) };
    match result {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The version of Landlock that the kernel has (landlock_create_ruleset(2)): 1 since Linux 5.13, 2 since 5.19. Does
/// not block.
///
/// # Errors
/// `OPNOTSUPP` if the kernel was started without it, `NOSYS` if it has none, and what a filter of system calls gives.
pub fn landlock_version() -> Result<u32, Errno> {
    const VERSION: libc::c_uint = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call reads no memory, and the pointer has to be null.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION) };
    u32::try_from(version).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
    })
}

/// One `pread` into memory that need not be initialised. Returns the number of bytes written at its start; 0 at
/// the end of the file. Blocks.
pub(crate) fn pread(
    fd: BorrowedFd<'_>,
    into: &mut [MaybeUninit<u8>],
    offset: u64,
) -> Result<usize, Errno> {
    let (bytes, _) = rustix::io::pread(fd, into, offset)?;
    Ok(bytes.len())
}

/// Whether this kernel is of the release `(major, minor)` or later.
pub(crate) fn kernel_is_since(release: (u32, u32)) -> bool {
    static RUNNING: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    let running = || parse_release(&rustix::system::uname().release().to_string_lossy());
    *RUNNING.get_or_init(running) >= Some(release)
}

/// Major and minor number.
fn parse_release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    number().zip(number())
}

/// Whether pages of `len` bytes from `offset` are in the page cache, or were evicted from there a short time ago. Does
/// not wait for the disk, and makes the kernel read nothing. Since Linux 6.5.
///
/// # Errors
/// ENOSYS before. On newer kernels EPERM if the file belongs to another user, who does not let this one write to it.
pub(crate) fn is_known_to_page_cache(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
) -> Result<bool, Errno> {
    // `struct cachestat_range`, and `struct cachestat`: pages that are cached, dirty, under writeback, evicted, and
    // evicted recently.
    let (range, mut pages) = ([offset, len], [0_u64; 5]);
    // By number, because C libraries have no function for it. x86-64, arm64 and riscv64 have the same.
    const CACHESTAT: libc::c_long = 451;
    // SAFETY: both pointers are to as many numbers as the kernel reads and writes.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            fd.as_raw_fd(),
            range.as_ptr(),
            pages.as_mut_ptr(),
            0,
        )
    };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(pages[0] > 0 || pages[4] > 0)
}

/// One `read`. Returns the number of bytes written at the start of `into`.
pub(crate) fn read(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    let (bytes, _) = rustix::io::read(fd, into)?;
    Ok(bytes.len())
}

/// One `preadv2(RWF_NOWAIT)` that appends to `buffer`. Fails with EAGAIN if the first byte is not cached.
pub(crate) fn append_cached(
    fd: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    len: usize,
    offset: u64,
) -> Result<usize, Errno> {
    let offset = libc::c_long::try_from(offset).map_err(|_| Errno::INVAL)?;
    buffer.reserve(len);
    let vector = libc::iovec {
        iov_base: buffer.spare_capacity_mut().as_mut_ptr().cast(),
        iov_len: len,
    };
    // By number, because not every C library has it. The offset is passed in two halves; a 64-bit kernel
    // ignores the upper one.
    // SAFETY: the vector names `len` writable bytes of the buffer's spare capacity.
    let count = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd.as_raw_fd() as libc::c_long,
            &raw const vector,
            1 as libc::c_long,
            offset,
            0 as libc::c_long,
            libc::RWF_NOWAIT as libc::c_long,
        )
    };
    let count = usize::try_from(count).map_err(|_| last_errno())?;
    // SAFETY: the kernel has just written `count` bytes behind the old length, within the capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// Ignores SIGXFSZ, so that a write beyond the limit on the size of files (`RLIMIT_FSIZE`) fails with EFBIG
/// instead of ending the process. An existing handler is kept.
pub(crate) fn ignore_sigxfsz() {
    // SAFETY: all zeroes is a valid `sigaction`: the default action, an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks, and writes the answer to `action`.
    unsafe { libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut action) };
    if action.sa_sigaction == libc::SIG_DFL {
        action.sa_sigaction = libc::SIG_IGN;
        // SAFETY: no handler is installed that could run.
        unsafe { libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut()) };
    }
}

/// The scheduling attributes of the calling thread (sched_setattr(2)).
pub(crate) fn sched_getattr() -> Result<libc::sched_attr, Errno> {
    // SAFETY: all zeroes is a valid `sched_attr`, which is plain numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // By number, because C libraries do not have it.
    // SAFETY: thread 0 is the calling one; the pointer is to as many writable bytes as the size says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0 as libc::c_long,
            &raw mut attributes,
            size_of::<libc::sched_attr>(),
            0 as libc::c_long,
        )
    };
    (result == 0).then_some(attributes).ok_or_else(last_errno)
}

/// Sets the scheduling attributes of the calling thread. `size` must be set.
pub(crate) fn sched_setattr(attributes: &libc::sched_attr) -> Result<(), Errno> {
    // SAFETY: thread 0 is the calling one; the kernel reads the attributes and keeps no pointer to them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            0 as libc::c_long,
            std::ptr::from_ref(attributes),
            0 as libc::c_long,
        )
    };
    (result == 0).then_some(()).ok_or_else(last_errno)
}

/// The errno of the call that has just returned -1.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_numbers() {
        for (text, release) in [
            ("6.18.44-fc-v857", Some((6, 18))),
            ("5.10.0-30-amd64", Some((5, 10))),
            ("10.0", Some((10, 0))),
            ("unknown", None),
        ] {
            assert_eq!(parse_release(text), release, "{text}");
        }
        assert!(kernel_is_since((5, 6)) && !kernel_is_since((999, 0)));
    }
}
