//! Messages for the operator on standard error, logged without blocking.
//!
//! Standard error may be a pipe that nobody reads. A loop therefore hands its line to one thread over a bounded
//! queue. When the queue is full, the line is dropped and counted; the count is written once there is room again.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::channel::{self, Receiver, Sender};
use crate::escape::is_plain;
use crate::write_all::write_all;

/// Lines in the queue at most.
const LINES_MAX: usize = 256;
/// Bytes of one line at most; longer lines are cut.
const LINE_BYTES_MAX: usize = 2048;

/// Every line begins with this.
const PREFIX: &str = "levity: ";

/// Bytes of one message that are not cut, if all of it is [plain](is_plain).
pub const TEXT_BYTES_MAX: usize = LINE_BYTES_MAX - PREFIX.len();

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts the thread that writes to standard error. To be called once, from the control thread; a second call
/// changes nothing.
///
/// # Errors
/// When no thread can be started.
pub fn start() -> io::Result<()> {
    start_changed(|line| line)
}

/// The same for lines of which `change` makes others.
///
/// # Errors
/// As those of [`start`].
pub fn start_changed(change: impl Fn(String) -> String + Send + Sync + 'static) -> io::Result<()> {
    if LOGGER.get().is_none() {
        let _ = LOGGER.set(Logger::start(standard()?, Box::new(change))?);
    }
    Ok(())
}

/// Logs one line, such as `format_args!("worker {n}: {error}")`. Never blocks once [`start`] was called; before
/// that, while there are no loops, the line is written at once. Characters that are not [plain](is_plain) are
/// escaped, so that bytes of a client can neither forge lines nor control a terminal.
pub fn log(line: fmt::Arguments) {
    match LOGGER.get() {
        Some(logger) => logger.log(line),
        None => eprint!("{}", formatted(&line.to_string())),
    }
}

/// Lines dropped since the start because standard error was not read.
pub fn dropped() -> u64 {
    LOGGER
        .get()
        .map_or(0, |logger| logger.shared.dropped.load(Ordering::Relaxed))
}

/// Blocks until every line logged so far is written, for `wait_max` at most. For the control thread, before the
/// process ends.
pub fn flush(wait_max: Duration) {
    if let Some(logger) = LOGGER.get() {
        logger.flush(wait_max);
    }
}

/// Standard error without the standard library's lock, which a stuck write would hold.
fn standard() -> io::Result<File> {
    Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
}

fn formatted(line: &str) -> String {
    let mut out = String::from(PREFIX);
    for character in line.chars() {
        if out.len() >= LINE_BYTES_MAX {
            break;
        }
        if is_plain(character) {
            out.push(character);
        } else {
            out.extend(character.escape_default());
        }
    }
    out.push('\n');
    out
}

/// Makes another line of one.
type Change = Box<dyn Fn(String) -> String + Send + Sync>;

struct Logger {
    change: Change,
    queue: Sender<String>,
    /// Lines that entered the queue.
    queued: AtomicU64,
    shared: Arc<Shared>,
}

/// State that the thread shares with those who log.
#[derive(Default)]
struct Shared {
    dropped: AtomicU64,
    /// Lines that were written.
    written: Mutex<u64>,
    grew: Condvar,
}

impl Logger {
    fn start(file: File, change: Change) -> io::Result<Self> {
        let (queue, lines) = channel::bounded(LINES_MAX);
        let shared = Arc::<Shared>::default();
        let logger = Self {
            change,
            queue,
            queued: AtomicU64::new(0),
            shared: shared.clone(),
        };
        thread::Builder::new()
            .name("diagnostics".into())
            .spawn(move || write_lines(&file, &lines, &shared))?;
        Ok(logger)
    }

    fn log(&self, line: fmt::Arguments) {
        let line = (self.change)(line.to_string());
        let counter = match self.queue.try_send(formatted(&line)) {
            Ok(()) => &self.queued,
            Err(_) => &self.shared.dropped,
        };
        counter.fetch_add(1, Ordering::AcqRel);
    }

    fn flush(&self, wait_max: Duration) {
        let queued = self.queued.load(Ordering::Acquire);
        let written = self
            .shared
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let _ = self
            .shared
            .grew
            .wait_timeout_while(written, wait_max, |lines| *lines < queued);
    }
}

// There is nowhere left to report a failing standard error, so its errors are ignored.
fn write_lines(file: &File, lines: &Receiver<String>, shared: &Shared) {
    let mut dropped_reported = 0;
    while let Some(line) = lines.recv() {
        let _ = write_all(file, line.as_bytes());
        *shared
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        shared.grew.notify_all();
        let dropped = shared.dropped.load(Ordering::Relaxed);
        if dropped > dropped_reported {
            let lost = dropped - dropped_reported;
            let _ = write_all(
                file,
                formatted(&format!("{lost} messages lost here")).as_bytes(),
            );
            dropped_reported = dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    const WAIT_MAX: Duration = Duration::from_secs(20);

    fn logger() -> (Logger, BufReader<File>) {
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        (
            Logger::start(
                writer.into(),
                Box::new(|line| line.replace("secret", "${A}")),
            )
            .expect("start"),
            BufReader::new(reader.into()),
        )
    }

    #[test]
    fn a_line_is_written_with_its_control_characters_escaped() {
        let (logger, mut pipe) = logger();
        logger.log(format_args!(
            "bad target {}",
            "a\r\n\u{1b}[2Jb\u{e9}\u{202e}"
        ));
        let mut line = String::new();
        pipe.read_line(&mut line).expect("read");
        assert_eq!(
            line,
            "levity: bad target a\\r\\n\\u{1b}[2Jb\u{e9}\\u{202e}\n"
        );
    }

    #[test]
    fn lines_are_changed_before_they_are_written() {
        let (logger, mut pipe) = logger();
        logger.log(format_args!("{} is there", "secret"));
        let mut line = String::new();
        pipe.read_line(&mut line).expect("read");
        assert_eq!(line, "levity: ${A} is there\n");
    }

    #[test]
    fn a_pipe_that_nobody_reads_drops_and_counts() {
        let (logger, pipe) = logger();
        let long = "x".repeat(2 * LINE_BYTES_MAX);
        let mut logged = 0;
        while logger.shared.dropped.load(Ordering::Relaxed) == 0 {
            logger.log(format_args!("{long}"));
            logged += 1;
        }
        assert!(logged > LINES_MAX);
        logger.flush(Duration::ZERO);
        drop(logger);
        let reported = pipe
            .lines()
            .map_while(Result::ok)
            .find(|line| line.ends_with("lost here"));
        assert_eq!(reported.as_deref(), Some("levity: 1 messages lost here"));
    }

    #[test]
    fn flush_waits_for_every_line() {
        let (logger, mut pipe) = logger();
        (0..100).for_each(|n| logger.log(format_args!("line {n}")));
        logger.flush(WAIT_MAX);
        assert_eq!(*logger.shared.written.lock().expect("lock"), 100);
        let mut line = String::new();
        (0..100).for_each(|_| {
            line.clear();
            pipe.read_line(&mut line).expect("read");
        });
        assert_eq!(line, "levity: line 99\n");
    }

    #[test]
    fn long_lines_are_cut() {
        let line = formatted(&"y".repeat(100_000));
        assert_eq!(line.len(), LINE_BYTES_MAX + 1);
        let whole = "y".repeat(TEXT_BYTES_MAX);
        assert_eq!(formatted(&whole), format!("levity: {whole}\n"));
    }
}
