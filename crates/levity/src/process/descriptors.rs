//! How the descriptors of the process are divided.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// The maximum number of files that the cache keeps open; reduced by the limit of the process.
const CACHED_DESCRIPTORS_MAX: u64 = 4096;

/// The maximum number of files that are read past the page cache at a time; reduced by the limit of the process.
const DIRECT_DESCRIPTORS_MAX: u64 = 1024;

/// The maximum number of files that handlers keep open between requests; reduced by the limit of the process.
const KEPT_DESCRIPTORS_MAX: u64 = 1024;

/// The maximum number of files of one device that wait to be closed; reduced by the limit of the process.
const UNCLOSED_DESCRIPTORS_MAX: u64 = 1024;

/// The maximum number of pipes for bodies, of all workers together; reduced by the limit of the process. They have half
/// of the pages that the kernel grants the pipes of a user by default (`/proc/sys/fs/pipe-user-pages-soft`).
const PIPES_MAX: u64 = 128;

/// The maximum number of pipes for bytes of files, of all workers together; reduced by the limit of the process. They have
/// the other half of those pages.
const FILE_PIPES_MAX: u64 = 256;

/// The maximum number of descriptors that `"auto"` uses. The kernel's table has 8 bytes per descriptor, and some
/// containers allow 10^9.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Descriptors reserved for everything that is neither a connection nor a served file.
const OWN_DESCRIPTORS: u64 = 256;

/// The minimum of files that requests may hold: with fewer, a few slow clients would keep out all others.
const HELD_MIN: u64 = 64;

/// The maximum number of large files that are sent without a copy at a time, over all workers; reduced by the limit of
/// the process.
const TRANSFERS_MAX: u64 = 256;

/// Limits derived from the limit of open files.
pub struct Descriptors {
    /// The maximum number of files that the cache keeps open.
    pub cached_max: usize,
    /// The maximum number of second descriptors of files that are read past the page cache.
    pub direct_max: usize,
    /// The maximum number of files that handlers keep open between requests.
    pub kept_max: usize,
    /// The maximum number of files of one device that wait to be closed.
    pub unclosed_max: usize,
    /// The maximum number of pipes for bodies, each with two descriptors.
    pub pipes_max: usize,
    /// The maximum number of pipes for bytes of files, each with two descriptors.
    pub file_pipes_max: usize,
    /// The maximum number of second descriptors of sockets.
    pub transfers_max: usize,
    /// The maximum number of files that requests hold beside those of the cache.
    pub held_max: usize,
    /// The maximum number of connections.
    pub connections_max: usize,
}

/// Grows the process' table of descriptors in advance. When a process with threads grows it, the kernel waits
/// for a grace period (`synchronize_rcu` in `expand_files`), which was seen to block an accept or open on an
/// event loop for 20 ms.
///
/// # Errors
/// When the kernel has no memory for it.
pub fn widen_descriptor_table(descriptors: &Descriptors) -> io::Result<()> {
    let files = descriptors.cached_max + descriptors.direct_max + descriptors.kept_max;
    let files = files + descriptors.held_max + descriptors.unclosed_max + descriptors.transfers_max;
    let pipes = 2 * (descriptors.pipes_max + descriptors.file_pipes_max);
    let needed = descriptors.connections_max + pipes + files;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let last = (needed as u64 + OWN_DESCRIPTORS)
        .min(limit)
        .saturating_sub(1);
    let last = i32::try_from(last).unwrap_or(i32::MAX);
    rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last)?;
    Ok(())
}

impl Descriptors {
    /// Raises the soft limit to the hard one and divides the descriptors: as many files may be held as there are connections.
    pub fn share(configured: Option<usize>) -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        // Some sandboxes refuse this; then the soft limit is used.
        let _ = setrlimit(Resource::Nofile, limit);
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let files = files.min(DESCRIPTORS_MAX);
        let cached = CACHED_DESCRIPTORS_MAX.min(files / 4);
        let direct = DIRECT_DESCRIPTORS_MAX.min(files / 16);
        let kept = KEPT_DESCRIPTORS_MAX.min(files / 32);
        let pipes = PIPES_MAX.min(files / 64);
        let file_pipes = FILE_PIPES_MAX.min(files / 64);
        let transfers = TRANSFERS_MAX.min(files / 64);
        let unclosed = UNCLOSED_DESCRIPTORS_MAX.min(files / 32);
        let files_elsewhere = cached + direct + kept + unclosed + transfers;
        let others = files_elsewhere + 2 * (pipes + file_pipes) + OWN_DESCRIPTORS;
        let rest = files.saturating_sub(others);
        let connections = configured.map_or((rest / 2).max(16), |configured| configured as u64);
        Self {
            cached_max: cached as usize,
            direct_max: direct as usize,
            kept_max: kept as usize,
            unclosed_max: unclosed as usize,
            pipes_max: pipes as usize,
            file_pipes_max: file_pipes as usize,
            transfers_max: transfers as usize,
            // An operator may allow more connections than there are descriptors; nobody expects all of them at once.
            held_max: rest.saturating_sub(connections).max(rest / 4).max(HELD_MIN) as usize,
            connections_max: connections as usize,
        }
    }
}
