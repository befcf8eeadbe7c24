//! What a service keeps across reloads, and the spool folder.

use std::io;
use std::sync::Arc;

use levity_config::in_unit::remedy;
use levity_config::{Config, Etag};
use levity_disk::{Disk, ReadOptions, Spool, patiently};
use levity_telemetry::diagnostics;

use super::roots::Roots;
use crate::route::Service;
use crate::route::location::SpoolFolder;
use crate::stores::digests::store::DigestStore;
use crate::stores::preloads::PreloadStore;
use crate::stores::uploads::store::UploadStore;

/// Stores whose content stays at a reload.
pub struct Stores<'a> {
    /// Content that applications have preloaded.
    pub preloads: Option<&'a Arc<PreloadStore>>,
    /// Digests of files.
    pub digests: Option<&'a Arc<DigestStore>>,
    /// Uploads.
    pub uploads: &'a [Arc<UploadStore>],
}

/// The spool folder, or why there is none.
pub enum OpenedSpool {
    /// It is open.
    Open(SpoolFolder),
    /// Nothing needs it.
    Unneeded,
    /// It does not respond. What does not fit into memory is refused.
    Silent,
}

impl OpenedSpool {
    /// Whether it does not respond.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Silent)
    }

    /// The folder.
    pub fn opened(self) -> Option<SpoolFolder> {
        match self {
            Self::Open(folder) => Some(folder),
            Self::Unneeded | Self::Silent => None,
        }
    }
}

/// Opens the spool folder if an upstream needs it. Upstreams that need the length of a body in advance can
/// use it too, but do without it if it cannot be opened.
pub fn spool(config: &Config, disk: &Disk) -> io::Result<OpenedSpool> {
    let upstreams = &config.upstreams;
    let is_needed = upstreams.iter().any(|upstream| upstream.buffer_requests);
    let is_useful = upstreams.iter().any(|upstream| upstream.protocol.is_cgi());
    if !is_needed && !is_useful {
        return Ok(OpenedSpool::Unneeded);
    }
    let path = &config.disk.spool;
    let opened = patiently(path, Spool::open).and_then(|opened| opened);
    let spool = match opened {
        Err(_) if !is_needed => return Ok(OpenedSpool::Unneeded),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let path = path.display();
            diagnostics::log(format_args!(
                "disk.spool {path} {error}; what does not fit into memory gets 503 until it does"
            ));
            return Ok(OpenedSpool::Silent);
        }
        opened => opened.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "disk.spool {}: {error}{}",
                    path.display(),
                    remedy(path, &error)
                ),
            )
        })?,
    };
    let engine = disk.engine_for("threads").map_err(io::Error::other)?;
    let read_options = ReadOptions {
        engine,
        ..ReadOptions::default()
    };
    Ok(OpenedSpool::Open(SpoolFolder {
        spool,
        read_options,
    }))
}

/// The store of preloaded content, if an upstream needs it. It holds at most `files_max` files. That of `old` is kept
/// with its content, also while no upstream needs it, so that there are never two stores.
pub fn preloads(
    config: &Config,
    files_max: usize,
    old: Option<&Service>,
) -> Option<Arc<PreloadStore>> {
    let old = old.and_then(|old| old.preloads.clone());
    let mut upstreams = config.upstreams.iter();
    let is_needed = upstreams.any(|upstream| !upstream.temporary_roots.is_empty());
    old.or_else(|| is_needed.then(|| Arc::new(PreloadStore::new(files_max))))
}

/// The store of digests, if a location or the ETags of files need it. That of `old` is kept with its content.
pub fn digests(config: &Config, old: Option<&Service>) -> Option<Arc<DigestStore>> {
    let mut locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let is_needed =
        config.server.etag == Etag::Content || locations.any(|location| location.options.digest);
    let old = old.and_then(|old| old.digests.clone());
    old.or_else(|| is_needed.then(Arc::default))
}

/// The uploads beneath each root that takes some. Those of `old` are kept. Blocks.
pub fn uploads(config: &Config, roots: &mut Roots, old: Option<&Service>) -> Vec<Arc<UploadStore>> {
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let with_uploads = locations.filter(|location| location.upload.is_some());
    let mut stores: Vec<Arc<UploadStore>> = Vec::new();
    for root in with_uploads.filter_map(|location| roots.resolved(location.root.as_ref()?)) {
        if !stores.iter().any(|store| store.root() == &*root) {
            let mut old = old.iter().flat_map(|old| &old.uploads);
            let kept = old.find(|store| store.root() == &*root).cloned();
            stores.push(kept.unwrap_or_else(|| UploadStore::new(&root)));
        }
    }
    stores
}
