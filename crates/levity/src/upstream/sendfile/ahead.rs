//! Content made ahead: with one answer an application names files for what the same client will ask
//! next, and those requests are answered from them at once.
//!
//! The field is `X-Sendfile-Ahead: TARGET FILE ttl=SECONDS [type=MEDIA-TYPE]`, on any answer, once per
//! target. FILE is beneath one of `temporary_roots`. It is opened and its name removed when the field
//! comes; the content goes when its time is over. A request gets it only from the same principal: with
//! the same host, the same Cookie and Authorization, from the same address.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use levity_disk::{Kind, Root};
use levity_wire::http1::{Framing, Method};
use levity_wire::mime;
use levity_wire::sendfile_header::{self, Ahead};
use quick_cache::sync::Cache;
use tokio::task;

use super::root;
use crate::absences::Absences;
use crate::cache::{self, Content, Entry};
use crate::client::Client;
use crate::diagnostics;
use crate::request::Request;
use crate::respond::{Response, file};
use crate::route::Proxy;
use crate::trip::Trips;
use crate::worker::Worker;

/// How often contents whose time is over are let go of.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What was made ahead, for all workers. Its locks are taken by loops only and held for a look-up.
pub struct Store {
    kept: Cache<Box<[u8]>, Arc<Made>>,
    born: Instant,
    /// When the last sweep was, in seconds since `born`.
    swept_s: AtomicU64,
}

/// One content.
struct Made {
    entry: Arc<Entry>,
    root: Arc<Root>,
    until: Instant,
}

impl Store {
    /// For so many contents at once, each of which keeps a file open.
    pub fn new(files_max: usize) -> Self {
        Self {
            kept: Cache::new(files_max),
            born: Instant::now(),
            swept_s: AtomicU64::new(0),
        }
    }

    /// The answer to `request`, if it was made ahead for its client.
    pub fn answer(&self, request: &Request, client: &Client) -> Option<Response> {
        let asks = matches!(request.head.method, Method::Get | Method::Head)
            && request.head.framing == Framing::None;
        if !asks || self.kept.is_empty() {
            return None;
        }
        let made = self.kept.get(&*key(request, client, request.target()))?;
        if made.until <= Instant::now() {
            return None;
        }
        let hot = cache::Cache::uncached(made.entry.clone());
        Some(file::file(request, hot, None, made.root.file_system()))
    }

    /// Lets go of what is too old. To be called often: it looks at the clock first.
    pub fn sweep(&self, now: Instant) {
        let now_s = now.saturating_duration_since(self.born).as_secs();
        let last_s = self.swept_s.load(Ordering::Relaxed);
        let is_due = now_s >= last_s + SWEEP_INTERVAL.as_secs() && !self.kept.is_empty();
        let order = Ordering::Relaxed;
        let swap = |last_s| self.swept_s.compare_exchange(last_s, now_s, order, order);
        if is_due && swap(last_s).is_ok() {
            self.kept.retain(|_, made| made.until > now);
        }
    }
}

/// Who may have it, and what it is.
fn key(request: &Request, client: &Client, target: &[u8]) -> Box<[u8]> {
    let mut key = Vec::with_capacity(256);
    let mut add = |part: &[u8]| {
        // With its length, so that no two parts can be taken for others.
        key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        key.extend_from_slice(part);
    };
    add(request.host());
    add(target);
    add(client
        .ip
        .map(|ip| ip.to_string())
        .unwrap_or_default()
        .as_bytes());
    for name in ["cookie", "authorization"] {
        let values: Vec<_> = request.headers_named(name).collect();
        add(&(values.len() as u64).to_le_bytes());
        values.into_iter().for_each(&mut add);
    }
    key.into_boxed_slice()
}

/// Takes in what an answer to `request` names. Does not wait: the files are opened beside the answer.
pub fn take(
    values: &[Vec<u8>],
    request: &Request,
    client: &Client,
    proxy: &Arc<Proxy>,
    worker: &Rc<Worker>,
) {
    for value in values {
        let told = |reason: &dyn std::fmt::Display| {
            let (name, value) = (&proxy.upstream.settings.name, value.escape_ascii());
            diagnostics::say(format_args!(
                "upstream {name}: X-Sendfile-Ahead: {value}: {reason}"
            ));
        };
        match sendfile_header::ahead(value) {
            Err(reject) => told(&reject.reason),
            Ok(_) if proxy.temporary_roots.is_empty() => {
                told(&"the upstream has no `temporary_roots`");
            }
            Ok(ahead) => {
                let key = key(request, client, ahead.target);
                let keeping = keep(worker.clone(), proxy.clone(), key, value.clone());
                task::spawn_local(keeping);
            }
        }
    }
}

/// Opens one file and keeps it under `key`.
async fn keep(worker: Rc<Worker>, proxy: Arc<Proxy>, key: Box<[u8]>, value: Vec<u8>) {
    let since = Instant::now();
    let ahead = sendfile_header::ahead(&value).expect("it was read before");
    if let Err(reason) = open(&worker, &proxy, key, &ahead, since).await {
        let (name, path) = (&proxy.upstream.settings.name, ahead.path.escape_ascii());
        diagnostics::say(format_args!(
            "upstream {name}: X-Sendfile-Ahead: {path}: {reason}"
        ));
    }
}

async fn open(
    worker: &Rc<Worker>,
    proxy: &Proxy,
    key: Box<[u8]>,
    ahead: &Ahead<'_>,
    since: Instant,
) -> Result<(), String> {
    let mut beneath = root::beneath(&proxy.temporary_roots, &ahead.path);
    let beneath = beneath
        .pop()
        .ok_or("not beneath any of `temporary_roots`")?;
    let mut trips = Trips::new(worker, 0, Absences::default(), since);
    let opened = beneath.open(false, true, &mut trips).await;
    let opened = opened.map_err(|error| beneath.explain(&error))?;
    beneath.remove(worker, opened.file.clone());
    let meta = opened.file.meta();
    if meta.kind != Kind::Regular {
        return Err("it is no regular file".to_owned());
    }
    let form = file::Form {
        name: &beneath.path,
        coding: None,
        varies: false,
    };
    let mut entry = file::entry(form, meta, false, Content::File(opened.file));
    let media_type = ahead
        .media_type
        .unwrap_or(mime::of(&beneath.path).as_bytes());
    let mut fields = crate::respond::Fields::default();
    fields.add("Content-Type", media_type);
    fields.add("ETag", entry.etag.as_bytes());
    // It is one principal's, for now.
    fields.add("Cache-Control", b"private, no-cache");
    fields.add("Accept-Ranges", b"bytes");
    entry.fields = fields.as_bytes().to_vec();
    let made = Made {
        entry: Arc::new(entry),
        root: beneath.root,
        until: since + ahead.ttl,
    };
    worker.ahead.kept.insert(key, Arc::new(made));
    Ok(())
}
