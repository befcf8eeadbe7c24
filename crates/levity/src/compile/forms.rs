//! The forms of content: which codings responses get, and which compressed forms and digests of files are kept.

use std::sync::Arc;

use levity_config::{CacheRule, LocationOptions};
use levity_wire::encoding::Coding;
use levity_wire::http1;

use super::resources::Resources;
use crate::filter::compress::Compress;
use crate::route::location::{FileDigests, FileVariants};

/// Headers that decide whether, or in which form, content is compressed. The store does not see those that a route
/// changes.
const HEADERS_OF_FORMS: &[&str] = &[
    "content-encoding",
    "content-type",
    "etag",
    "vary",
    "cache-control",
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
];

/// The store for compressed forms of the location's files: not where a filter has to read them, or a route changes
/// headers of them.
pub fn variants(
    of: &levity_config::Location,
    compress: Option<&Arc<Compress>>,
    resources: &Resources<'_>,
) -> Option<FileVariants> {
    let forbids = |rule: &CacheRule| {
        let value = rule.value.as_deref().unwrap_or_default();
        value.to_ascii_lowercase().contains("no-transform")
    };
    let options = &of.options;
    if !options.substitute.is_empty()
        || of.headers.iter().any(changes_form)
        || options.cache.iter().any(forbids)
        || !of.path_headers.is_empty()
    {
        return None;
    }
    Some(FileVariants {
        store: resources.variants?.clone(),
        compress: compress?.clone(),
        with_dictionary: with_dictionary(&of.options),
    })
}

/// The digests of the location's files, if responses have them.
pub fn file_digests(
    options: &LocationOptions,
    compress: Option<&Arc<Compress>>,
    resources: &Resources<'_>,
) -> Option<FileDigests> {
    let store = resources.stores.digests.filter(|_| options.digest)?;
    Some(FileDigests {
        store: store.clone(),
        compress: compress.cloned(),
    })
}

fn changes_form(rules: &levity_config::Headers) -> bool {
    let mut written = rules.set.iter().chain(&rules.add);
    // Only this directive forbids the compression.
    let is_harmless = |name: &str, value: &str| {
        name.eq_ignore_ascii_case("cache-control")
            && !value.to_ascii_lowercase().contains("no-transform")
    };
    let is_one = |name: &str| http1::is_one_of(name.as_bytes(), HEADERS_OF_FORMS);
    written.any(|(name, value)| is_one(name) && !is_harmless(name, value))
        || rules.remove.iter().any(|name| is_one(name))
}

/// The codings that responses of the location may get.
pub fn compressed_codings(options: &LocationOptions) -> Vec<Coding> {
    let codings = options.compress_codings.iter();
    let codings = codings.filter(|_| options.compress);
    let codings = codings.map(|own| own.coding);
    codings.chain(with_dictionary(options)).collect()
}

/// The codings in which what lies at the location's paths may lie beside itself. Where nothing is sent they count too: a form is
/// no way to the rest.
pub fn precompressed_codings(of: &levity_config::Location) -> Vec<Coding> {
    let may_be_file = match &of.answer {
        Some(answer) => answer.refusal().is_some(),
        None => of.asks_files() || of.proxying.proxy.is_none(),
    };
    match may_be_file {
        true => of.options.precompressed.clone(),
        false => Vec::new(),
    }
}

fn with_dictionary(options: &LocationOptions) -> Vec<Coding> {
    let is_on = options.compress && options.compress_dictionaries;
    let codings = options.compress_codings.iter().filter(|_| is_on);
    codings
        .filter_map(|own| own.coding.with_dictionary())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_about_the_form_of_content_forbid_kept_forms() {
        let changes = |set: &[(&str, &str)], removed: &[&str]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            changes_form(&levity_config::Headers {
                set: set.iter().map(owned).collect(),
                remove: removed.iter().map(|name| (*name).to_owned()).collect(),
                ..Default::default()
            })
        };
        assert!(!changes(
            &[("X-A", "1"), ("Cache-Control", "max-age=9")],
            &["Server"]
        ));
        assert!(changes(
            &[("cache-control", "max-age=9, No-Transform")],
            &[]
        ));
        assert!(changes(&[("Content-Encoding", "identity")], &[]));
        assert!(changes(&[], &["etag"]));
        assert!(changes(&[("Content-Digest", "x")], &[]));
    }
}
