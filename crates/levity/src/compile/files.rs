//! The files of a location, and the pages for its errors.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::forms::{file_digests, variants};
use super::number;
use super::resources::{Resources, SiteParts};
use super::scripts::scripts;
use crate::files::scripts::Scripts;
use crate::filter::compress::Compress;
use crate::route::location::{ErrorPages, Files, NameRules};

/// The prefix that a location strips from paths.
pub fn prefix(of: &levity_config::Location) -> &[u8] {
    of.strip_prefix.as_deref().unwrap_or_default().as_bytes()
}

/// The files of a location, if it has a root. Blocks.
pub fn files(
    of: &levity_config::Location,
    site: &SiteParts,
    compress: Option<&Arc<Compress>>,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Files>> {
    let Some(root) = &of.root else {
        return Ok(None);
    };
    let options = &of.options;
    let scripts = scripts(of).or_else(|| site.has_php.then(Scripts::guarded));
    let is_source = |name: &[u8]| {
        let scripts = scripts.as_ref();
        scripts.is_some_and(|scripts| scripts.is_source(name))
    };
    let reading = resources.reading(options);
    Ok(Some(Files {
        root: resources.roots.open(root, options.symlinks)?,
        index: options
            .index
            .iter()
            .map(|name| name.clone().into_bytes())
            .filter(|name| !is_source(name))
            .collect(),
        scripts,
        precompressed: options.precompressed.clone(),
        listing: options.listing,
        archives: options.listing_archive.clone(),
        names: Arc::new(NameRules {
            hidden: options.hide.clone(),
            shown: options.show.clone(),
        }),
        strip_prefix: prefix(of).to_vec(),
        only: site.only.clone(),
        read_options: resources.read_options(&reading)?,
        chunk_bytes: reading.chunk_bytes,
        variants: variants(of, compress, resources),
        digests: file_digests(options, compress, resources),
        uploads: resources.uploads(root),
    }))
}

/// The pages for the errors of a location, if it has some.
pub fn error_pages(
    of: &levity_config::Location,
    location: u32,
    files: Option<&Arc<Files>>,
    site: &SiteParts,
    resources: &mut Resources<'_>,
) -> io::Result<Option<ErrorPages>> {
    let options = &of.options;
    if options.error_pages.is_empty() && options.replace_errors.is_empty() {
        return Ok(None);
    }
    let files = match of.error_pages_root == of.root {
        true => files.cloned(),
        false => files_of_pages(of, site, resources)?,
    };
    // Of another root, which a key of this location could not tell from its own.
    let number = match of.error_pages_root == of.root {
        true => location,
        false => number(),
    };
    let prefix = files.as_ref().map_or(&[][..], |files| &files.strip_prefix);
    let pages = options.error_pages.iter();
    let pages = pages.map(|(statuses, path)| (*statuses, [prefix, path.as_bytes()].concat()));
    Ok(Some(ErrorPages {
        location: number,
        pages: pages.collect(),
        files,
        replaced: options.replace_errors.clone(),
        has_logged: AtomicBool::new(false),
    }))
}

/// The files among which the pages of a location are that has inherited them, and has another root.
fn files_of_pages(
    of: &levity_config::Location,
    site: &SiteParts,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Arc<Files>>> {
    let there = levity_config::Location {
        root: of.error_pages_root.clone(),
        strip_prefix: None,
        ..of.clone()
    };
    Ok(files(&there, site, None, resources)?.map(Arc::new))
}
