//! Parts of files, one behind the other: one file is open at a time, however many there are.
//!
//! A client that takes its time would otherwise keep a descriptor for each part. So each file is opened
//! once before the response begins, which tells whether the part exists, and once more when its turn comes.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::{Meta, OpenFile};
use tokio::time;

use super::Found;
use super::root::{Beneath, Name};
use crate::cache::Cache;
use crate::disk_client::DiskClient;
use crate::entry::{Content, Entry};
use crate::http::fields::Fields;
use crate::http::response::{FileBody, FileParts, NextPart};
use crate::respond::file;

/// Files on their way to be closed, of which the next file is looked at only when there are fewer: looks are
/// faster than the threads that close, and all of them count as open.
const UNCLOSED_MAX: usize = 16;

/// How often their number is asked for.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);

/// How long the looks of one response wait for it in all: closing a file may wait for a device.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// Waits until there is room for one more look, of a response whose looks began at `since`.
pub(super) async fn room_to_look(since: Instant) {
    while levity_disk::unclosed() >= UNCLOSED_MAX && since.elapsed() < CLOSE_PATIENCE {
        time::sleep(CLOSE_INTERVAL).await;
    }
}

/// What is left to be sent.
#[derive(Default)]
pub struct Parts {
    /// The first, which is open from the look at it.
    open: Option<Box<FileBody>>,
    /// Those behind it.
    closed: VecDeque<Part>,
}

/// A part of a file that is not open.
struct Part {
    beneath: Beneath,
    /// The file as it was when the response began.
    meta: Meta,
    range: Range<u64>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Parts {
    /// Adds a part of a file that has just been opened, behind the others. One without bytes is left out.
    pub(super) fn add(&mut self, found: Found, range: Range<u64>) {
        let Found { beneath, opened } = found;
        let part = Part {
            meta: opened.file.meta(),
            beneath,
            range,
        };
        if part.range.is_empty() {
            return;
        }
        match self.is_empty() {
            true => self.open = Some(part.body(opened.file)),
            false => self.closed.push_back(part),
        }
    }

    fn is_empty(&self) -> bool {
        self.open.is_none() && self.closed.is_empty()
    }
}

impl FileParts for Parts {
    fn length(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |part| part.remaining);
        let closed = self
            .closed
            .iter()
            .map(|part| part.range.end - part.range.start);
        open + closed.sum::<u64>()
    }

    fn next<'a>(&'a mut self, disk: &'a mut DiskClient<'_>) -> NextPart<'a> {
        Box::pin(async move {
            if let Some(part) = self.open.take() {
                return Ok(Some(part));
            }
            match self.closed.pop_front() {
                Some(part) => part.open(disk).await.map(Some),
                None => Ok(None),
            }
        })
    }
}

impl Part {
    async fn open(self, disk: &mut DiskClient<'_>) -> io::Result<Box<FileBody>> {
        let opened = self.beneath.open(false, Name::Stays, disk).await?;
        let now = opened.file.meta();
        if (now.device, now.inode) != (self.meta.device, self.meta.inode) {
            let message = "another file has its name since the response began";
            return Err(io::Error::other(message));
        }
        Ok(self.body(opened.file))
    }

    /// Its content, as that of the version that was looked at first: sending notices a file that was written
    /// over since. No field tells of it, and no validator.
    fn body(&self, file: Arc<OpenFile>) -> Box<FileBody> {
        let entry = Entry {
            meta: self.meta,
            etag: String::new(),
            strong: false,
            fields: Fields::default(),
            coding: None,
            modified: None,
            varies: false,
            content: Content::File(file.clone()),
        };
        let cached = Cache::uncached(Arc::new(entry));
        file::part_of(cached, file, None, self.range.clone())
    }
}
