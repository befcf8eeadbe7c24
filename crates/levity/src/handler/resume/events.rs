//! The events of a stream on their way to its box.

use std::rc::Rc;
use std::time::Instant;

use levity_mailbox::Draft;
use levity_wire::sse::{Block, Scanner};

use super::event_box::{EventBox, OVERHEAD_BYTES};
use crate::handler::mailbox::Form;
use crate::route::Proxy;
use crate::upstream::abandoned::Abandoned;
use crate::upstream::pool::Pool;

/// The maximum size of an event in bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The headers are repeated after each fourth of a box, so that it always has them, and take no more than a quarter of that.
const HEADERS_PER_BOX: usize = 4;

/// The events of a stream on their way to its box.
pub struct Events<'s> {
    to: &'s EventBox,
    /// Names the upstream of the application.
    proxy: &'s Proxy,
    scanner: Scanner,
    /// The lines of the headers; empty if they are too long to be kept.
    headers: Vec<u8>,
    /// The bytes and the number of the events that may be passed on before the headers are due again.
    until_headers: (usize, usize),
    /// The last id that the application gave.
    of_application: Box<str>,
    /// When the last receiver left.
    alone_since: Option<Instant>,
    /// Counts as a stream without a client at its upstream.
    abandoned: Option<Abandoned>,
}

impl<'s> Events<'s> {
    /// The events that go to the box `to`; `headers` are the lines of those that are kept with them.
    pub fn new(to: &'s EventBox, proxy: &'s Proxy, mut headers: Vec<u8>) -> Self {
        let bytes_max = to.resume.of.bytes / HEADERS_PER_BOX;
        if headers.len() > bytes_max / HEADERS_PER_BOX {
            headers = Vec::new();
        }
        Self {
            to,
            proxy,
            scanner: Scanner::new(BLOCK_BYTES_MAX),
            headers,
            until_headers: (0, 0),
            of_application: Box::default(),
            alone_since: None,
            abandoned: None,
        }
    }

    /// Whether there was no receiver for as long as a stream is kept without.
    fn is_abandoned(&mut self, receivers: usize) -> bool {
        if receivers > 0 {
            self.alone_since = None;
            self.abandoned = None;
            return false;
        }
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        since.elapsed() >= self.to.resume.of.keep
    }

    /// Whether the rest is not read, because there is no receiver: for too long, or while the server drains or the upstream has
    /// too many such streams.
    pub fn is_given_up(&mut self, receivers: usize) -> bool {
        if self.is_abandoned(receivers) {
            return true;
        }
        if receivers > 0 {
            return false;
        }
        let pool = self.pool();
        let abandoned = self.abandoned.get_or_insert_with(|| pool.abandoned());
        self.to.worker.is_draining() || pool.gives_way(abandoned)
    }

    /// Passes on the headers, so that the client knows an id before the first event. Returns whether it was possible.
    pub async fn begin(&mut self) -> bool {
        let mut drafts = Vec::new();
        self.add_headers(&mut drafts) && self.to.append(drafts).await.is_some()
    }

    /// Passes on the events that `bytes` complete. Returns whether the stream goes on.
    pub async fn pass_on(&mut self, mut bytes: &[u8]) -> bool {
        let mut drafts = Vec::new();
        loop {
            let block = match self.scanner.next_block(&mut bytes) {
                Ok(Some(block)) => Passed::new(block),
                Ok(None) => break,
                Err(reject) => return self.fail(reject.reason),
            };
            if !self.add(block, &mut drafts) {
                return false;
            }
        }
        if drafts.is_empty() {
            return true;
        }
        match self.to.append(drafts).await {
            Some(receivers) => !self.is_abandoned(receivers),
            None => self.fail("the mailboxes take no more"),
        }
    }

    /// Passes on the last event, if no blank line followed it. Returns whether it was possible.
    pub async fn pass_on_rest(&mut self) -> bool {
        let Some(block) = self.scanner.end().map(Passed::new) else {
            return true;
        };
        let mut drafts = Vec::new();
        self.add(block, &mut drafts) && self.to.append(drafts).await.is_some()
    }

    /// Adds the drafts for a block. Returns whether there was memory.
    fn add(&mut self, block: Passed, drafts: &mut Vec<Draft>) -> bool {
        if let Some(id) = block.id {
            self.of_application = id;
        }
        let bytes = block.content.len();
        if self.are_headers_due(bytes) && !self.add_headers(drafts) {
            return false;
        }
        let (bytes_left, events_left) = &mut self.until_headers;
        *bytes_left = bytes_left.saturating_sub(bytes + OVERHEAD_BYTES);
        *events_left = events_left.saturating_sub(1);
        let Some(draft) = self.to.draft(block.content, &self.of_application) else {
            return self.fail("`limits.mailbox_memory` is used up");
        };
        drafts.push(draft);
        true
    }

    /// Whether the headers are passed on before an event of that many bytes.
    fn are_headers_due(&self, bytes: usize) -> bool {
        let (bytes_left, events_left) = self.until_headers;
        bytes_left < bytes || events_left == 0
    }

    /// Adds the draft for the headers. Returns whether there was memory.
    fn add_headers(&mut self, drafts: &mut Vec<Draft>) -> bool {
        let Some(mut headers) = self.to.draft(self.headers.clone(), &self.of_application) else {
            return self.fail("`limits.mailbox_memory` is used up");
        };
        Form::mark_headers(&mut headers);
        drafts.push(headers);
        let settings = &self.to.resume.set.settings;
        self.until_headers = (
            settings.bytes_max / HEADERS_PER_BOX,
            settings.messages_max / HEADERS_PER_BOX,
        );
        true
    }

    /// Logs why the stream is cut short. Returns that it does not go on.
    fn fail(&self, reason: &str) -> bool {
        self.pool().report_stream(reason);
        false
    }

    fn pool(&self) -> Rc<Pool> {
        self.to.worker.pools.of(&self.proxy.upstream)
    }

    /// Marks the end of the stream.
    pub async fn end(&self, is_complete: bool) {
        let mut end = Draft::default();
        Form::mark_end(&mut end, is_complete);
        let _ = self.to.append(vec![end]).await;
    }
}

/// An event of the application, without its id.
struct Passed {
    /// The id that it gives, if it gives one; empty if it cannot be part of another.
    id: Option<Box<str>>,
    /// The lines without the id.
    content: Vec<u8>,
}

impl Passed {
    fn new(block: Block<'_>) -> Self {
        let mut content = Vec::new();
        block.write(&mut content, None);
        let id = block.id().map(|id| {
            let is_plain = id.iter().all(u8::is_ascii_graphic);
            let id = str::from_utf8(id).ok().filter(|_| is_plain);
            id.unwrap_or_default().into()
        });
        Self { id, content }
    }
}
