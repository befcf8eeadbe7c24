//! The keys that sites and routes have in common: a route inherits those that it does not give.

use levity_disk::{Changes, Direct};
use levity_wire::encoding::Coding;
use strum::{EnumString, VariantNames};
use toml::de::DeTable;

use crate::cache_control::{self, CacheRule};
use crate::compress::{self, CompressCoding};
use crate::error_pages::{self, Statuses};
use crate::listing_archive::{self, ArchiveForm};
use crate::media_types::{self, MediaTypes};
use crate::name_pattern::{self, NamePattern};
use crate::reader::Reader;
use crate::schema::{Key, Kind, Schema, documented, key, table, without_defaults};
use crate::section::Section;
use crate::source::Source;
use crate::substitute;

/// Makes the struct, its defaults, the keys of sites and routes and their reference from one list.
macro_rules! options {
    ($($(#[doc = $doc:literal])+
       $name:ident: $type:ty = $read:path, $kind:expr, $default:literal;)+) => {
        /// Keys that sites and routes have in common, with the values that apply there.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct LocationOptions {
            $($(#[doc = $doc])+ pub $name: $type,)+
            /// How files are read.
            pub disk: LocationDisk,
        }

        /// As keys of a site.
        pub(crate) const KEYS: &[Key] = documented! {$(
            $(#[doc = $doc])+
            key(stringify!($name), $kind, Some($default));
        )+};

        impl LocationOptions {
            /// Gives the keys that `is_dropped` names their defaults.
            pub(crate) fn drop(&mut self, is_dropped: impl Fn(&str) -> bool) {
                let names = [$(stringify!($name)),+];
                if names.into_iter().any(&is_dropped) {
                    let defaults = Self::default();
                    $(if is_dropped(stringify!($name)) {
                        self.$name = defaults.$name;
                    })+
                }
                if is_dropped("disk") {
                    self.disk = LocationDisk::default();
                }
            }

            /// The values that `section` gives, and those of `above` for the others.
            fn take(section: &Section<'_>, above: Option<&Self>, disk: LocationDisk) -> Self {
                Self {
                    $($name: own_or_above(
                        $read(section, stringify!($name)),
                        above.map(|above| &above.$name),
                    ),)+
                    disk,
                }
            }
        }
    };
}

options! {
    /// Whether a folder without an index file is answered with a list of its contents: as a page, or as JSON, lines of JSON
    /// or text for clients that [ask for it](tasks/listings.md).
    listing: bool = Section::boolean, Kind::Boolean, "false";
    /// The forms in which a folder that is listed can be had as one file, with all folders in it: `"tar"`, `"zip"`. It is
    /// sent for `?archive=tar`. Files that requests would not get are left out, and what other routes answer.
    /// [More](tasks/listings.md) on it.
    listing_archive: Vec<ArchiveForm> = listing_archive::forms, Kind::Names, "[]";
    /// File names that are neither listed nor served, besides those that begin with a dot: requests for them, and for what
    /// is in a folder of that name, get 404. `*` stands for any text, `?` for one character: `["*.bak", "private"]`. A file
    /// that is hidden may still be an index file, or the precompressed form of another.
    hide: Vec<NamePattern> = name_pattern::hidden, Kind::Names, "[]";
    /// File names with a leading dot that are listed and served all the same, as in `[".config", ".*.png"]`. Those in
    /// `hide` are not. `.well-known` always is.
    show: Vec<NamePattern> = name_pattern::shown, Kind::Names, "[]";
    /// Names of index files; the first one that exists in a folder is served. An empty list turns index files off.
    index: Vec<String> = file_names, Kind::Names, "[\"index.html\"]";
    /// Codings in which a precompressed file may lie beside a file, in order of preference: `"zstd"` is NAME.zst, `"br"`
    /// NAME.br, `"gzip"` NAME.gz. It is sent to clients that accept its coding, unless it was modified in an earlier
    /// second than the file. The file itself must exist. `levity precompress` makes such files.
    precompressed: Vec<Coding> = compress::precompressed, Kind::Names, "[]";
    /// Whether responses are compressed on their way: files, listings, responses of applications, error pages. Not those
    /// that have a coding already, have no media type of `compress_types`, or say `no-transform`; nor ranges.
    compress: bool = Section::boolean, Kind::Boolean, "false";
    /// The codings that responses may get, in order of preference, each with a level if its default is not wanted:
    /// `"br:5"`. zstd has levels 1 to 19 (3), br 0 to 11 (4), gzip 1 to 9 (4). High levels cost much time.
    compress_codings: Vec<CompressCoding> = compress::codings, Kind::Names, "[\"zstd\", \"br\", \"gzip\"]";
    /// The media types that are compressed. A `*` at the start or end of a subtype stands for any text, and `"*/*"` for
    /// every type. Content without a type is not compressed.
    compress_types: Vec<MediaTypes> = media_types::list, Kind::Names,
        "[\"text/*\", \"application/json\", \"application/*+json\", \"application/javascript\", \"application/xml\", \"application/*+xml\", \"application/wasm\", \"application/x-ndjson\", \"application/vnd.ms-fontobject\", \"image/svg+xml\", \"image/bmp\", \"image/x-icon\", \"font/ttf\", \"font/otf\"]";
    /// Shorter responses are not compressed; a response of unknown length is.
    compress_min_bytes: usize = Section::optional_count, Kind::Size("0B", "1GiB"), "256B";
    /// Whether a browser that has an earlier version of a file gets only the delta from it, where `compress` is on and
    /// `[disk]` has `variants`. The delta has one of the codings `dcz` and `dcb` (RFC 9842), by those in
    /// `compress_codings`. Deltas are made of popular files of up to 4 MiB while processors are idle.
    /// [How](tasks/deltas.md) it works with caches.
    compress_dictionaries: bool = Section::boolean, Kind::Boolean, "false";
    /// Pages in place of the built-in ones, status = "path": `{ 404 = "/404.html", 5xx = "/sorry.html" }`. The first that
    /// fits is sent, with the status of the error. A path is that of a file beneath `root`; if it cannot be sent, the
    /// built-in page is. A route that has the key has none of the site's pages. A `respond` with a `body` is left alone.
    error_pages: Vec<(Statuses, String)> = error_pages::pages, Kind::Pairs, "{}";
    /// Errors of an upstream that are replaced too, such as `["404", "5xx"]`: by `error_pages`, or else by the built-in
    /// page. Its headers are kept, except those about the content.
    replace_errors: Vec<Statuses> = error_pages::list, Kind::Names, "[]";
    /// How long clients and caches may keep content: a value for everything, or what = "value", where the first that fits
    /// counts: `{ hashed = "immutable", "text/html" = "no-cache", "image/*" = "30d" }`. A value is a duration, `"no-cache"`
    /// (ask each time), `"no-store"`, `"immutable"` (a year, without asking again), `"off"`, or all of a `Cache-Control`.
    /// `hashed` are names with a hash of the content, as [build tools](tasks/headers.md) write them: `app.3f2a9c1b.js`,
    /// `/assets/index-DiwrgTda.css`. Not for errors, nor for responses of an upstream and what it hands over, nor where a
    /// `Cache-Control` is set already.
    cache: Vec<CacheRule> = cache_control::rules, Kind::TextOrPairs, "{}";
    /// Whether responses have the headers that most sites want: `X-Content-Type-Options: nosniff`,
    /// `Referrer-Policy: strict-origin-when-cross-origin` and `X-Frame-Options: SAMEORIGIN`. Those that an upstream has sent
    /// stay.
    security_headers: bool = Section::boolean, Kind::Boolean, "false";
    /// Whether responses with files have a digest of the file if the client wants one (`Want-Repr-Digest`,
    /// `Want-Content-Digest`: `sha-256` and `sha-512`, RFC 9530). The digest of a file that is not in memory is made
    /// after the first such request, and kept as long as the file does not change.
    /// [How](tasks/digests.md) it works with compression and ranges.
    digest: bool = Section::boolean, Kind::Boolean, "false";
    /// Symbolic links that are followed: only those that stay beneath the root, or all. An absolute link stays there if its
    /// target begins with the path of the root.
    symlinks: Symlinks = Section::word, Kind::Word(Symlinks::VARIANTS), "beneath";
    /// Whether responses have a `Server-Timing` header with the time of each step, which browsers show. Every client
    /// can then find out what was in memory.
    server_timing: bool = Section::boolean, Kind::Boolean, "false";
    /// Text that is replaced in the content of responses, found = "replacement", such as
    /// `{ "http://a.internal/" = "/" }`. Bytes are compared, with case. Where several pairs match, the earliest match is
    /// replaced; at the same place the longest. Replacements are not searched. At most 64 pairs, with up to 1 KiB to find
    /// and up to 16 KiB to put there. A route that has the key has none of the site's pairs. [How](tasks/replace-text.md)
    /// it works with ranges, caches and compressed responses.
    substitute: Vec<(String, String)> = substitute::pairs, Kind::Pairs, "{}";
    /// Media types in which `substitute` replaces text; `"text/*"` stands for all that begin so, `"*/*"` for every type.
    substitute_types: Vec<MediaTypes> = media_types::list, Kind::Names, "[\"text/html\"]";
}

/// As keys of a route, whose default is the value of the site.
pub(crate) const INHERITED_KEYS: [Key; KEYS.len()] = without_defaults(KEYS);

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Symlinks {
    /// Those that stay beneath the root.
    Beneath,
    /// Every one.
    Follow,
}

/// `[site.disk]` and `[site.route.disk]`: how files are read there. `None` is the value of `[disk]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocationDisk {
    /// The name of an engine of [`levity_disk`], or `auto`.
    pub engine: Option<String>,
    /// Bytes per read, a multiple of 4096.
    pub chunk_bytes: Option<usize>,
    /// Whether reads go past the page cache.
    pub direct: Option<Direct>,
    /// How files change.
    pub changes: Option<Changes>,
}

impl LocationDisk {
    fn or(self, above: &Self) -> Self {
        Self {
            engine: self.engine.or_else(|| above.engine.clone()),
            chunk_bytes: self.chunk_bytes.or(above.chunk_bytes),
            direct: self.direct.or(above.direct),
            changes: self.changes.or(above.changes),
        }
    }
}

impl Default for LocationOptions {
    /// The defaults of the keys.
    fn default() -> Self {
        const SCHEMA: Schema = Schema(&[table("", KEYS)]);
        let lines = KEYS
            .iter()
            .filter_map(|key| Some(format!("{} = {}\n", key.name, key.written_default()?)));
        let text: String = lines.collect();
        let (document, _) = DeTable::parse_recoverable(&text);
        let reader = Reader::new(Source::new(&text, None), SCHEMA);
        let section = Section::root(&reader, document.get_ref());
        Self::take(&section, None, LocationDisk::default())
    }
}

/// Reads the keys of a site or route. `disk` is its table of that name. A key that is absent or wrong has its value
/// from `above`: the options of the site around a route, or the defaults.
pub(crate) fn read(
    section: &Section<'_>,
    disk: LocationDisk,
    above: &LocationOptions,
) -> LocationOptions {
    LocationOptions::take(section, Some(above), disk.or(&above.disk))
}

fn own_or_above<T: Clone>(own: Option<T>, above: Option<&T>) -> T {
    own.or_else(|| above.cloned())
        .expect("the default of each key is valid")
}

fn file_names(section: &Section<'_>, name: &str) -> Option<Vec<String>> {
    let mut files = Vec::new();
    for given in section.names(name)? {
        let text = given.text;
        if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) {
            given.refuse(format!("`{text}` is not a file name"));
        }
        files.push(text.to_owned());
    }
    Some(files)
}
