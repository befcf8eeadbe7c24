//! Disk engines: the contract that each keeps, the table of those that exist, and the engines themselves.
//!
//! Read `contract.rs` first; `tests/contract` checks it for every engine. [`ENGINES`] is the table. An engine
//! is one file in this folder, named as in `disk.engine`. The other files are shared by engines: the
//! operations as blocking calls (`blocking`), threads that make them (`pool`), and for engines that are
//! notified of completions the queue to their thread (`command_queue`) and a read in progress
//! (`async_read`). `running` holds the engines that a disk has started.

mod async_read;
mod blocking;
mod command_queue;
mod contract;
#[cfg(any(test, feature = "test-support"))]
pub mod crash;
#[cfg(feature = "io-uring")]
mod io_uring;
#[cfg(feature = "engines-all")]
mod linux_aio;
mod pool;
#[cfg(feature = "engines-all")]
mod posix_aio;
#[cfg(feature = "engines-all")]
mod readahead;
mod running;
#[cfg(feature = "engines-all")]
mod sendfile;
#[cfg(any(test, feature = "test-support"))]
pub mod simulated;
mod table;
mod threads;
mod ticket;

pub use contract::{Description, StartError, Unavailable};
pub(crate) use pool::{Arrivals, Threads};
pub(crate) use running::Engines;
pub(crate) use table::Choice;
pub use table::{AUTO, ENGINES, NAMES, find};
pub(crate) use ticket::{InFlightJob, WorkItem};

pub use crate::job::COPIED_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::disk::Disk;
    use crate::files::{Root, Symlinks};
    use crate::job::{Class, Completion, Direct, Done, Job, Reply, op};
    use std::sync::{Arc, LazyLock, mpsc};

    static SMALL_RING: LazyLock<Description> = LazyLock::new(|| Description {
        start: |context| io_uring::start_with(context, 2),
        ..*find("io_uring").unwrap()
    });

    static SMALL_AIO: LazyLock<Description> = LazyLock::new(|| Description {
        start: |context| linux_aio::start_with(context, 2),
        ..*find("linux-aio").unwrap()
    });

    struct Numbered(usize, mpsc::Sender<(usize, Completion)>);

    impl Reply for Numbered {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, completion: Completion) {
            self.1.send((self.0, completion)).unwrap();
        }
    }

    fn byte(at: usize) -> u8 {
        (at ^ (at >> 8) ^ (at >> 16)) as u8
    }

    /// More reads than the engine can have at once are all answered, each with its own bytes.
    fn more_reads_than_fit(description: &'static Description, direct: Direct) {
        const JOBS: usize = 200;
        const LEN: usize = 70_001;
        if (description.probe)().is_err() {
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..4 << 20).map(byte).collect();
        std::fs::write(tree.path().join("file"), content).unwrap();
        let settings = Settings {
            depth: Some(32),
            ..Settings::default()
        };
        let choice = Choice {
            engine: description,
            for_direct: None,
            reason: String::new(),
            options: None,
        };
        let disk = Disk::start_engine(&settings, choice).unwrap();
        let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
        let file = root.open_cached(c"file").unwrap();
        let (send, received) = mpsc::channel();
        let offset = |number| number * 19_997;
        for number in 0..JOBS {
            let op = op::Read {
                file: Arc::clone(&file),
                offset: offset(number) as u64,
                len: LEN,
            };
            let reply = Box::new(Numbered(number, send.clone()));
            let mut job = Job::new(op, Class::Later, reply);
            job.options.direct = direct;
            disk.submit(job);
        }
        drop(send);
        let mut answered = 0;
        for (number, completion) in received {
            let Ok(Done::Read((ready, _))) = completion.result else {
                panic!("{completion:?}");
            };
            let bytes = ready.into_bytes(disk.budget()).unwrap();
            assert_eq!(bytes.len(), LEN);
            let mut bytes_at = (offset(number)..).zip(&*bytes);
            assert!(bytes_at.all(|(at, found)| *found == byte(at)), "{number}");
            answered += 1;
        }
        assert_eq!(answered, JOBS);
    }

    #[test]
    fn more_reads_than_fit_on_a_ring() {
        for direct in [Direct::Always, Direct::Never] {
            more_reads_than_fit(&SMALL_RING, direct);
        }
    }

    #[test]
    fn more_reads_than_fit_in_linux_aio() {
        more_reads_than_fit(&SMALL_AIO, Direct::Always);
    }
}
