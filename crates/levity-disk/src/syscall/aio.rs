//! The kernel's asynchronous reads (`io_submit`), by system call number: the C library does not wrap them.
//!
//! The structures are those of `linux/aio_abi.h`. Completions are announced on an eventfd and fetched without
//! blocking.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::io::Errno;

use super::last_errno;

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;

/// `IOCB_FLAG_RESFD`: `event_fd` is valid.
const ANNOUNCE: u32 = 1;

/// Completions fetched by one call.
const EVENTS_MAX: usize = 32;

/// `struct iocb`: one request.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Request {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

impl Request {
    /// A read into `into` from `offset` that fails if it would block (`RWF_NOWAIT`). Its completion adds 1 to
    /// `announce`, an eventfd. `None` if the offset is too large.
    pub(crate) fn read(
        fd: RawFd,
        offset: u64,
        into: &mut [MaybeUninit<u8>],
        announce: BorrowedFd<'_>,
    ) -> Option<Request> {
        Some(Request {
            rw_flags: libc::RWF_NOWAIT as u32,
            opcode: READ,
            fd: fd as u32,
            buffer: into.as_mut_ptr() as u64,
            len: into.len() as u64,
            offset: i64::try_from(offset).ok()?,
            flags: ANNOUNCE,
            event_fd: announce.as_raw_fd() as u32,
            ..Request::default()
        })
    }
}

/// `struct io_event`: the outcome of a request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

/// A completed read: its number, and the number of bytes or the error.
pub(crate) type Completed = (u64, Result<usize, Errno>);

/// A context for requests (`io_setup`).
pub(crate) struct Context(libc::c_ulong);

impl Context {
    /// A context for `requests_max` requests at once. They count towards the sysctl `fs.aio-max-nr`, a bound for
    /// all processes together.
    ///
    /// # Errors
    /// EAGAIN if that bound is reached, ENOSYS if the kernel was built without AIO, EPERM and the like if a
    /// seccomp filter forbids it.
    pub(crate) fn new(requests_max: u32) -> io::Result<Context> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes one number, to a variable that is zero as it requires.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_setup,
                libc::c_long::from(requests_max),
                &raw mut context,
            )
        };
        match result {
            0 => Ok(Context(context)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Starts a request, with a number that its completion carries. A refusal comes from this call or with the
    /// completion.
    ///
    /// # Errors
    /// EAGAIN if the context is full, EOPNOTSUPP if the file system cannot tell whether a read would block.
    ///
    /// # Safety
    /// The memory of the request must stay valid, and must not be accessed, until its completion has been
    /// fetched. Its descriptors must be open during the call.
    pub(crate) unsafe fn submit(&self, mut request: Request, number: u64) -> Result<(), Errno> {
        request.data = number;
        let mut requests = [&raw mut request];
        // SAFETY: one request, which the kernel copies before it returns; its memory stays valid by the
        // contract of this function.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.0,
                requests.len() as libc::c_long,
                requests.as_mut_ptr(),
            )
        };
        match result {
            1 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// Appends some of the completions to `completed`. Returns whether there may be more. Does not block.
    pub(crate) fn fetch(&self, completed: &mut Vec<Completed>) -> bool {
        let mut events = [Event::default(); EVENTS_MAX];
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call writes at most as many events as there is room for.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                0 as libc::c_long,
                EVENTS_MAX as libc::c_long,
                events.as_mut_ptr(),
                &raw const no_time,
            )
        };
        // EINTR is the only possible error, and then there may be more.
        let Ok(count) = usize::try_from(count) else {
            return true;
        };
        let events = events[..count].iter();
        completed.extend(events.map(|event| (event.data, outcome(event.result))));
        count == EVENTS_MAX
    }
}

fn outcome(result: i64) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let errno = i32::try_from(-result).unwrap_or(libc::EIO);
        Errno::from_raw_os_error(errno)
    })
}

impl Drop for Context {
    /// Waits for the requests in progress.
    fn drop(&mut self) {
        // SAFETY: the number came from `io_setup`, and nobody uses it afterwards.
        let result = unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
        debug_assert_eq!(result, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!((size_of::<Request>(), size_of::<Event>()), (64, 32));
    }

    #[test]
    fn requests_are_bounded() {
        let Ok(context) = Context::new(1) else {
            return;
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let announce = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut memory = [MaybeUninit::uninit(); 4096];
        let mut submit = |number| {
            let request =
                Request::read(file.as_raw_fd(), 0, &mut memory, announce.as_fd()).unwrap();
            // SAFETY: the completions are fetched below, before the memory goes.
            unsafe { context.submit(request, number) }
        };
        let mut submitted = 0;
        // The kernel allows more requests than were asked for.
        let full = loop {
            match submit(submitted) {
                Ok(()) => submitted += 1,
                Err(errno) => break errno,
            }
        };
        assert_eq!(full, Errno::AGAIN);
        let mut completed = Vec::new();
        while (completed.len() as u64) < submitted {
            rustix::io::read(&announce, &mut [0; 8]).unwrap();
            while context.fetch(&mut completed) {}
        }
        let numbers: Vec<_> = completed.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..submitted).collect::<Vec<_>>());
        assert!(completed.iter().all(|(_, result)| match result {
            Ok(count) => *count == 4096,
            // Not every file system can tell whether a read would block.
            Err(errno) => *errno == Errno::AGAIN || *errno == Errno::OPNOTSUPP,
        }));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused() {
        let Ok(context) = Context::new(1) else {
            return;
        };
        let directory = File::open("/").unwrap();
        let announce = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut memory = [MaybeUninit::uninit(); 512];
        let request =
            Request::read(directory.as_raw_fd(), 0, &mut memory, announce.as_fd()).unwrap();
        // SAFETY: it is refused, so that nothing is written later.
        let refused = unsafe { context.submit(request, 0) };
        assert!(refused.is_err());
    }
}
