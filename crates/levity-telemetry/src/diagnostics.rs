//! Lines for the operator on standard error, said without waiting.
//!
//! Standard error may be a pipe that nobody reads. A loop thread therefore hands its line to one
//! thread over a bounded queue; when that is full, the line is dropped and counted, and the count is
//! written once there is room again.

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

/// Lines that wait at most.
const LINES_MAX: usize = 256;
/// Bytes of one line at most; the rest is cut.
const LINE_BYTES_MAX: usize = 2048;

/// What each line begins with.
const PREFIX: &str = "levity: ";

/// Bytes that one [say] may have without being cut, if all of it is [plain](is_plain).
pub const TEXT_BYTES_MAX: usize = LINE_BYTES_MAX - PREFIX.len();

static SPEAKER: OnceLock<Speaker> = OnceLock::new();

/// Starts the thread that writes to standard error; once, from the control thread. A second call
/// changes nothing. Fails when no thread can be started.
pub fn start() -> io::Result<()> {
    if SPEAKER.get().is_none() {
        let _ = SPEAKER.set(Speaker::start(standard()?)?);
    }
    Ok(())
}

/// Says one line, such as `format_args!("worker {n}: {error}")`. Never blocks once [`start`] was
/// called; before, while there are no loop threads, the line is written at once. Characters that are not
/// [plain](is_plain) are escaped, so that what a client sent cannot forge lines or drive a terminal.
pub fn say(line: fmt::Arguments) {
    match SPEAKER.get() {
        Some(speaker) => speaker.say(line),
        None => eprint!("{}", tidy(line)),
    }
}

/// Lines dropped since the start because standard error was not read.
pub fn dropped() -> u64 {
    SPEAKER
        .get()
        .map_or(0, |speaker| speaker.shared.dropped.load(Ordering::Relaxed))
}

/// Waits, for `wait_max` at most, until every line said so far is written. For the control thread,
/// before the process ends.
pub fn flush(wait_max: Duration) {
    if let Some(speaker) = SPEAKER.get() {
        speaker.flush(wait_max);
    }
}

/// Standard error without the standard library's lock, which a stuck write would hold.
fn standard() -> io::Result<File> {
    Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
}

fn tidy(line: fmt::Arguments) -> String {
    let mut out = String::from(PREFIX);
    for character in line.to_string().chars() {
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

struct Speaker {
    queue: Sender<String>,
    /// Lines that entered the queue.
    said: AtomicU64,
    shared: Arc<Shared>,
}

/// What the thread tells, and is told.
#[derive(Default)]
struct Shared {
    dropped: AtomicU64,
    /// Lines that left the queue, and the parker of the thread that waits for them.
    written: Mutex<u64>,
    grew: Condvar,
}

impl Speaker {
    fn start(file: File) -> io::Result<Self> {
        let (queue, lines) = channel::bounded(LINES_MAX);
        let shared = Arc::<Shared>::default();
        let speaker = Self {
            queue,
            said: AtomicU64::new(0),
            shared: shared.clone(),
        };
        thread::Builder::new()
            .name("diagnostics".into())
            .spawn(move || write_lines(&file, &lines, &shared))?;
        Ok(speaker)
    }

    fn say(&self, line: fmt::Arguments) {
        let counter = match self.queue.try_send(tidy(line)) {
            Ok(()) => &self.said,
            Err(_) => &self.shared.dropped,
        };
        counter.fetch_add(1, Ordering::AcqRel);
    }

    fn flush(&self, wait_max: Duration) {
        let said = self.said.load(Ordering::Acquire);
        let written = self
            .shared
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let _ = self
            .shared
            .grew
            .wait_timeout_while(written, wait_max, |lines| *lines < said);
    }
}

// There is nowhere left to report a failing standard error, so its errors are ignored.
fn write_lines(file: &File, lines: &Receiver<String>, shared: &Shared) {
    let mut dropped_told = 0;
    while let Some(line) = lines.recv() {
        let _ = write_all(file, line.as_bytes());
        *shared
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        shared.grew.notify_all();
        let dropped = shared.dropped.load(Ordering::Relaxed);
        if dropped > dropped_told {
            let lost = dropped - dropped_told;
            let _ = write_all(
                file,
                tidy(format_args!("{lost} messages lost here")).as_bytes(),
            );
            dropped_told = dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    const WAIT_MAX: Duration = Duration::from_secs(20);

    fn speaker() -> (Speaker, BufReader<File>) {
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        (
            Speaker::start(writer.into()).expect("start"),
            BufReader::new(reader.into()),
        )
    }

    #[test]
    fn a_line_is_written_with_its_control_characters_escaped() {
        let (speaker, mut pipe) = speaker();
        speaker.say(format_args!(
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
    fn a_pipe_that_nobody_reads_drops_and_counts() {
        let (speaker, pipe) = speaker();
        let long = "x".repeat(2 * LINE_BYTES_MAX);
        let mut said = 0;
        while speaker.shared.dropped.load(Ordering::Relaxed) == 0 {
            speaker.say(format_args!("{long}"));
            said += 1;
        }
        assert!(said > LINES_MAX);
        speaker.flush(Duration::ZERO);
        drop(speaker);
        let told = pipe
            .lines()
            .map_while(Result::ok)
            .find(|line| line.ends_with("lost here"));
        assert_eq!(told.as_deref(), Some("levity: 1 messages lost here"));
    }

    #[test]
    fn flush_waits_for_every_line() {
        let (speaker, mut pipe) = speaker();
        (0..100).for_each(|n| speaker.say(format_args!("line {n}")));
        speaker.flush(WAIT_MAX);
        assert_eq!(*speaker.shared.written.lock().expect("lock"), 100);
        let mut line = String::new();
        (0..100).for_each(|_| {
            line.clear();
            pipe.read_line(&mut line).expect("read");
        });
        assert_eq!(line, "levity: line 99\n");
    }

    #[test]
    fn long_lines_are_cut() {
        let line = tidy(format_args!("{}", "y".repeat(100_000)));
        assert_eq!(line.len(), LINE_BYTES_MAX + 1);
        let whole = "y".repeat(TEXT_BYTES_MAX);
        assert_eq!(tidy(format_args!("{whole}")), format!("levity: {whole}\n"));
    }
}
