//! Appends records to a file, each durable before its writer goes on: `durable_append FILE WRITERS SECONDS`.
//!
//! All writers share one open file, as the writers of a log would. One thread drives them, as an event loop would: it
//! submits the append of a writer, then its sync, then its next append. Prints `{"appends":N,"syncs":N,"seconds":S}`, with
//! the number of calls that synced. Ends at the time limit or at 4 GiB, whichever comes first, once no operation is in
//! flight.

use std::error::Error;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use levity_disk::{
    Class, Completion, Disk, Done, Job, Op, OpenFile, Operation, Reply, Root, Settings, Symlinks,
    op,
};

/// The size of a record in bytes.
const RECORD_BYTES: usize = 4096;
/// The maximum number of records: 4 GiB.
const RECORDS_MAX: u64 = 1 << 20;

type Outcome = (usize, io::Result<Done>);

/// Passes the completion to the thread of the writers.
struct Answer {
    writer: usize,
    to: Sender<Outcome>,
}

impl Reply for Answer {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        // The receiver is gone only after an error, which is reported.
        let _ = self.to.send((self.writer, completion.result));
    }
}

struct Writers {
    disk: Arc<Disk>,
    file: Arc<OpenFile>,
    record: Arc<Vec<u8>>,
    to: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
}

impl Writers {
    fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let root = Root::open(folder.unwrap_or(Path::new(".")), Symlinks::Beneath)?;
        let name = path.file_name().ok_or("FILE has no name")?;
        let disk = Disk::start(Settings::default())?;
        let (to, outcomes) = mpsc::channel();
        let create = op::Create::Named {
            root,
            path: CString::new(name.as_bytes())?,
            mode: 0o600,
        };
        submit(&disk, create, 0, &to);
        let file = op::Create::output(outcomes.recv()?.1?);
        Ok(Self {
            disk,
            file,
            record: Arc::new(vec![b'r'; RECORD_BYTES]),
            to,
            outcomes,
        })
    }

    fn append(&self, writer: usize) {
        let append = op::Append {
            file: Arc::clone(&self.file),
            bytes: Arc::clone(&self.record),
        };
        submit(&self.disk, append, writer, &self.to);
    }

    fn sync(&self, writer: usize) {
        let file = Arc::clone(&self.file);
        submit(&self.disk, op::Sync { file }, writer, &self.to);
    }

    /// Returns the number of durable records.
    fn run(&self, count: usize, time: Duration) -> Result<u64, Box<dyn Error>> {
        let end = Instant::now() + time;
        (0..count).for_each(|writer| self.append(writer));
        let (mut writing, mut durable) = (count, 0);
        while writing > 0 {
            let (writer, result) = self.outcomes.recv()?;
            match result? {
                Done::Append(_) => self.sync(writer),
                Done::Sync(()) => {
                    durable += 1;
                    let goes_on = durable < RECORDS_MAX && Instant::now() < end;
                    if goes_on {
                        self.append(writer);
                    } else {
                        writing -= 1;
                    }
                }
                other => return Err(format!("a change was answered with {other:?}").into()),
            }
        }
        Ok(durable)
    }
}

fn submit(disk: &Disk, op: impl Into<Op>, writer: usize, to: &Sender<Outcome>) {
    let reply = Box::new(Answer {
        writer,
        to: to.clone(),
    });
    let mut job = Job::new(op, Class::Later, reply);
    job.stream = writer as u64;
    disk.submit(job);
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, writers, seconds] = &words[..] else {
        return Err("usage: durable_append FILE WRITERS SECONDS".into());
    };
    let (count, time) = (
        writers.parse()?,
        Duration::try_from_secs_f64(seconds.parse()?)?,
    );
    let writers = Writers::open(Path::new(path))?;
    let started = Instant::now();
    let appends = writers.run(count, time)?;
    let seconds = started.elapsed().as_secs_f64();
    let engines = writers.disk.stats().engines;
    let syncs: u64 = engines.iter().map(|engine| engine.syncs).sum();
    println!("{{\"appends\":{appends},\"syncs\":{syncs},\"seconds\":{seconds}}}");
    Ok(())
}
