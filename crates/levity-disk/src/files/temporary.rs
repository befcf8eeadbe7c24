//! Names for files that have none yet, where the file system has no files without a name.

use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

/// Attempts to find a free name. Names have 64 random bits: a taken one was taken on purpose.
const NAMES_MAX: usize = 8;

/// The start of the name of a file that is to be linked, where the file system knows no files without a name. Files
/// with such names that nobody has open are left from a crash, and may be removed.
pub const TEMPORARY_PREFIX: &str = ".levity-temporary-";

/// A name that is removed unless the file gets another.
#[derive(Debug)]
pub(super) struct TemporaryName {
    directory: OwnedFd,
    name: CString,
}

impl TemporaryName {
    /// A free name in `directory`, under which `open` has created a file.
    pub(super) fn find(
        directory: OwnedFd,
        open: impl Fn(&OwnedFd, &CStr) -> Result<OwnedFd, Errno>,
    ) -> Result<(TemporaryName, OwnedFd), Errno> {
        let (name, fd) = find(TEMPORARY_PREFIX, |name| open(&directory, name))?;
        Ok((TemporaryName { directory, name }, fd))
    }

    /// Gives the file `name` in `parent` in place of this name, unless that is taken. Blocks.
    pub(super) fn move_to(&self, parent: impl AsFd, name: &CStr) -> Result<(), Errno> {
        let parent = parent.as_fd();
        let renamed = retry_on_intr(|| {
            let flags = RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(&self.directory, &self.name, parent, name, flags)
        });
        if !matches!(renamed, Err(Errno::INVAL | Errno::NOSYS)) {
            return renamed;
        }
        // NFS does not know the flag. A crash in between leaves both names.
        retry_on_intr(|| {
            rustix::fs::linkat(&self.directory, &self.name, parent, name, AtFlags::empty())
        })?;
        self.remove();
        Ok(())
    }

    /// Blocks. An error is of no consequence: the name is as one that a crash has left.
    pub(super) fn remove(&self) {
        let _ =
            retry_on_intr(|| rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()));
    }
}

/// Calls `open` with names that begin with `prefix` until one is free. Returns the name and what `open` returned.
pub(super) fn find<T>(
    prefix: &str,
    open: impl Fn(&CStr) -> Result<T, Errno>,
) -> Result<(CString, T), Errno> {
    let mut taken = Errno::EXIST;
    for _ in 0..NAMES_MAX {
        let name = random(prefix);
        match retry_on_intr(|| open(&name)) {
            Ok(opened) => return Ok((name, opened)),
            Err(errno @ Errno::EXIST) => taken = errno,
            Err(errno) => return Err(errno),
        }
    }
    Err(taken)
}

fn random(prefix: &str) -> CString {
    // Each state has keys of its own, made from the system's random bytes.
    let number = RandomState::new().build_hasher().finish();
    CString::new(format!("{prefix}{number:016x}")).expect("no zero byte in it")
}
