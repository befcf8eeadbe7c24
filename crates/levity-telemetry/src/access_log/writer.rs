//! The queue between workers and the log file, and the thread at its end.

use std::fmt;
use std::io;
use std::iter;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use levity_config::AccessLog;
use levity_disk::patiently;
use rustix::io::Errno;

use super::line::{Format, Formatter};
use super::output::{self, Output, line_count};
use super::record::Record;
use crate::channel::{self, Receiver, Refused, Sender};
use crate::diagnostics;

/// A block is handed over once it holds this many bytes; it exceeds them by less than one line.
const BLOCK_BYTES: usize = 32 * 1024;
/// Blocks that wait for the writer at most, of all workers together: about 2 MiB.
const BLOCKS_MAX: usize = 64;

/// Where an access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("on standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Target {
    /// That of a configured log; `None` if it is off.
    pub fn of(access: &AccessLog) -> Option<Self> {
        match access {
            AccessLog::Off => None,
            AccessLog::Stdout => Some(Self::Stdout),
            AccessLog::File(path) => Some(Self::File(path.clone())),
        }
    }

    fn open(&self) -> io::Result<Output> {
        match self {
            Self::Stdout => output::standard(),
            Self::File(path) => output::open(path),
        }
        .map(Output::new)
    }
}

/// A worker's end of an access log. Never blocks.
#[derive(Debug)]
pub struct Log {
    formatter: Formatter,
    block: Vec<u8>,
    queue: Sender<Vec<u8>>,
    dropped: u64,
    /// Where lines count that are lost with it.
    unwritten: Arc<AtomicU64>,
}

impl Log {
    /// Adds the line of one finished request, or drops and counts it when the writer is behind.
    pub fn record(&mut self, record: &Record) {
        if self.block.len() >= BLOCK_BYTES {
            self.hand_over();
        }
        if self.block.len() >= BLOCK_BYTES {
            self.dropped += 1;
            return;
        }
        self.formatter.line(&mut self.block, record);
    }

    /// Hands over the lines so far; lines that find no room stay for the next time. To be called about every
    /// second, and before the worker ends.
    pub fn flush(&mut self) {
        if !self.block.is_empty() {
            self.hand_over();
        }
    }

    /// Lines dropped since the last call, because the writer was behind or had ended.
    pub fn take_dropped(&mut self) -> u64 {
        mem::take(&mut self.dropped)
    }

    fn hand_over(&mut self) {
        match self.queue.try_send(mem::take(&mut self.block)) {
            Ok(()) => self.block.reserve(BLOCK_BYTES + BLOCK_BYTES / 8),
            Err(Refused::Full(block)) => self.block = block,
            Err(Refused::Closed(mut block)) => {
                self.dropped += line_count(&block);
                block.clear();
                self.block = block;
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
        let lost = self.dropped + line_count(&self.block);
        if lost > 0 {
            self.unwritten.fetch_add(lost, Ordering::Relaxed);
        }
    }
}

/// Requests of the control thread to the writer.
#[derive(Debug, Default)]
struct Requests {
    reopen: AtomicBool,
    stop: AtomicBool,
}

/// The thread that writes to one file.
#[derive(Debug)]
pub struct Writer {
    unwritten: Arc<AtomicU64>,
    queue: Sender<Vec<u8>>,
    requests: Arc<Requests>,
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Opens the target and starts the thread. May block, for seconds; to be called before any thread is guarded. Lines that cannot be
    /// written are added to `unwritten`. A file that does not respond, or a pipe that nobody reads, is opened by the thread once that
    /// is possible.
    ///
    /// # Errors
    /// When the target cannot be opened or no thread can be started.
    pub fn start(target: Target, unwritten: Arc<AtomicU64>) -> io::Result<Self> {
        let (queue, blocks) = channel::bounded(BLOCKS_MAX);
        let (running, ended) = sync_channel(0);
        let requests = Arc::<Requests>::default();
        let opened = match &target {
            Target::Stdout => target.open(),
            Target::File(path) => {
                let target = target.clone();
                patiently(path, move |_| target.open()).and_then(|opened| opened)
            }
        };
        let output = match opened {
            Err(error) if is_to_come(&error) => {
                diagnostics::log(format_args!(
                    "access log {target}: {error}; lines are lost until it can be opened"
                ));
                None
            }
            opened => Some(opened?),
        };
        let mut writing = Writing {
            output,
            target,
            requests: requests.clone(),
            unwritten: unwritten.clone(),
            failing: false,
        };
        let thread = thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                writing.run(&blocks);
                drop::<SyncSender<()>>(running);
            })?;
        Ok(Self {
            unwritten,
            queue,
            requests,
            ended,
            thread,
        })
    }

    /// A log for one worker. Logs of several formats may go to one file.
    pub fn log(&self, format: Format) -> Log {
        Log {
            formatter: Formatter::new(format),
            block: Vec::new(),
            queue: self.queue.clone(),
            dropped: 0,
            unwritten: self.unwritten.clone(),
        }
    }

    /// Reopens the file, for log rotation. A path that cannot be opened is logged, and the old file stays. Does not
    /// wait for the thread.
    pub fn reopen(&self) {
        self.requests.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes the thread with an empty block. When the queue is full the thread is awake, and checks for requests
    /// after each block.
    fn wake(&self) {
        let _ = self.queue.try_send(Vec::new());
    }
}

/// Writes all lines that were handed over to `writers`, and ends their threads. Returns whether that was done within
/// `wait_max`; a thread that still waits for its file is left behind. Drop or flush every [`Log`] first. Blocks.
pub fn shutdown(writers: impl IntoIterator<Item = Writer>, wait_max: Duration) -> bool {
    let until = Instant::now() + wait_max;
    let stop = |writer: Writer| {
        writer.requests.stop.store(true, Ordering::Release);
        writer.wake();
        (writer.ended, writer.thread)
    };
    let stopped: Vec<_> = writers.into_iter().map(stop).collect();
    let mut have_ended = true;
    for (ended, thread) in stopped {
        let rest = until.saturating_duration_since(Instant::now());
        let in_time = ended.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected);
        have_ended &= in_time && thread.join().is_ok();
    }
    have_ended
}

/// Whether a file may be opened later without a change of the configuration: one that does not respond, or a pipe that nobody reads.
fn is_to_come(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut || Errno::from_io_error(error) == Some(Errno::NXIO)
}

/// The state of the writing thread.
struct Writing {
    target: Target,
    /// `None` until it could be opened.
    output: Option<Output>,
    requests: Arc<Requests>,
    unwritten: Arc<AtomicU64>,
    /// The last write failed, and that was reported.
    failing: bool,
}

impl Writing {
    fn run(&mut self, blocks: &Receiver<Vec<u8>>) {
        while let Some(block) = blocks.recv() {
            self.write(&block);
            if self.requests.reopen.swap(false, Ordering::Acquire) {
                self.drain(blocks);
                self.reopen();
            }
            if self.requests.stop.load(Ordering::Acquire) {
                return self.drain(blocks);
            }
        }
    }

    /// Writes the lines that were handed over before a request. Bounded, because workers go on meanwhile.
    fn drain(&mut self, blocks: &Receiver<Vec<u8>>) {
        let waiting = iter::from_fn(|| blocks.try_recv());
        waiting
            .take(BLOCKS_MAX)
            .for_each(|block| self.write(&block));
    }

    fn write(&mut self, block: &[u8]) {
        let appended = match self.output() {
            Ok(output) => output.append(block),
            Err(error) => Err((line_count(block), error)),
        };
        match appended {
            Ok(()) => self.failing &= block.is_empty(),
            Err((lines, error)) => self.failed(lines, &error),
        }
    }

    fn output(&mut self) -> io::Result<&mut Output> {
        Ok(match &mut self.output {
            Some(output) => output,
            none => none.insert(self.target.open()?),
        })
    }

    fn failed(&mut self, lines: u64, error: &io::Error) {
        self.unwritten.fetch_add(lines, Ordering::Relaxed);
        if !self.failing {
            let target = &self.target;
            diagnostics::log(format_args!("access log {target}: lines are lost: {error}"));
        }
        self.failing = true;
    }

    fn reopen(&mut self) {
        match self.target.open() {
            Ok(output) => self.output = Some(output),
            Err(error) => diagnostics::log(format_args!(
                "access log: {} cannot be reopened, the old file stays: {error}",
                self.target
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::samples::record;
    use super::*;
    use std::fs::{self, File};
    use std::path::Path;

    const WAIT_MAX: Duration = Duration::from_secs(20);

    fn start(path: &Path) -> Writer {
        Writer::start(Target::File(path.into()), Arc::default()).expect("start")
    }

    fn lines(path: &Path) -> usize {
        fs::read_to_string(path).expect("read").lines().count()
    }

    /// Waits for another thread's effect without a fixed sleep.
    fn until(mut condition: impl FnMut() -> bool) {
        let start = std::time::Instant::now();
        while !condition() {
            assert!(start.elapsed() < WAIT_MAX, "it never came");
            thread::yield_now();
        }
    }

    /// A log whose writer has not begun to read.
    fn stuck_log() -> (Log, Receiver<Vec<u8>>) {
        let (queue, blocks) = channel::bounded(BLOCKS_MAX);
        let formatter = Formatter::new(Format::Combined);
        (
            Log {
                formatter,
                block: Vec::new(),
                queue,
                dropped: 0,
                unwritten: Arc::default(),
            },
            blocks,
        )
    }

    #[test]
    fn every_line_of_every_worker_is_written() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().join("access.log");
        let writer = start(&path);
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let mut log = writer.log(Format::Combined);
                thread::spawn(move || {
                    (0..1_000).for_each(|_| log.record(&record()));
                    log.take_dropped()
                })
            })
            .collect();
        for worker in workers {
            assert_eq!(worker.join().expect("worker"), 0);
        }
        assert!(shutdown([writer], WAIT_MAX));
        assert_eq!(lines(&path), 3_000);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (mut log, blocks) = stuck_log();
        let mut recorded = 0_u64;
        while log.dropped < 10 {
            log.record(&record());
            recorded += 1;
        }
        log.flush();
        let kept = log.block.len();
        assert!((BLOCK_BYTES..BLOCK_BYTES + 1024).contains(&kept), "{kept}");
        let waiting: Vec<_> = iter::from_fn(|| blocks.try_recv()).collect();
        assert_eq!(waiting.len(), BLOCKS_MAX);
        let written: u64 = waiting.iter().map(|block| line_count(block)).sum();
        assert_eq!(written + line_count(&log.block) + log.dropped, recorded);

        log.record(&record());
        assert_eq!(log.dropped, 10, "there is room again");
    }

    #[test]
    fn logs_of_several_formats_go_to_one_file() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().join("access.log");
        let writer = start(&path);
        let template = levity_config::LogTemplate::parse("own {status}").expect("a format");
        for format in [Format::Combined, Format::Custom(template)] {
            writer.log(format).record(&record());
        }
        assert!(shutdown([writer], WAIT_MAX));
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.ends_with(" end=complete\nown 206\n"), "{text}");
    }

    #[test]
    fn lines_that_are_lost_with_a_log_are_counted() {
        let (mut log, blocks) = stuck_log();
        let unwritten = log.unwritten.clone();
        while log.dropped < 10 {
            log.record(&record());
        }
        let kept = line_count(&log.block);
        drop(log);
        assert_eq!(unwritten.load(Ordering::Relaxed), 10 + kept);
        drop(blocks);
    }

    #[test]
    fn a_writer_that_has_ended_is_counted_too() {
        let (mut log, blocks) = stuck_log();
        drop(blocks);
        log.record(&record());
        log.record(&record());
        log.flush();
        assert_eq!((log.dropped, log.block.len()), (2, 0));
    }

    #[test]
    fn reopen_follows_a_renamed_file() {
        let folder = tempfile::tempdir().expect("tempdir");
        let (path, old) = (
            folder.path().join("access.log"),
            folder.path().join("access.log.1"),
        );
        let writer = start(&path);
        let mut log = writer.log(Format::Combined);
        log.record(&record());
        log.flush();
        fs::rename(&path, &old).expect("rename");
        writer.reopen();
        until(|| path.exists());
        log.record(&record());
        drop(log);
        assert!(shutdown([writer], WAIT_MAX));
        assert_eq!((lines(&old), lines(&path)), (1, 1));
    }

    #[test]
    fn a_path_that_cannot_be_reopened_keeps_the_old_file() {
        let folder = tempfile::tempdir().expect("tempdir");
        let (logs, moved) = (folder.path().join("logs"), folder.path().join("moved"));
        fs::create_dir(&logs).expect("mkdir");
        let writer = start(&logs.join("access.log"));
        fs::rename(&logs, &moved).expect("rename");
        writer.reopen();
        until(|| !writer.requests.reopen.load(Ordering::Acquire));
        let mut log = writer.log(Format::Combined);
        log.record(&record());
        drop(log);
        assert!(shutdown([writer], WAIT_MAX));
        assert_eq!(lines(&moved.join("access.log")), 1);
    }

    #[test]
    fn a_full_disk_loses_lines_but_not_the_count() {
        let unwritten = Arc::<AtomicU64>::default();
        let target = Target::File("/dev/full".into());
        let writer = Writer::start(target, unwritten.clone()).expect("start");
        let mut log = writer.log(Format::Combined);
        log.record(&record());
        log.record(&record());
        drop(log);
        assert!(shutdown([writer], WAIT_MAX));
        assert_eq!(unwritten.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn shutdown_does_not_wait_for_a_stuck_file() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("mkfifo");
        let reader = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("open");
        let writer = start(&path);
        let mut log = writer.log(Format::Combined);
        (0..2_000).for_each(|_| log.record(&record()));
        log.flush();
        assert!(
            !shutdown([writer], Duration::from_millis(20)),
            "nobody reads the pipe"
        );
        drop(reader);
    }
}
