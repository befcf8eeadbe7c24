//! How a location asks an upstream.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Upstream;
use crate::files::root::{LiveRoot, SendfileRoot};
use crate::mailboxes::set::MailboxSet;
use crate::stores::preloads::PreloadStore;

/// How event streams of an application are kept for clients that come back.
pub struct Resume {
    /// As configured.
    pub of: levity_config::Resume,
    /// The boxes that the streams are kept in.
    pub set: Arc<MailboxSet>,
    /// The rights to keep further streams.
    pub permits: Arc<Semaphore>,
}

impl Resume {
    /// The name of the set, which none of the configuration can have.
    pub const SET: &'static str = "~resume";
}

/// How a location proxies requests.
#[derive(Clone)]
pub struct Proxy {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Files beneath the root go before it.
    pub files_first: bool,
    /// The prefix that is stripped from the path, with its leading slash.
    pub strip_prefix: Vec<u8>,
    /// Forwards paths that an application may read as paths of another location.
    pub passes_ambiguous: bool,
    /// The root of the location's files; `None` when it has none.
    pub document_root: Option<Arc<LiveRoot>>,
    /// The path of that root for the application, if it has another one there.
    pub script_root: Option<String>,
    /// Variables for applications that get a request as such, in place of those of the same name.
    pub params: Vec<(String, String)>,
    /// The maximum size of a request body in bytes.
    pub body_bytes_max: u64,
    /// The header with the id of the request, in lower case, if it is sent.
    pub request_id: Option<String>,
    /// Request headers to set, add and remove.
    pub request_headers: levity_config::Headers,
    /// Rewriting of Location and Set-Cookie.
    pub rewrite: levity_config::Rewrite,
    /// Folders whose files the application may delegate.
    pub sendfile_roots: Vec<SendfileRoot>,
    /// Folders whose files the application may delegate to be sent and removed.
    pub temporary_roots: Vec<SendfileRoot>,
    /// The store of content that the application preloads; `None` without `temporary_roots`.
    pub preloads: Option<Arc<PreloadStore>>,
    /// Upstreams that the application may delegate a request to.
    pub reproxy: Vec<Arc<Proxy>>,
    /// The mailboxes that headers of its responses refer to; `None` if they have no effect.
    pub mailboxes: Option<Arc<MailboxSet>>,
    /// How its event streams are kept for clients that come back.
    pub resume: Option<Arc<Resume>>,
}

impl Proxy {
    /// The Host for the application, if the route sets it.
    pub fn host_set(&self) -> Option<&[u8]> {
        let mut set = self.request_headers.set.iter();
        let (_, host) = set.find(|(name, _)| name.eq_ignore_ascii_case("host"))?;
        Some(host.as_bytes())
    }

    /// The folder of the location's files as the application knows it; empty when there is none.
    pub fn document_root(&self) -> Vec<u8> {
        if let Some(path) = &self.script_root {
            return path.as_bytes().to_vec();
        }
        let root = self.document_root.as_ref().map(|root| root.last());
        root.map_or_else(Vec::new, |root| root.path().as_os_str().as_bytes().to_vec())
    }
}
