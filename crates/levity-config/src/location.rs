//! The keys that sites and routes have in common.

use std::path::{Path, PathBuf};

use levity_disk::patiently;

use crate::acme::Acme;
use crate::address::Address;
use crate::disk::location_disk;
use crate::gates::Gates;
use crate::location_options::{self, LocationOptions};
use crate::log::Logs;
use crate::mailbox::read::Mailboxes;
use crate::matcher::Matcher;
use crate::model::{Answer, Location, Route};
use crate::pattern::Pattern;
use crate::proxying::{self, Reach};
use crate::rate_limit::RateLimits;
use crate::root::OwnFolder;
use crate::section::Section;
use crate::tries::Try;
use crate::upload::Upload;
use crate::upstream::Proxying;
use crate::upstream::read::Upstreams;
use crate::{answer, cors, gates, headers, limits, listing_archive, resume, root, upload};

/// What sites refer to elsewhere in the file.
#[derive(Clone, Copy)]
pub(crate) struct References<'a> {
    pub(crate) upstreams: &'a Upstreams,
    pub(crate) mailboxes: &'a Mailboxes,
    /// `disk.variants`
    pub(crate) variants: Option<&'a Path>,
    /// `mailbox_store.folder`
    pub(crate) messages: Option<&'a Path>,
    pub(crate) logs: &'a Logs<'a>,
    pub(crate) limits: &'a RateLimits,
    /// Where clients connect.
    pub(crate) listen: &'a [Address],
    /// `[acme]`
    pub(crate) acme: &'a Acme,
    /// `tls.folder`
    pub(crate) tls: Option<&'a Path>,
    /// The roots beneath which clients may write.
    pub(crate) uploads: &'a upload::Roots,
    /// `limits.spool_bytes`
    pub(crate) spool_bytes: usize,
}

impl<'a> References<'a> {
    /// Folders that no client should get files of.
    fn own_folders(&self) -> [OwnFolder<'a>; 3] {
        let folder = |key, content, path| OwnFolder { key, content, path };
        [
            folder("disk.variants", "variants", self.variants),
            folder("mailbox_store.folder", "messages", self.messages),
            folder("tls.folder", "keys", self.tls),
        ]
    }
}

/// What a table inherits.
#[derive(Clone, Copy)]
pub(crate) struct Above<'a> {
    pub(crate) location: &'a Location,
    /// Those of the routes around it; empty for sites, and for routes of sites.
    pub(crate) matchers: &'a [Matcher],
    /// The number of routes around the tables that inherit it, with themselves: 0 for sites.
    pub(crate) depth: usize,
    pub(crate) reach: Reach,
}

/// A table that was read.
pub(crate) struct Own {
    pub(crate) location: Location,
    pub(crate) reach: Reach,
    /// Which keys of the table around it are of use here.
    pub(crate) used: Used,
}

/// Keys about files that a table uses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) files: bool,
    /// The `root` of the table around it.
    pub(crate) root: bool,
}

impl Used {
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            files: self.files || other.files,
            root: self.root || other.root,
        }
    }
}

/// Reads one table. `path` is that of a route. `has_routes` is whether there are routes within it, which may be meant by
/// keys that do nothing here.
pub(crate) fn read(
    section: &Section<'_>,
    path: Option<&Pattern>,
    above: Above<'_>,
    has_routes: bool,
    references: References<'_>,
) -> Own {
    let parent = inherited(above.location, |name| section.drops(name));
    let own_root = root::read(section, &references.own_folders());
    let (proxying, reach) = proxying::read(section, references.upstreams, above.reach);
    let own_answer = answer::read(section, path, !has_routes, references.mailboxes);
    let internal = section.boolean("internal") == Some(true);
    let disk = location_disk(&section.child("disk"));
    let options = location_options::read(section, disk, &parent.options);
    let may_list = options.listing || has_routes;
    listing_archive::check(section, &options.listing_archive, may_list);
    let handlers = OwnHandlers::of(section, &proxying, internal);
    let used = handlers.used(&proxying);
    let root = own_root.or(parent.root);
    let mut location = Location {
        unread: parent.unread,
        strip_prefix: strip_prefix(section, path).or(parent.strip_prefix),
        log: references.logs.of_location(section, parent.log.as_ref()),
        answer: handlers.answer(own_answer, parent.answer),
        proxying: handlers.proxying(proxying, parent.proxying, root.is_some()),
        gates: gates::read::read(section, &parent.gates, references.upstreams),
        rate_limits: references
            .limits
            .of_location(section, &parent.rate_limits, above.depth),
        internal: internal || parent.internal,
        upload: handlers.upload(section, parent.upload),
        files_first: false,
        path_headers: parent.path_headers,
        error_pages_root: error_pages_root(
            section,
            parent.error_pages_root,
            root.as_ref(),
            &options,
        ),
        cors: cors::read(section, parent.cors),
        headers: headers::of_responses(&section.child("headers"), &parent.headers),
        request_headers: headers::of_requests(
            &section.child("request_headers"),
            &parent.request_headers,
        ),
        rewrite: headers::rewrite(&section.child("rewrite"), parent.rewrite),
        mailbox_headers: references
            .mailboxes
            .of_headers(section, parent.mailbox_headers),
        resume: resume::read(section, parent.resume),
        options,
        root,
    };
    location.unread.extend(section.reader.take_unread());
    check(section, &location, has_routes, references);
    check_proxying(section, reach, path.is_some(), has_routes);
    check_errors(section, reach, has_routes);
    Own {
        location,
        reach,
        used,
    }
}

/// What a table inherits of `above` that drops keys.
pub(crate) fn inherited(above: &Location, is_dropped: impl Fn(&str) -> bool) -> Location {
    fn drop<T: Default>(is_dropped: bool, value: &mut T) {
        if is_dropped {
            *value = T::default();
        }
    }
    let mut above = above.clone();
    above.options.drop(&is_dropped);
    let proxying = &mut above.proxying;
    drop(is_dropped("proxy"), &mut proxying.proxy);
    drop(is_dropped("try"), &mut proxying.tries);
    drop(is_dropped("script_suffix"), &mut proxying.script_suffix);
    drop(is_dropped("script_index"), &mut proxying.script_index);
    drop(is_dropped("script_root"), &mut proxying.script_root);
    drop(is_dropped("params"), &mut proxying.params);
    drop(is_dropped("body_bytes"), &mut proxying.body_bytes);
    drop(is_dropped("ambiguous_paths"), &mut proxying.ambiguous_paths);
    drop(is_dropped("root"), &mut above.root);
    drop(is_dropped("strip_prefix"), &mut above.strip_prefix);
    drop(is_dropped("headers"), &mut above.headers);
    drop(is_dropped("request_headers"), &mut above.request_headers);
    drop(is_dropped("rewrite"), &mut above.rewrite);
    drop(is_dropped("mailbox_headers"), &mut above.mailbox_headers);
    for key in answer::keys() {
        let is_its_own = above
            .answer
            .as_ref()
            .is_some_and(|answer| answer.key() == key);
        drop(is_dropped(key) && is_its_own, &mut above.answer);
    }
    above
}

/// Reports a route that has dropped all that could answer.
fn check_answered(section: &Section<'_>, location: &Location) {
    let mut answers = ["root", "proxy"].into_iter().chain(answer::keys());
    if location.root.is_none()
        && location.proxying.proxy.is_none()
        && location.answer.is_none()
        && let Some(span) = answers.find_map(|name| section.dropped(name))
    {
        let help = "without it there is no `root`, `proxy` or answer for the route".to_owned();
        section
            .reader
            .report(&span, "nothing would answer here", Some(help));
    }
}

/// The handlers that the keys of a table itself select.
struct OwnHandlers {
    root: bool,
    proxy: bool,
    error_pages: bool,
    tries: bool,
    internal: bool,
}

impl OwnHandlers {
    fn of(section: &Section<'_>, proxying: &Proxying, internal: bool) -> Self {
        Self {
            root: section.has("root"),
            proxy: proxying.proxy.is_some(),
            error_pages: section.has("error_pages"),
            tries: proxying.tries.is_some(),
            internal,
        }
    }

    /// Whether the table serves files only, whatever is around it.
    fn are_files_only(&self) -> bool {
        (self.root || self.internal) && !self.proxy && !self.tries
    }

    /// A table with handlers does not inherit the answer of the one around it.
    fn answer(&self, own: Option<Answer>, above: Option<Answer>) -> Option<Answer> {
        let has_handlers = self.root || self.internal || self.proxy || self.tries;
        own.or_else(|| above.filter(|_| !has_handlers))
    }

    /// Whoever may write to one folder need not be allowed to write to another.
    fn upload(&self, section: &Section<'_>, above: Option<Upload>) -> Option<Upload> {
        let inherited = above.filter(|_| !self.root && !section.is_off("upload"));
        let own = upload::read(section).or(inherited);
        own.filter(|_| !self.internal)
    }

    fn proxying(&self, own: Proxying, above: Proxying, has_root: bool) -> Proxying {
        let files_only = self.are_files_only();
        let proxy = own
            .proxy
            .or(above.proxy.filter(|_| !(files_only && has_root)));
        let inherited = above
            .tries
            .filter(|tries| !files_only && (!self.proxy || tries.contains(&Try::Proxy)));
        // The table may have dropped what some of them are for.
        let inherited = inherited.map(|mut tries| {
            tries.retain(|one| match one {
                Try::Proxy => proxy.is_some(),
                one => has_root || !one.asks_files(),
            });
            tries
        });
        Proxying {
            proxy,
            tries: own.tries.or(inherited.filter(|tries| !tries.is_empty())),
            script_suffix: own.script_suffix.or(above.script_suffix),
            script_index: own.script_index.or(above.script_index),
            // Another folder has another path there.
            script_root: own.script_root.or(above.script_root.filter(|_| !self.root)),
            params: proxying::merged_params(above.params, own.params),
            body_bytes: own.body_bytes.or(above.body_bytes),
            ambiguous_paths: own.ambiguous_paths.or(above.ambiguous_paths),
        }
    }

    /// What a table of these handlers and `own` keys uses of the files around it.
    fn used(&self, own: &Proxying) -> Used {
        let mut tries = own.tries.iter().flatten();
        let files = self.are_files_only()
            || tries.any(Try::asks_files)
            || own.script_suffix.is_some()
            || own.script_index.is_some();
        Used {
            files,
            root: (files || self.error_pages) && !self.root,
        }
    }
}

/// Notes keys about files that have no effect in a table. `used` is what it, or a route within it, uses.
pub(crate) fn note_unasked_files(section: &Section<'_>, reach: Reach, used: Used) {
    proxying::note_unasked_files(section, reach, |key| match key {
        "root" => used.root || section.has("error_pages"),
        _ => used.files,
    });
}

fn check(section: &Section<'_>, location: &Location, has_routes: bool, references: References<'_>) {
    check_lists(section, &location.options);
    check_dictionaries(section, &location.options, references, has_routes);
    check_upload(section, location, has_routes, references);
    references.mailboxes.check(section, location);
    if let Some(bytes) = location
        .proxying
        .body_bytes
        .filter(|_| section.has("body_bytes"))
    {
        limits::note_body_bytes(section, bytes, references.spool_bytes);
    }
    note_missing_pages(section, location);
    check_answered(section, location);
}

fn check_upload(
    section: &Section<'_>,
    location: &Location,
    has_routes: bool,
    references: References<'_>,
) {
    let place = upload::Place {
        root: location.root.as_deref(),
        is_internal: location.internal,
        answer: location.answer.as_ref().map(Answer::key),
        asks_files: location.asks_files(),
        has_routes,
        is_open: location.gates == Gates::default(),
        has_signed_urls: location.gates.signed_url.is_some(),
    };
    upload::check(section, &place, references.uploads);
}

fn check_proxying(section: &Section<'_>, reach: Reach, is_route: bool, has_routes: bool) {
    // They may be meant for the routes.
    if has_routes {
        return;
    }
    if is_route && section.has("proxy") && reach.is_files_only {
        let help = "add \"proxy\" to it".to_owned();
        section.report("proxy", "`try` leaves it out", Some(help));
    }
    for key in [
        "request_headers",
        "rewrite",
        "params",
        "ambiguous_paths",
        "mailbox_headers",
        "resume",
    ] {
        if section.has(key) && !section.is_off(key) && !reach.has_proxy {
            let help = "`rewrite` changes headers of an application; `reroute` of a `[[site.route]]` goes on with another path";
            let help = (key == "rewrite").then(|| help.to_owned());
            section.report(key, "there is no `proxy` here", help);
        }
    }
}

/// Reports `error_pages` of a table without `root`, unless one of its `routes`, which inherit them, has one: then a note says that
/// the pages are for such routes only.
pub(crate) fn check_error_pages(section: &Section<'_>, reach: Reach, routes: &[Route]) {
    const KEY: &str = "error_pages";
    if !section.has(KEY) || reach.has_root {
        return;
    }
    let has_pages = |route: &Route| route.location.error_pages_root.is_some();
    match routes.iter().any(has_pages) {
        true => section.note(
            KEY,
            "they are sent only by the routes that have a `root`: elsewhere there is none for them",
        ),
        false => section.report(KEY, "there is no `root` for them", None),
    }
}

/// Reports `replace_errors` that has nothing to work on; in a table with routes it may be meant for these.
fn check_errors(section: &Section<'_>, reach: Reach, has_routes: bool) {
    if has_routes {
        return;
    }
    if section.has("replace_errors") && !reach.has_proxy {
        section.report("replace_errors", "there is no `proxy` here", None);
    }
}

/// The folder of the pages: that of the table which names them.
fn error_pages_root(
    section: &Section<'_>,
    above: Option<PathBuf>,
    own: Option<&PathBuf>,
    options: &LocationOptions,
) -> Option<PathBuf> {
    let inherited = above.filter(|_| !section.has("error_pages"));
    let root = inherited.or_else(|| own.cloned());
    root.filter(|_| !options.error_pages.is_empty())
}

/// Notes pages that are not there: for their errors the built-in page would be sent.
fn note_missing_pages(section: &Section<'_>, location: &Location) {
    let (true, Some(root)) = (section.has("error_pages"), &location.error_pages_root) else {
        return;
    };
    if !section.reader.is_loaded {
        return;
    }
    for (_, path) in &location.options.error_pages {
        let file = root.join(path.trim_start_matches('/'));
        if matches!(patiently(&file, Path::try_exists), Ok(Ok(false))) {
            let note = format!("{} does not exist", file.display());
            let span = section.span_of("error_pages");
            section.reader.note(&span, note);
        }
    }
}

/// Reports a `compress_dictionaries` that could do nothing; in a site with routes it may be meant `for_routes`.
fn check_dictionaries(
    section: &Section<'_>,
    options: &LocationOptions,
    references: References<'_>,
    for_routes: bool,
) {
    const KEY: &str = "compress_dictionaries";
    if !section.has(KEY) || !options.compress_dictionaries {
        return;
    }
    let mut codings = options.compress_codings.iter();
    let has_coding = codings.any(|own| own.coding.with_dictionary().is_some());
    let lacking = if references.variants.is_none() {
        "`variants`, a folder, in `[disk]`"
    } else if !options.compress && !for_routes {
        "`compress = true` here"
    } else if !has_coding && !for_routes {
        "`zstd` or `br` in `compress_codings`"
    } else if !options.substitute.is_empty() && !for_routes {
        "content that `substitute` does not change"
    } else {
        return;
    };
    section.report(KEY, format_args!("it needs {lacking}"), None);
}

/// Reports a list of the section that is empty, so that its `compress` does nothing.
fn check_lists(section: &Section<'_>, options: &LocationOptions) {
    for key in ["compress_codings", "compress_types"] {
        if options.compress && section.is_empty_array(key) {
            let help = "leave it out, or write `compress = false`".to_owned();
            section.report(key, "nothing can be compressed", Some(help));
        }
    }
}

fn strip_prefix(section: &Section<'_>, path: Option<&Pattern>) -> Option<String> {
    let given = section.text("strip_prefix")?;
    let text = given.text;
    let prefix = text.strip_suffix('/').unwrap_or(text);
    if !prefix.starts_with('/') {
        let help = if text == "/" {
            "leave it out"
        } else {
            "a path starts with `/`"
        };
        given.refuse_with(format!("`{text}` takes no segment off a path"), help);
        return None;
    }
    if path.is_some_and(|path| !starts_with_segments(path, prefix)) {
        let message = "the route's `path` does not start with it";
        section.report("strip_prefix", message, None);
    }
    Some(prefix.to_owned())
}

/// Whether every path of the pattern starts with the segments of `prefix`. Where a regular expression matches is not
/// known: it is taken to be right.
fn starts_with_segments(path: &Pattern, prefix: &str) -> bool {
    let rest = path.start().strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || matches!(path, Pattern::Regex(_))
}
