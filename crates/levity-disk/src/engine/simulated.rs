//! `simulated`: for tests. Blocking calls in a pool, with delays and faults.
//!
//! Completions are late and out of order, reads are handed over in ordinary memory and in a memory file in turn,
//! and faults are injected. The faults are given after a colon in the name of the engine or, without one, in
//! `LEVITY_SIMULATED`, as a list separated by commas:
//!
//! - `seed=N`: another order and other delays; 0 by default
//! - `delay_ms=N`: each completion is delayed by up to N ms; 1 by default
//! - `seek_ms=N`: the disk has one head, which takes N ms for each operation, one after the other; 0 by default
//! - `eio_at=BYTES`: the byte at this offset of every file can be neither read nor written (EIO)
//! - `enospc_at=BYTES`: a write, an append or an allocation that goes beyond this offset fails with ENOSPC
//! - `eio_syncs=N`: N syncs fail with EIO; 0 by default
//! - `good_syncs=N`: so many succeed before; 0 by default
//! - `freeze=NAME`: operations on paths that contain NAME block until [`thaw`]; may be repeated
//!
//! [`crash`] records the changes and lists what a crash of the machine may leave of them.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::blocking;
use super::contract::{Engine, StartContext, StartError};
use super::crash;
use super::pool::{Pool, Queue};
use super::ticket::{Ticket, WorkItem};
use crate::files::{OpenFile, Root, write};
use crate::job::Ready;
use crate::job::op::{self, Done, Op, Opened, Place};
use crate::memory::arena::{Arena, SlotAllocator};
use crate::memory::{Budget, Buffer, span};
use crate::thread::lock;

/// Used if the name has no options.
const VARIABLE: &str = "LEVITY_SIMULATED";

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    let text = match context.options {
        Some(text) => text.to_owned(),
        None => env::var(VARIABLE).unwrap_or_default(),
    };
    let faults = Faults::parse(&text).map_err(StartError::Setting)?;
    let memory_file = MemoryFile::new(context.budget.bytes_max());
    let simulation = Arc::new(Simulation {
        faults,
        memory_file: memory_file.map_err(|error| context.unavailable(&error))?,
        interrupted: AtomicBool::new(false),
        jobs: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
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
    eio_syncs: u64,
    good_syncs: u64,
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
            eio_syncs: 0,
            good_syncs: 0,
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
            "eio_syncs" => self.eio_syncs = number()?,
            "good_syncs" => self.good_syncs = number()?,
            "enospc_at" => self.enospc_at = Some(number()?),
            "freeze" if value.is_empty() => {
                return Err(format!("{VARIABLE}: freeze needs a part of a path"));
            }
            "freeze" => self.freeze.push(value.to_owned()),
            _ => {
                return Err(format!(
                    "{VARIABLE}: no key is called \"{key}\"; there are seed, delay_ms, seek_ms, eio_at, enospc_at, eio_syncs, good_syncs, freeze"
                ));
            }
        }
        Ok(())
    }
}

/// Ends `freeze=name` in all disks of this process, now and later.
pub fn thaw(name: &str) {
    lock(&THAWED).insert(name.to_owned());
    MELTED.notify_all();
}

static THAWED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static MELTED: Condvar = Condvar::new();

struct Simulated {
    pool: Arc<Pool>,
    simulation: Arc<Simulation>,
}

impl Engine for Simulated {
    fn submit(&self, work: WorkItem) {
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
    /// Syncs that have started.
    syncs: AtomicU64,
    memory_file: MemoryFile,
    /// Held by the operation that uses the only head of the disk.
    head: Mutex<()>,
}

impl Simulation {
    fn run(&self, work: WorkItem) {
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
        let path = path(&op);
        self.wait_while_frozen(&path)?;
        let offset = match &op {
            Op::Open(open) => open.first.map_or(0, |first| first.offset),
            Op::Read(read) => read.offset,
            _ => 0,
        };
        self.refuse_change(&op)?;
        let mut done = crash::record(op, &path, |op| blocking::perform(op, ticket))?;
        if let Done::Read((ready, _))
        | Done::Open(Opened {
            first: Some(ready), ..
        }) = &mut done
        {
            self.refuse_bad_byte(offset, ready.len() as u64)?;
            self.move_bytes(ready, job);
        }
        Ok(done)
    }

    fn refuse_change(&self, op: &Op) -> Result<(), Errno> {
        match op {
            Op::Write(write) => self.refuse_write(write.offset, write.bytes.len() as u64),
            // Where it will be if no other append starts before.
            Op::Append(append) => self.refuse_write(append.file.end(), append.bytes.len() as u64),
            Op::Sync(op::Sync { file }) if file.sync_error().is_none() => {
                let number = self.syncs.fetch_add(1, Ordering::Relaxed);
                let bad = self.faults.good_syncs
                    ..self.faults.good_syncs.saturating_add(self.faults.eio_syncs);
                match bad.contains(&number) {
                    true => write::sync_by(file, || Err(Errno::IO)),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Fails if the range contains the bad byte, or exceeds the room.
    fn refuse_write(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset.saturating_add(len);
        match self.faults.enospc_at.is_some_and(|at| at < end) {
            true => Err(Errno::NOSPC),
            false => self.refuse_bad_byte(offset, len),
        }
    }

    fn refuse_bad_byte(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset.saturating_add(len);
        let bad = self.faults.eio_at;
        match bad.is_some_and(|at| (offset..end).contains(&at)) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Moves the bytes of every other job to the memory file.
    fn move_bytes(&self, ready: &mut Ready, job: u64) {
        if let Ready::Bytes(bytes) = ready
            && !bytes.is_empty()
            && self.faults.seed.wrapping_add(job) % 2 == 1
            && let Some(moved) = self.memory_file.copy(bytes)
        {
            *bytes = moved;
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
        let frozen = |thawed: &mut BTreeSet<String>| {
            !thawed.contains(name) && !self.interrupted.load(Ordering::Relaxed)
        };
        let thawed = MELTED.wait_while(lock(&THAWED), frozen);
        drop(thawed.unwrap_or_else(PoisonError::into_inner));
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Errno::CANCELED.into()),
            false => Ok(()),
        }
    }
}

/// The path of the file of an operation: beneath its root, or where the file was opened. After the removal of its name,
/// and for a file without one, that still contains the path of its directory.
fn path(op: &Op) -> Vec<u8> {
    match op {
        Op::Link(op::Link { root, path, .. }) | Op::Unlink(op::Unlink { root, path, .. }) => {
            beneath(root, path)
        }
        _ => match op.place() {
            Place::Name(root, path) => beneath(root, path),
            Place::File(file) => path_of(file),
            Place::Root(root) => root.named().as_os_str().as_bytes().to_vec(),
            Place::Spool(spool) => spool.path().as_os_str().as_bytes().to_vec(),
        },
    }
}

fn beneath(root: &Root, path: &CStr) -> Vec<u8> {
    let path = OsStr::from_bytes(path.to_bytes());
    root.path().join(path).into_os_string().into_vec()
}

fn path_of(file: &OpenFile) -> Vec<u8> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let path = fs::read_link(link).unwrap_or_default();
    path.as_os_str().as_bytes().to_vec()
}

/// A memory file with a budget of its own, since the bytes that are copied to it have memory already.
struct MemoryFile {
    budget: Budget,
    slots: Mutex<SlotAllocator>,
}

impl MemoryFile {
    fn new(bytes_max: usize) -> io::Result<MemoryFile> {
        let budget = Budget::new(bytes_max);
        // Slots are collected by the next copy.
        let arena = Arena::new(&budget, Box::new(|| {}))?;
        let slots = Mutex::new(SlotAllocator::new(arena));
        Ok(MemoryFile { budget, slots })
    }

    /// `None` if there is no room. At an offset that is not a multiple of a page, to reveal errors of readers.
    fn copy(&self, bytes: &[u8]) -> Option<Buffer> {
        const OFFSET: u64 = 1701;
        let mut slots = lock(&self.slots);
        slots.collect();
        let memory = self.budget.reserve(span(OFFSET, bytes.len()))?;
        let mut copy = Buffer::in_slot(memory, &mut slots, OFFSET, bytes.len());
        copy.extend_from_slice(bytes);
        Some(copy)
    }
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

    #[test]
    fn faults_are_parsed() {
        let faults = Faults::parse(
            "seed=7,eio_at=65536,enospc_at=99,eio_syncs=4,good_syncs=5,delay_ms=2,seek_ms=3,freeze=a,freeze=b",
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
                eio_syncs: 4,
                good_syncs: 5,
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
    fn a_copy_in_the_memory_file_has_the_same_bytes() {
        let memory_file = MemoryFile::new(1 << 20).unwrap();
        for len in [300_000, 1, 4096] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut copy = memory_file.copy(&bytes).unwrap();
            assert!(*copy == *bytes);
            let (_, offset) = copy.memory_file().unwrap();
            let part = copy.part(1..len as usize);
            assert_eq!(part.memory_file().unwrap().1, offset + 1);
        }
        assert!(memory_file.copy(&[7; 2 << 20]).is_none());
    }
}
