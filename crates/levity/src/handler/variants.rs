//! Serves files in a form that a store keeps: compressed, or as the delta from what the client has.

use std::io;
use std::rc::Rc;

use levity_disk::Ready;
use levity_wire::dictionary::{self, Digest};
use levity_wire::encoding::{Accepted, Coding};
use levity_wire::http1::Method;

use super::Handling;
use crate::files::cache::EntryRef;
use crate::files::disk_client::DiskClient;
use crate::files::entry::{Entry, Original};
use crate::http::response::Response;
use crate::message::request::Request;
use crate::resolve::servable::object::ServableFile;
use crate::resolve::{self, Found};
use crate::respond;
use crate::route::{FileVariants, Files};
use crate::stores::variants::store::VariantStore;
use crate::stores::variants::{DICTIONARY_BYTES_MAX, Kind, Name, Resource, Stored, Wanted};
use crate::worker::Worker;

/// The request headers that select the form of a file where dictionaries are on (RFC 9842, 6.2).
const VARY: &[u8] = b"Accept-Encoding, Available-Dictionary";

/// A form of a file, with the bytes of it that were read already, and their offset.
type WithBytes = (Rc<EntryRef>, Option<(u64, Ready)>);

/// How a response can use dictionaries.
struct Dictionaries {
    resource: Resource,
    /// The dictionary that the client has, and the coding that it prefers. A browser accepts such codings only in a request
    /// for which it has a dictionary.
    available: Option<(Digest, Coding)>,
}

impl Handling<'_> {
    /// The response of `file`, found for `request` at a path in `files`, in the best form that is kept.
    pub(super) async fn in_kept_form(
        &mut self,
        request: &Request,
        (files, path): (&Files, &[u8]),
        variants: &FileVariants,
        file: ServableFile,
    ) -> Response {
        let cached = file.cached().clone();
        let dictionaries = dictionaries(request, (files, path), variants, &cached.entry);
        let kept = self.kept_form(request, variants, &cached, dictionaries.as_ref());
        let mut response = match kept.await {
            Some((variant, ready)) => respond::file::file(request, file.in_form(variant, ready)),
            None => respond::file::file(request, file),
        };
        if let Some(digests) = &files.digests {
            // Boxed, as other rare parts.
            Box::pin(self.add_digests(request, digests, &mut response)).await;
        }
        if let Some(dictionaries) = dictionaries {
            self.announce(
                request,
                variants,
                &cached.entry,
                &dictionaries,
                &mut response,
            );
        }
        response
    }

    /// The form to send in place of `cached`. If there is none, but the client would take one, the request counts
    /// towards making one.
    async fn kept_form(
        &mut self,
        request: &Request,
        variants: &FileVariants,
        cached: &EntryRef,
        dictionaries: Option<&Dictionaries>,
    ) -> Option<WithBytes> {
        let original = &cached.entry;
        // The client may have the file as it was compressed on its way, or as it is.
        let names_original = request.header("if-match").is_some();
        if !variants.compress.applies_to_file(original)
            || names_original
            || respond::file::is_current(request, cached)
        {
            return None;
        }
        let coding = variants.compress.coding(request);
        let variant = match coding {
            Some(coding) => {
                let original = as_original(original, coding, None);
                let name = Name::of(&original.entry.meta, coding);
                self.find(request, variants, original, name).await
            }
            None => None,
        };
        // What the client has goes before what it could get.
        let is_current = |(variant, _): &WithBytes| respond::file::is_current(request, variant);
        if variant.as_ref().is_some_and(is_current) {
            return variant;
        }
        if let Some(dictionaries) = dictionaries
            && let Some(delta) = self.delta(request, variants, original, dictionaries).await
        {
            return Some(delta);
        }
        if variant.is_none() {
            self.want(request, variants, original, Wanted::Variant(coding?));
        }
        variant
    }

    /// The delta of `original` from the dictionary that the client has.
    async fn delta(
        &mut self,
        request: &Request,
        variants: &FileVariants,
        original: &Entry,
        dictionaries: &Dictionaries,
    ) -> Option<WithBytes> {
        let resource = dictionaries.resource;
        let (digest, coding) = dictionaries.available?;
        let dictionary = variants.store.dictionary(resource, digest);
        let name = Name::of_delta(&original.meta, coding, digest);
        let as_delta = as_original(original, coding, Some(digest));
        let delta = self.find(request, variants, as_delta, name).await;
        if let Some(dictionary) = dictionary
            && delta.is_none()
            && dictionary.name != Name::of_dictionary(&original.meta, resource)
        {
            let wanted = Wanted::Delta(coding, digest, dictionary);
            self.want(request, variants, original, wanted);
        }
        delta
    }

    /// A file of the store, if it is there, and the request does not ask for a range of another one.
    async fn find(
        &mut self,
        request: &Request,
        variants: &FileVariants,
        original: Original<'_>,
        name: Name,
    ) -> Option<WithBytes> {
        let found = Box::pin(async {
            let store = &variants.store;
            let found = find(self.worker, store, original, name, &mut self.disk);
            let found = found.await;
            if let Some(Found::File(variant, _)) = &found {
                self.find_content_etag(variant).await;
            }
            found
        });
        match found.await {
            Some(Found::File(variant, ready)) => {
                is_wanted(request, &variant).then_some((variant, ready))
            }
            _ => None,
        }
    }

    /// Counts the request towards making what it could have been answered with.
    fn want(&self, request: &Request, variants: &FileVariants, original: &Entry, wanted: Wanted) {
        if request.head.method == Method::Get {
            let counted = (&self.worker.core, &self.worker.candidates);
            variants.store.requested(counted, original, wanted);
        }
    }

    /// Tells the client that it may use the content as a dictionary, if the store can use it too.
    fn announce(
        &self,
        request: &Request,
        variants: &FileVariants,
        original: &Entry,
        dictionaries: &Dictionaries,
        response: &mut Response,
    ) {
        let resource = dictionaries.resource;
        response.merge_base();
        let fields = &mut response.fields;
        fields.remove("vary");
        fields.add("Vary", VARY);
        if response.status != 200 {
            return;
        }
        let store = &variants.store;
        if !store.is_dictionary(original, resource) {
            self.want(request, variants, original, Wanted::Dictionary(resource));
        } else if let Some(value) = dictionary::use_as(request.sent_raw_path()) {
            fields.add("Use-As-Dictionary", &value);
        }
    }
}

fn as_original(entry: &Entry, coding: Coding, dictionary: Option<Digest>) -> Original<'_> {
    Original {
        entry,
        coding,
        dictionary,
    }
}

/// `None` where dictionaries are off, and for a file that is not compressed or too large.
fn dictionaries(
    request: &Request,
    (files, path): (&Files, &[u8]),
    variants: &FileVariants,
    original: &Entry,
) -> Option<Dictionaries> {
    let offered = &variants.with_dictionary;
    let may_use = !offered.is_empty()
        && original.meta.size <= DICTIONARY_BYTES_MAX
        && variants.compress.applies_to_file(original);
    if !may_use {
        return None;
    }
    let root = files.root.last();
    let root = root.named().as_os_str().as_encoded_bytes();
    Some(Dictionaries {
        resource: Resource::of(root, path),
        available: available(request, offered),
    })
}

fn available(request: &Request, offered: &[Coding]) -> Option<(Digest, Coding)> {
    let digest = dictionary::available(request.header("available-dictionary")?)?;
    let accepted = Accepted::parse(request.headers_named("accept-encoding"));
    let coding = *accepted.choices(offered).first()?;
    Some((digest, coding))
}

/// Whether a range is meant to be one of `variant`: only if the client names it. Without If-Range it may be the
/// continuation of the file itself.
fn is_wanted(request: &Request, variant: &EntryRef) -> bool {
    request.header("range").is_none() || respond::file::names_version(request, variant)
}

/// The variant called `name`, with bytes that were read already and their offset. `None` if there is none; one that
/// has been removed from the folder is forgotten.
async fn find(
    worker: &Worker,
    store: &VariantStore,
    original: Original<'_>,
    name: Name,
    disk: &mut DiskClient<'_>,
) -> Option<Found> {
    if !store.touch(name) {
        return None;
    }
    let content_type = original.entry.fields.value("content-type");
    let cache_key = name.cache_key(content_type.unwrap_or_default());
    let kind = Kind::Coded(original.coding);
    let path = Stored { name, kind }.file_name();
    let path = path.as_bytes();
    let found = resolve::variant(worker, store.root(), &cache_key, path, original, disk).await;
    match found {
        Ok(found @ Found::File(..)) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            store.forget(name);
            None
        }
        // The disk of the store may be busy or fail: the file is compressed on its way meanwhile.
        _ => None,
    }
}
