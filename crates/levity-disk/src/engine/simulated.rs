//! `simulated`: for tests. Blocking calls in a pool, with delays and faults.
//!
//! Completions are late and out of order, reads are handed over as bytes, as a pipe and as shared memory in
//! turn, and faults are injected. The faults are given after a colon in the name of the engine or, without
//! one, in `LEVITY_SIMULATED`, as a list separated by commas:
//!
//! - `seed=N`: another order and other delays; 0 by default
//! - `delay_ms=N`: each completion is delayed by up to N ms; 1 by default
//! - `seek_ms=N`: the disk has one head, which takes N ms for each operation, one after the other; 0 by default
//! - `eio_at=BYTES`: the byte at this offset of every file can be neither read nor written (EIO)
//! - `enospc_at=BYTES`: a write at or beyond this offset fails with ENOSPC
//! - `freeze=NAME`: operations on paths that contain NAME block until [`thaw`]; may be repeated

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use super::blocking;
use super::contract::{Engine, StartContext, StartError, Unavailable};
use super::pool::{Pool, Queue};
use super::ticket::{Ticket, Work};
use crate::files::OpenFile;
use crate::job::{Done, Op, Ready};
use crate::memory::{Buffer, Lease};
use crate::thread::lock;

/// Used if the name has no options.
const VARIABLE: &str = "LEVITY_SIMULATED";

pub(super) fn probe() -> Result<(), Unavailable> {
    Ok(())
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    let text = match context.options {
        Some(text) => text.to_owned(),
        None => env::var(VARIABLE).unwrap_or_default(),
    };
    let faults = Faults::parse(&text).map_err(StartError::Setting)?;
    let simulation = Arc::new(Simulation {
        faults,
        interrupted: AtomicBool::new(false),
        jobs: AtomicU64::new(0),
        head: Mutex::new(()),
    });
    let pool = Arc::clone(context.pool);
    Ok(Box::new(Simulated { pool, simulation }))
}

/// The delays and faults.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Faults {
    seed: u64,
    delay_ms: u64,
    seek_ms: u64,
    eio_at: Option<u64>,
    enospc_at: Option<u64>,
    freeze: Vec<String>,
}

impl Faults {
    fn parse(text: &str) -> Result<Faults, String> {
        let mut faults = Faults {
            seed: 0,
            delay_ms: 1,
            seek_ms: 0,
            eio_at: None,
            enospc_at: None,
            freeze: Vec::new(),
        };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            faults.set(part)?;
        }
        Ok(faults)
    }

    fn set(&mut self, part: &str) -> Result<(), String> {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{VARIABLE}: \"{part}\" is not of the form key=value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{VARIABLE}: {key} must be a whole number, not \"{value}\""))
        };
        match key {
            "seed" => self.seed = number()?,
            "delay_ms" => self.delay_ms = number()?,
            "seek_ms" => self.seek_ms = number()?,
            "eio_at" => self.eio_at = Some(number()?),
            "enospc_at" => self.enospc_at = Some(number()?),
            "freeze" if value.is_empty() => {
                return Err(format!("{VARIABLE}: freeze needs a part of a path"));
            }
            "freeze" => self.freeze.push(value.to_owned()),
            _ => {
                return Err(format!(
                    "{VARIABLE}: no key is called \"{key}\"; there are seed, delay_ms, seek_ms, eio_at, enospc_at, freeze"
                ));
            }
        }
        Ok(())
    }
}

/// Ends `freeze=name` in all disks of this process, now and later.
pub fn thaw(name: &str) {
    lock(&THAWED)
        .get_or_insert_default()
        .insert(name.to_owned());
    MELTED.notify_all();
}

static THAWED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
static MELTED: Condvar = Condvar::new();

struct Simulated {
    pool: Arc<Pool>,
    simulation: Arc<Simulation>,
}

impl Engine for Simulated {
    fn submit(&self, work: Work) {
        let simulation = Arc::clone(&self.simulation);
        let queue = Queue::of(work.op());
        self.pool.submit(queue, move || simulation.run(work));
    }

    fn interrupt(&self) {
        let thawed = lock(&THAWED);
        self.simulation.interrupted.store(true, Ordering::Relaxed);
        drop(thawed);
        MELTED.notify_all();
    }
}

struct Simulation {
    faults: Faults,
    interrupted: AtomicBool,
    jobs: AtomicU64,
    /// Held by the operation that uses the only head of the disk.
    head: Mutex<()>,
}

impl Simulation {
    fn run(&self, work: Work) {
        let Some((op, mut ticket)) = work.begin() else {
            return;
        };
        let job = self.jobs.fetch_add(1, Ordering::Relaxed);
        let head = (self.faults.seek_ms > 0).then(|| lock(&self.head));
        let result = self.perform(op, &mut ticket, job);
        thread::sleep(Duration::from_millis(self.faults.seek_ms));
        drop(head);
        thread::sleep(self.delay(job));
        ticket.finish(result);
    }

    fn perform(&self, op: Op, ticket: &mut Ticket, job: u64) -> io::Result<Done> {
        self.wait_while_frozen(&path(&op))?;
        let offset = match &op {
            Op::Open { first, .. } => first.map_or(0, |first| first.offset),
            Op::Read { offset, .. } => *offset,
            Op::Write { offset, bytes, .. } => {
                self.refuse_write(*offset, bytes.len())?;
                *offset
            }
            Op::List { .. } | Op::Create { .. } | Op::Unlink { .. } | Op::CheckRoot { .. } => 0,
        };
        Ok(match blocking::perform(op, ticket)? {
            Done::Read(ready, now) => Done::Read(self.tamper(ready, offset, job)?, now),
            Done::Opened {
                file,
                variants,
                first: Some(ready),
                stable,
                not_removed,
            } => Done::Opened {
                first: Some(self.tamper(ready, offset, job)?),
                file,
                variants,
                stable,
                not_removed,
            },
            done => done,
        })
    }

    /// Fails if the range contains the bad byte, or exceeds the room.
    fn refuse_write(&self, offset: u64, len: usize) -> Result<(), Errno> {
        let end = offset.saturating_add(len as u64);
        if self.faults.enospc_at.is_some_and(|at| at < end) {
            return Err(Errno::NOSPC);
        }
        self.refuse_bad_byte(offset, len)
    }

    fn refuse_bad_byte(&self, offset: u64, len: usize) -> Result<(), Errno> {
        let end = offset.saturating_add(len as u64);
        let bad = self.faults.eio_at;
        match bad.is_some_and(|at| (offset..end).contains(&at)) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Fails if the range contains the bad byte; else converts the bytes to another form.
    fn tamper(&self, ready: Ready, offset: u64, job: u64) -> io::Result<Ready> {
        self.refuse_bad_byte(offset, ready.len())?;
        match ready {
            Ready::Bytes(buffer) => disguise(buffer, self.faults.seed.wrapping_add(job)),
            ready => Ok(ready),
        }
    }

    fn delay(&self, job: u64) -> Duration {
        let us_max = self.faults.delay_ms.saturating_mul(1000);
        Duration::from_micros(mix(self.faults.seed ^ mix(job)) % us_max.saturating_add(1))
    }

    fn wait_while_frozen(&self, path: &[u8]) -> io::Result<()> {
        let holds = |name: &str| path.windows(name.len()).any(|part| part == name.as_bytes());
        let Some(name) = self.faults.freeze.iter().find(|name| holds(name)) else {
            return Ok(());
        };
        let frozen = |thawed: &mut Option<HashSet<String>>| {
            !thawed.as_ref().is_some_and(|thawed| thawed.contains(name))
                && !self.interrupted.load(Ordering::Relaxed)
        };
        let thawed = MELTED.wait_while(lock(&THAWED), frozen);
        drop(thawed.unwrap_or_else(PoisonError::into_inner));
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Errno::CANCELED.into()),
            false => Ok(()),
        }
    }
}

/// The path of the file of an operation.
fn path(op: &Op) -> Vec<u8> {
    match op {
        Op::Open { path, .. } | Op::Unlink { path, .. } => path.to_bytes().to_vec(),
        // The path of a file without a name contains that of its directory.
        Op::Read { file, .. } | Op::Write { file, .. } => path_of(file),
        Op::Create { spool } => spool.path().as_os_str().as_bytes().to_vec(),
        Op::List { directory, .. } => path_of(directory),
        Op::CheckRoot { root } => root.named().as_os_str().as_bytes().to_vec(),
    }
}

fn path_of(file: &OpenFile) -> Vec<u8> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let path = fs::read_link(link).unwrap_or_default();
    path.as_os_str().as_bytes().to_vec()
}

/// The bytes as they are, in a pipe, or in shared memory.
fn disguise(buffer: Buffer, turn: u64) -> io::Result<Ready> {
    match turn % 3 {
        1 => Ok(match in_pipe(&buffer) {
            Some(pipe) => Ready::Pipe {
                len: buffer.len(),
                pipe,
            },
            None => Ready::Bytes(buffer),
        }),
        2 => in_shared_memory(&buffer),
        _ => Ok(Ready::Bytes(buffer)),
    }
}

/// `None` if no pipe may be that large (`/proc/sys/fs/pipe-max-size`).
fn in_pipe(bytes: &[u8]) -> Option<OwnedFd> {
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (read, write) = rustix::pipe::pipe_with(flags).ok()?;
    rustix::pipe::fcntl_setpipe_size(&write, bytes.len().max(1)).ok()?;
    let written = rustix::io::write(&write, bytes).ok()?;
    (written == bytes.len()).then_some(read)
}

/// At an offset that is neither 0 nor a multiple of a page, to reveal errors of readers.
fn in_shared_memory(bytes: &[u8]) -> io::Result<Ready> {
    const OFFSET: u64 = 70_001;
    let memory = rustix::fs::memfd_create(c"levity-simulated", MemfdFlags::CLOEXEC)?;
    let memory = fs::File::from(memory);
    memory.write_all_at(bytes, OFFSET)?;
    Ok(Ready::Shared {
        memory: Arc::new(Lease::of_file(memory.into())),
        offset: OFFSET,
        len: bytes.len(),
    })
}

/// `splitmix64`: a pseudorandom number from any number.
fn mix(number: u64) -> u64 {
    let a = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    c ^ (c >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;

    #[test]
    fn faults_are_parsed() {
        let faults = Faults::parse(
            "seed=7,eio_at=65536,enospc_at=99,delay_ms=2,seek_ms=3,freeze=a,freeze=b",
        )
        .unwrap();
        assert_eq!(
            faults,
            Faults {
                seed: 7,
                delay_ms: 2,
                seek_ms: 3,
                eio_at: Some(65536),
                enospc_at: Some(99),
                freeze: vec!["a".to_owned(), "b".to_owned()],
            }
        );
        assert_eq!(Faults::parse("").unwrap(), Faults::parse("seed=0").unwrap());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("seed", "\"seed\" is not of the form"),
            ("seed=x", "not \"x\""),
            ("speed=1", "\"speed\""),
            ("freeze=", "part of a path"),
        ] {
            let error = Faults::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn every_form_holds_the_same_bytes() {
        let budget = Budget::new(8 << 20);
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        let forms = (0..3).map(|turn| disguise(Buffer::from(bytes.clone()), turn).unwrap());
        let forms: Vec<_> = forms.collect();
        assert!(matches!(
            forms[..],
            [Ready::Bytes(_), Ready::Pipe { .. }, Ready::Shared { .. }]
        ));
        for form in forms {
            assert_eq!(form.len(), bytes.len());
            assert!(*form.into_bytes(&budget).unwrap() == *bytes);
        }
    }

    #[test]
    fn no_bytes_have_every_form_too() {
        let budget = Budget::new(4096);
        for turn in 0..3 {
            let ready = disguise(Buffer::from(Vec::new()), turn).unwrap();
            assert!(ready.is_empty() && ready.into_bytes(&budget).unwrap().is_empty());
        }
    }
}
