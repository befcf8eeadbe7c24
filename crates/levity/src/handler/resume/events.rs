//! The events of a stream on their way to its box.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_mailbox::{Append, Draft, Progress, Reservation, Settings};
use levity_wire::sse::{Block, Scanner};
use tokio::time;

use super::event_box::EventBox;
use crate::handler::mailbox::Form;
use crate::handler::resume::copy_state::Kept;
use crate::upstream::abandoned::Abandoned;
use crate::upstream::pool::Pool;
use crate::upstream::proxy::Proxy;

/// The maximum size of an event in bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The memory of an event beside its draft, in the box and in the copies of event loops, about.
const COPY_BYTES: usize = 352;

/// The headers take no more than this part of a box.
const HEADERS_PART: usize = 16;

/// How often the task of a stream checks whether its client is there, and whether others have given back memory.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The events of a stream on their way to its box.
pub struct Events {
    /// Where they go.
    pub to: EventBox,
    /// Names the upstream of the application.
    proxy: Arc<Proxy>,
    scanner: Scanner,
    /// The lines of the headers; empty if they are too long to be kept.
    headers: Vec<u8>,
    /// The number under which they are in the box.
    headers_at: u64,
    kept: Kept,
    /// What is appended next.
    appends: Vec<Append>,
    /// The last id that the application gave.
    of_application: Box<str>,
    /// How far the receivers were when it was asked last.
    progress: Progress,
    /// It was asked for the present piece of the answer.
    is_fresh: bool,
    /// The number of receivers by then or later.
    receivers: usize,
    /// When the last receiver left.
    alone_since: Option<Instant>,
    /// Counts as a stream without a client at its upstream.
    abandoned: Option<Abandoned>,
}

impl Events {
    /// The events that go to the box `to`, for a client that has the id `last_id` of the application; `headers` are the lines of
    /// those that are kept with them.
    pub fn new(to: EventBox, proxy: Arc<Proxy>, mut headers: Vec<u8>, last_id: Box<str>) -> Self {
        if headers.len() > to.resume.of.bytes / HEADERS_PART {
            headers = Vec::new();
        }
        Self {
            to,
            proxy,
            scanner: Scanner::new(BLOCK_BYTES_MAX),
            headers,
            headers_at: 0,
            kept: Kept::new(),
            appends: Vec::new(),
            of_application: last_id,
            progress: Progress::default(),
            is_fresh: false,
            // The client of the request.
            receivers: 1,
            alone_since: None,
            abandoned: None,
        }
    }

    /// Notes whether there are receivers. Returns whether there was none for as long as a stream is kept without.
    fn note_receivers(&mut self) -> bool {
        if self.receivers > 0 {
            self.alone_since = None;
            self.abandoned = None;
            return false;
        }
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        since.elapsed() >= self.to.resume.of.keep
    }

    /// Whether the rest is not read, because there is no receiver: for too long, or while the server drains or the upstream has
    /// too many such streams.
    pub async fn is_given_up(&mut self) -> bool {
        self.look().await;
        if self.note_receivers() {
            return true;
        }
        if self.receivers > 0 {
            return false;
        }
        let pool = self.pool();
        let abandoned = self.abandoned.get_or_insert_with(|| pool.abandoned());
        self.to.worker.core.is_draining() || pool.gives_way(abandoned)
    }

    fn note(&mut self, progress: Progress) {
        (self.progress, self.is_fresh) = (progress, true);
        self.receivers = progress.receivers;
        if self.receivers > 0 {
            // One that comes back has not said yet what it has.
            self.kept.take(progress.taken.unwrap_or_default());
        }
    }

    /// Passes on the headers, so that the client knows an id before the first event. Returns whether the stream goes on.
    pub async fn begin(&mut self) -> bool {
        self.add_headers().await && self.flush().await
    }

    /// Passes on the events that `bytes` complete. Returns whether the stream goes on.
    pub async fn pass_on(&mut self, mut bytes: &[u8]) -> bool {
        self.is_fresh = false;
        loop {
            let event = match self.scanner.next_block(&mut bytes) {
                Ok(Some(block)) => passed(block),
                Ok(None) => return self.flush().await,
                Err(reject) => return self.fail(reject.reason),
            };
            if !self.add_event(event).await {
                return false;
            }
        }
    }

    /// Passes on the last event, if no blank line followed it. Returns whether it was possible.
    pub async fn pass_on_rest(&mut self) -> bool {
        match self.scanner.end().map(passed) {
            Some(event) => self.add_event(event).await && self.flush().await,
            None => true,
        }
    }

    /// Adds an event, and the headers again once the box drops them. Returns whether the stream goes on.
    async fn add_event(&mut self, (id, content): (Option<Box<str>>, Vec<u8>)) -> bool {
        if let Some(id) = id {
            self.of_application = id;
        }
        let draft = self.to.draft(content, &self.of_application);
        self.add(draft).await && (self.headers_at >= self.kept.first() || self.add_headers().await)
    }

    async fn add_headers(&mut self) -> bool {
        let mut headers = self.to.draft(self.headers.clone(), "");
        Form::mark_headers(&mut headers, &self.of_application);
        self.headers_at = self.kept.next();
        self.add(headers).await
    }

    /// Adds a draft once there is room for it. Returns whether the stream goes on.
    async fn add(&mut self, mut draft: Draft) -> bool {
        let bytes = draft.bytes();
        let (reservation, settings) = loop {
            if let Some(room) = self.room(bytes) {
                break room;
            }
            if !self.is_fresh {
                self.look().await;
            } else if !self.wait_for_room().await {
                return false;
            }
        };
        draft.reservation = Some(reservation);
        self.kept.push(bytes, &settings);
        self.push(draft, settings);
        true
    }

    fn push(&mut self, draft: Draft, settings: Arc<Settings>) {
        self.appends.push(Append {
            update: None,
            name: self.to.name.clone(),
            settings,
            draft: Arc::new(draft),
        });
    }

    /// Memory for an event of `bytes`, and the bounds of the box with which it is appended. `None` if there is no memory, or it had
    /// to drop events that a receiver has not got, or may not have got.
    fn room(&self, bytes: usize) -> Option<(Reservation, Arc<Settings>)> {
        let set = &self.to.resume.set;
        let (settings, budget) = (&set.settings, &set.shared.budget);
        let drops_none = self.kept.fits(bytes, settings);
        let may_drop =
            self.is_fresh && (self.receivers == 0 || self.kept.has_room(bytes, settings));
        if !drops_none && !may_drop {
            return None;
        }
        let reserved = bytes + COPY_BYTES;
        if let Some(reservation) = budget.try_reserve(reserved) {
            return Some((reservation, settings.clone()));
        }
        let bytes_max = self.kept.bound_to_replace(bytes).filter(|_| may_drop)?;
        let settings = Settings {
            bytes_max,
            ..(**settings).clone()
        };
        // What gives way is given back by the append.
        Some((budget.reserve(reserved), settings.into()))
    }

    /// Asks how far the receivers are: one may have come back with less than the one before it.
    async fn look(&mut self) {
        let progress = self.to.progress(None).await;
        self.note(progress);
    }

    /// Waits until the receiver has got more, or for a while in which others may give back memory. Returns whether the stream
    /// goes on: without a receiver there is nothing to wait for.
    async fn wait_for_room(&mut self) -> bool {
        let was_alone = self.receivers == 0;
        if !self.flush().await {
            return false;
        }
        let progress = self.to.progress((!was_alone).then_some(self.progress));
        if let Ok(progress) = time::timeout(LOOK_INTERVAL, progress).await {
            self.note(progress);
        }
        self.receivers > 0
            || !was_alone
            || self.fail("`limits.resume_memory` is used up, and its client is away")
    }

    /// Appends what was added. Returns whether the stream goes on.
    async fn flush(&mut self) -> bool {
        if self.appends.is_empty() {
            return true;
        }
        match self.to.append(mem::take(&mut self.appends)).await {
            Some(receivers) => {
                self.receivers = receivers;
                !self.note_receivers()
            }
            None => self.fail("nothing more is kept"),
        }
    }

    /// Logs why the stream is cut short. Returns that it does not go on.
    fn fail(&self, reason: &str) -> bool {
        self.pool().report_stream(reason);
        false
    }

    fn pool(&self) -> Rc<Pool> {
        self.to.worker.pools.of(&self.proxy.upstream)
    }

    /// Marks the end of the stream, which drops no event that the receiver has not got.
    pub async fn end(mut self, is_complete: bool) {
        let settings = self.to.resume.set.settings.clone();
        let mut end = Draft::default();
        Form::mark_end(&mut end, is_complete);
        self.look().await;
        while self.receivers > 0
            && !self.kept.has_room(end.bytes(), &settings)
            && self.wait_for_room().await
        {}
        self.push(end, settings);
        self.flush().await;
    }
}

/// The id that an event of the application gives, if it gives one, and its other lines.
fn passed(block: Block<'_>) -> (Option<Box<str>>, Vec<u8>) {
    let mut content = Vec::new();
    block.write(&mut content, None);
    (block.id().map(plain), content)
}

/// An id of the application as it is part of another one; empty if it cannot be.
pub fn plain(id: &[u8]) -> Box<str> {
    let is_plain = id.iter().all(u8::is_ascii_graphic);
    let id = str::from_utf8(id).ok().filter(|_| is_plain);
    id.unwrap_or_default().into()
}
