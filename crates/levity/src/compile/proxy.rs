//! How requests are handed to an upstream.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity_config::upstream::AmbiguousPaths;
use levity_config::{MailboxMode, MailboxProtocol, Symlinks, Try};
use tokio::sync::Semaphore;

use super::files::prefix;
use super::resources::Resources;
use crate::files::root::SendfileRoot;
use crate::mailboxes::set::MailboxSet;
use crate::route::location::Files;
use crate::stores::preloads::PreloadStore;
use crate::upstream::Upstream;
use crate::upstream::proxy::{Proxy, Resume};

/// The maximum number of events of a stream that are kept for clients that come back. To list so many takes a
/// millisecond.
const RESUMED_EVENTS_MAX: usize = 20_000;

/// The maximum number of receivers of such a stream: its client, on an old and a new connection.
const RESUMED_RECEIVERS_MAX: usize = 4;

/// The proxy of a location, if requests may get to an upstream.
pub fn proxy(
    of: &levity_config::Location,
    files: Option<&Files>,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Arc<Proxy>>> {
    let proxying = &of.proxying;
    let Some(name) = &proxying.proxy else {
        return Ok(None);
    };
    let tries = proxying.tries.as_deref().unwrap_or(&[Try::Proxy]);
    if !tries.contains(&Try::Proxy) {
        return Ok(None);
    }
    let upstream = resources.upstream(name);
    let body_bytes = proxying.body_bytes;
    let ambiguous = proxying.ambiguous_paths;
    let mut request_headers = of.request_headers.clone();
    request_headers
        .remove
        .extend(resources.reserved.iter().cloned());
    let reproxy = upstream.settings.reproxy.iter();
    let reserved = resources.reserved.clone();
    let reproxy = reproxy.map(|name| resources.delegation_target(name, &reserved));
    Ok(Some(Arc::new(Proxy {
        reproxy: reproxy.collect::<io::Result<_>>()?,
        sendfile_roots: resources.sendfile_roots(&upstream.settings.sendfile_roots)?,
        temporary_roots: resources.sendfile_roots(&upstream.settings.temporary_roots)?,
        preloads: resources.preloads(&upstream),
        upstream,
        files_first: tries.iter().any(Try::asks_files),
        strip_prefix: prefix(of).to_vec(),
        passes_ambiguous: ambiguous == Some(AmbiguousPaths::Pass),
        document_root: files.map(|files| files.root.clone()),
        script_root: proxying.script_root.clone(),
        params: proxying.params.clone(),
        body_bytes_max: body_bytes.unwrap_or(resources.body_bytes) as u64,
        request_id: resources.request_id.clone(),
        request_headers,
        rewrite: of.rewrite.clone(),
        mailboxes: of
            .mailbox_headers
            .map(|number| resources.mailboxes[number].clone()),
        resume: of.resume.as_ref().map(|of| resources.resume(of)),
    })))
}

impl Resources<'_> {
    /// An upstream that gets delegated requests, without the headers in `remove`. It may delegate files itself, but not
    /// requests.
    pub fn delegation_target(&mut self, name: &str, remove: &[String]) -> io::Result<Arc<Proxy>> {
        let upstream = self.upstream(name);
        Ok(Arc::new(Proxy {
            files_first: false,
            strip_prefix: Vec::new(),
            passes_ambiguous: false,
            body_bytes_max: 0,
            request_id: self.request_id.clone(),
            request_headers: levity_config::Headers {
                remove: remove.to_vec(),
                ..levity_config::Headers::default()
            },
            rewrite: levity_config::Rewrite::default(),
            sendfile_roots: self.sendfile_roots(&upstream.settings.sendfile_roots)?,
            temporary_roots: self.sendfile_roots(&upstream.settings.temporary_roots)?,
            preloads: self.preloads(&upstream),
            document_root: None,
            script_root: None,
            params: Vec::new(),
            reproxy: Vec::new(),
            mailboxes: None,
            resume: None,
            upstream,
        }))
    }

    /// The boxes in which streams are kept.
    fn resume(&self, of: &levity_config::Resume) -> Arc<Resume> {
        let set = levity_config::Mailbox {
            name: Resume::SET.to_owned(),
            mode: MailboxMode::Topic,
            message_bytes: of.bytes,
            messages: RESUMED_EVENTS_MAX,
            bytes: of.bytes,
            lifetime: None,
            idle: of.keep,
            boxes: usize::MAX,
            receivers: RESUMED_RECEIVERS_MAX,
            receivers_per_client: usize::MAX,
            publishes_per_second: usize::MAX,
            durable: false,
            heartbeat: Duration::from_secs(15),
            retry: Duration::from_secs(3),
            rotate: Duration::from_secs(3600),
            publish_key: None,
            grip_key: None,
            unread: Vec::new(),
            origins: None,
            claim: None,
            protocol: MailboxProtocol::Mailbox,
        };
        Arc::new(Resume {
            of: of.clone(),
            set: MailboxSet::new(&set, self.shared_resume),
            permits: Arc::new(Semaphore::new(of.streams)),
        })
    }

    fn sendfile_roots(&mut self, folders: &[PathBuf]) -> io::Result<Vec<SendfileRoot>> {
        let open = |folder: &PathBuf| {
            Ok(SendfileRoot {
                root: self.roots.open(folder, Symlinks::Beneath)?,
                named: folder.clone(),
            })
        };
        folders.iter().map(open).collect()
    }

    fn preloads(&self, upstream: &Upstream) -> Option<Arc<PreloadStore>> {
        let may_fill = !upstream.settings.temporary_roots.is_empty();
        self.stores.preloads.filter(|_| may_fill).cloned()
    }
}
