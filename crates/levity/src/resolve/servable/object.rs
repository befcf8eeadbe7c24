//! What may be sent or run.

use std::rc::Rc;

use levity_disk::Ready;

use crate::files::cache::EntryRef;
use crate::files::scripts::Script;
use crate::message::request::Request;

/// A file that may be sent.
#[derive(Debug)]
pub struct ServableFile {
    cached: Rc<EntryRef>,
    ready: Option<(u64, Ready)>,
}

impl ServableFile {
    pub(super) fn new(cached: Rc<EntryRef>, ready: Option<(u64, Ready)>) -> Self {
        Self { cached, ready }
    }

    /// A file that an application has named, or the operator for errors: whoever gets it need not have asked for it, and its
    /// location need not let them in.
    pub fn named_on_purpose(cached: Rc<EntryRef>, ready: Option<(u64, Ready)>) -> Self {
        Self { cached, ready }
    }

    /// The same content in a form that a store keeps: `cached`, with bytes that were read already and their offset.
    pub fn in_form(&self, cached: Rc<EntryRef>, ready: Option<(u64, Ready)>) -> Self {
        Self { cached, ready }
    }

    /// What the cache has of it.
    pub fn cached(&self) -> &Rc<EntryRef> {
        &self.cached
    }

    /// What the cache has of it, and bytes that were read already, with their offset.
    pub fn into_parts(self) -> (Rc<EntryRef>, Option<(u64, Ready)>) {
        (self.cached, self.ready)
    }
}

/// A script that may be run.
#[derive(Debug)]
pub struct RunnableScript {
    script: Script,
    is_moved: bool,
}

impl RunnableScript {
    pub(super) fn new(script: Script, is_moved: bool) -> Self {
        Self { script, is_moved }
    }

    /// What the lookup has found.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Its path relative to the root, without a leading slash.
    pub fn name(&self) -> &[u8] {
        &self.script.name
    }

    /// PATH_INFO without its leading slash.
    pub fn info(&self) -> Option<&[u8]> {
        self.script.info.as_deref()
    }

    /// The part of `request` that it is to know as the request target, with the path of that: the request may have been moved to
    /// the path of the script.
    pub fn target<'r>(&self, request: &'r Request) -> (&'r [u8], &'r [u8]) {
        match self.is_moved {
            true => request.asked_target(),
            false => (request.target(), request.raw_path()),
        }
    }
}
