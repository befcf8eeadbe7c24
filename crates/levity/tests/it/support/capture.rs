//! What a process prints, drained by a thread so that it never has to wait for its reader.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::WAIT_MAX;

#[derive(Default)]
struct Shared {
    text: Mutex<Text>,
    grew: Condvar,
}

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    ended: bool,
}

/// One captured stream.
pub struct Capture {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    pub fn start(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::<Shared>::default();
        let to = shared.clone();
        let thread = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut piece) {
                to.lock().bytes.extend_from_slice(&piece[..count]);
                to.grew.notify_all();
            }
            to.lock().ended = true;
            to.grew.notify_all();
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.shared.lock().bytes).into_owned()
    }

    /// Whether nobody is left who could write.
    pub fn has_ended(&self) -> bool {
        self.shared.lock().ended
    }

    /// The first complete line that contains `part`, once it is there; `None` when the stream ends
    /// or the time is up before.
    pub fn line_with(&self, part: &str) -> Option<String> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut text = self.shared.lock();
        loop {
            if let Some(line) = complete_line(&text.bytes, part) {
                return Some(line);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            if text.ended {
                return None;
            }
            let waited = self.shared.grew.wait_timeout(text, left);
            text = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the stream and gives all of it.
    pub fn into_text(mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a reading thread");
        }
        self.text()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn complete_line(bytes: &[u8], part: &str) -> Option<String> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines
        .filter(|line| line.ends_with(b"\n"))
        .map(|line| String::from_utf8_lossy(line).trim_end().to_owned())
        .find(|line| line.contains(part))
}
