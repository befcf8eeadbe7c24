//! What is known of files, and the way to them: caches, roots, and trips to the disk. How a path
//! leads to an entry is in [`resolve`](crate::resolve).
//!
//! # Entries
//!
//! An [`Entry`](entry::Entry) is one version of a file. Together with its precompressed variants,
//! which are opened in the same step, it stands in the worker's own cache (8 MiB, no lock) and in
//! the shared one (`disk.cache_bytes`; both in [`cache`]). A variant older than its file is
//! ignored. Together the caches keep about 4096 files open, or a quarter of what the process may
//! open, if that is less. Entries that nobody requests for 30 s are dropped.
//!
//! An entry is trusted for `disk.entry_ttl`. Whatever that is, a check also serves all requests
//! that the worker had read before it, until something arrives (`arrivals.rs` of `levity-net`): at
//! 0 s a request over HTTP/1 lets the other connections read first. A file that is kept open is
//! asked with `fstat` on each hit, where `fstat` cannot block. With `disk.watch = "inotify"` an
//! entry is valid until its directory or one above changes, for at most 20 s, or `disk.entry_ttl`
//! if that is longer.
//!
//! A body up to 64 KiB is kept in the cache if `fstat` before and after the read agree and the file
//! is settled: last written more than 2 s ago, with a change time older than two kernel ticks
//! (20 ms). Otherwise its ETag is weak and no byte is kept. A body up to 1 MiB is kept from the
//! fourth request within `disk.entry_ttl` on, if the page cache has it; a worker reads at most
//! 64 MiB in 5 s for that, so that more popular files than fit cost little.
//!
//! A name found missing in a trip is cached for `disk.entry_ttl`, in 1 MiB of its own; so is the
//! lack of an index. Absence that the loop found is not: the kernel caches it. A connection whose
//! trips find nothing more often than `limits.absent_trips` waits before the next one
//! (`missing_lookups.rs`).
//!
//! # Roots
//!
//! The path of a root may lead elsewhere later: a link is switched, a folder replaced ([`root`]).
//! While a root is in use, the disk checks it every `disk.entry_ttl` (at least 0.1 s; 1 s at most
//! under a watch). Requests read two atomics and wait for a check only if the root was idle for
//! 30 s. A new root gets a new generation, which is part of every cache key, so entries of the old
//! root are unreachable. Two failed checks at least 0.1 s apart make the files absent.
//!
//! # Trips
//!
//! The [disk client](disk_client) submits one job and waits for one completion. `Disk::submit`
//! never blocks, except under the `sendfile` engine. A completion comes back through the job's
//! `Reply`: a queue of the loop (`loop_core/completions.rs`), from which a task hands it to the
//! request's oneshot. A request that is dropped drops the receiver. The job owns its file and its
//! memory, so nothing is freed under the kernel; a job that has not started is cancelled.

pub mod cache;
pub mod codings;
pub mod disk_client;
pub mod entry;
pub mod inline_opens;
pub mod missing_lookups;
pub mod proof;
pub mod root;
pub mod scripts;
