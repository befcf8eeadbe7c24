//! Parts of several files as one body, with one file open at a time.
//!
//! A slow client would otherwise hold one descriptor per part. So each file is opened once before the
//! response begins, to check that the part exists, and again when its turn comes.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use levity_disk::{Meta, OpenFile};

use super::Found;
use super::root::{Beneath, Name};
use crate::files::cache::Cache;
use crate::files::disk_client::DiskClient;
use crate::files::entry::{Content, Entry};
use crate::http::response::{FileBody, FileParts, NextPart, PartError};
use crate::message::fields::Fields;
use crate::respond::file;

/// The parts that remain to be sent.
#[derive(Default)]
pub struct Parts {
    /// The current part, open.
    open: Option<Box<FileBody>>,
    /// The following parts.
    closed: VecDeque<Part>,
}

/// A part of a file that is not open.
struct Part {
    beneath: Beneath,
    /// The file's metadata when the response began.
    meta: Meta,
    range: Range<u64>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Parts {
    /// Appends a part of a file that has just been opened. An empty part is dropped.
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
    async fn open(self, disk: &mut DiskClient<'_>) -> Result<Box<FileBody>, PartError> {
        let opened = self.beneath.open(false, Name::Keep, disk).await;
        let opened = opened.map_err(PartError::Unreadable)?;
        let now = opened.file.meta();
        if (now.device, now.inode) != (self.meta.device, self.meta.inode) {
            return Err(PartError::Replaced);
        }
        Ok(self.body(opened.file))
    }

    /// The body of a part, bound to the version of the file that was checked: sending detects a file that was
    /// overwritten since.
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
