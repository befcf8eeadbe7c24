//! Reads how sites and routes use an upstream.

use crate::section::{Section, Text};
use crate::tries::{self, Given, Try};
use crate::upstream::read::Upstreams;
use crate::upstream::{Protocol, Proxying};

/// The maximum size of `params` in one table, in bytes. An application gets at most about 60 KiB of variables, and most of
/// that is for the headers of the request.
const PARAMS_BYTES_MAX: usize = 16 * 1024;

/// Variables that say where the body ends.
const OF_THE_BODY: [&str; 2] = ["CONTENT_LENGTH", "SCGI"];

/// Which handlers a site or route has, of its own or inherited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reach {
    pub(crate) has_root: bool,
    pub(crate) has_proxy: bool,
    has_try: bool,
    /// `try` does not list the upstream.
    pub(crate) is_files_only: bool,
    /// The protocol of the upstream; `None` without an upstream, and when it is not known because of an error.
    protocol: Option<Protocol>,
    /// `try` lists files before the upstream.
    is_file_first: bool,
    has_script_suffix: bool,
    has_script_index: bool,
}

impl Reach {
    /// The reach of a table whose own one drops keys.
    fn without(self, is_dropped: impl Fn(&str) -> bool) -> Self {
        Self {
            has_root: self.has_root && !is_dropped("root"),
            has_proxy: self.has_proxy && !is_dropped("proxy"),
            has_try: self.has_try && !is_dropped("try"),
            is_files_only: self.is_files_only && !is_dropped("try"),
            protocol: self.protocol.filter(|_| !is_dropped("proxy")),
            is_file_first: self.is_file_first && !is_dropped("try"),
            has_script_suffix: self.has_script_suffix && !is_dropped("script_suffix"),
            has_script_index: self.has_script_index && !is_dropped("script_index"),
        }
    }

    fn has_scripts(&self) -> bool {
        self.has_script_suffix || self.has_script_index
    }
}

/// Reads the keys of one table; `above` is the reach of the site around a route.
pub(crate) fn read(
    section: &Section<'_>,
    upstreams: &Upstreams,
    above: Reach,
) -> (Proxying, Reach) {
    let above = above.without(|name| section.drops(name));
    let proxy = section.text("proxy");
    let known = proxy
        .as_ref()
        .and_then(|name| upstreams.find(section.reader, name, "proxy"));
    let own = section.has("proxy");
    let mut reach = Reach {
        has_try: above.has_try || section.has("try"),
        // An upstream of its own replaces a `try` that leaves it out.
        is_files_only: above.is_files_only && !own,
        has_root: above.has_root || section.has("root"),
        has_proxy: above.has_proxy || own,
        protocol: match known {
            Some(known) => known.protocol,
            None => above.protocol.filter(|_| !own),
        },
        is_file_first: above.is_file_first,
        has_script_suffix: above.has_script_suffix || section.has("script_suffix"),
        has_script_index: above.has_script_index || section.has("script_index"),
    };
    let has = Given {
        root: reach.has_root,
        proxy: reach.has_proxy,
    };
    let tries = tries::read(section, has);
    if let Some(tries) = tries.as_ref().filter(|tries| !tries.is_empty()) {
        reach.is_files_only = !tries.contains(&Try::Proxy);
        reach.is_file_first = !reach.is_files_only && tries.iter().any(Try::asks_files);
    }
    if own || tries.is_some() {
        note_unsent_scripts(section, reach);
    }
    let proxying = Proxying {
        proxy: proxy.map(|name| name.text.to_owned()),
        tries,
        script_suffix: script_suffix(section, reach),
        script_index: script_index(section, reach),
        script_root: script_root(section, reach),
        params: params(section, reach),
        body_bytes: section.optional_count("body_bytes"),
        ambiguous_paths: section.word("ambiguous_paths"),
    };
    (proxying, reach)
}

/// Notes an upstream for PHP behind `file` without a key that says which files are scripts.
fn note_unsent_scripts(section: &Section<'_>, reach: Reach) {
    let is_fastcgi = reach.protocol == Some(Protocol::Fastcgi);
    if is_fastcgi && reach.is_file_first && reach.has_root && !reach.has_scripts() {
        let at = if section.has("try") { "try" } else { "proxy" };
        let note = "`.php` files are never sent, and all requests for them go to the application; `script_suffix = \".php\"` finds scripts \
                    beneath the `root`";
        section.reader.note(&section.span_of(at), note.to_owned());
    }
}

/// Notes keys about files that have no effect because the upstream answers everything. `is_used` says whether a
/// route uses a key.
pub(crate) fn note_unasked_files(
    section: &Section<'_>,
    reach: Reach,
    is_used: impl Fn(&str) -> bool,
) {
    let asks_files = reach.is_files_only || reach.is_file_first || reach.has_scripts();
    let is_dead = |key: &&str| section.has(key) && !is_used(key);
    let Some(key) = [
        "root",
        "listing",
        "listing_archive",
        "hide",
        "show",
        "index",
    ]
    .into_iter()
    .find(is_dead) else {
        return;
    };
    if !reach.has_proxy || asks_files {
        return;
    }
    let note = if reach.protocol == Some(Protocol::Fastcgi) && key == "root" {
        "the application is given the whole path, which php-fpm answers with 404 \"Primary script unknown\"; for PHP write \
         `script_suffix = \".php\"`, `script_index = \"index.php\"` and `try = [\"file\", \"proxy\"]`"
            .to_owned()
    } else {
        let why = match reach.has_try {
            true => "`try` has no step for files",
            false => "without `try` the upstream answers everything",
        };
        format!(
            "{why}, and `{key}` has no effect; `try = [\"file\", \"proxy\"]` beneath a `root` sends what is a file there"
        )
    };
    section.reader.note(&section.span_of(key), note);
}

fn script_suffix(section: &Section<'_>, reach: Reach) -> Option<String> {
    let given = section.text("script_suffix")?;
    let text = given.text;
    if !text.starts_with('.') || text.len() == 1 || text.contains(['/', '\0']) {
        let message = format!("`{text}` is not how the name of a script ends");
        given.refuse_with(message, "a dot and what follows it, such as \".php\"");
    }
    must_reach_scripts(section, "script_suffix", reach);
    Some(text.to_owned())
}

fn script_index(section: &Section<'_>, reach: Reach) -> Option<String> {
    let given = section.text("script_index")?;
    let text = given.text;
    let is_wrong = |segment: &str| matches!(segment, "" | "." | "..") || segment.contains('\0');
    if text.split('/').any(is_wrong) {
        let message = format!("`{text}` is not the name of a script");
        given.refuse_with(message, "a file beneath `root`, such as \"index.php\"");
    }
    must_reach_scripts(section, "script_index", reach);
    Some(text.to_owned())
}

fn script_root(section: &Section<'_>, reach: Reach) -> Option<String> {
    let given = section.text("script_root")?;
    if !given.text.starts_with('/') || given.text.contains('\0') {
        // Not from the folder of the configuration file: the path is one of another machine.
        let message = format!("`{}` is not an absolute path", given.text);
        given.refuse_with(message, "a path such as \"/var/www/html\"");
    }
    must_reach_scripts(section, "script_root", reach);
    Some(given.text.to_owned())
}

fn params(section: &Section<'_>, reach: Reach) -> Vec<(String, String)> {
    let pairs = section.pairs("params");
    for (name, value) in &pairs {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.text.is_empty() || !name.text.chars().all(is_plain) {
            let message = format!("`{}` is not the name of a variable", name.text);
            name.refuse_with(message, "letters, digits, `_`, `-` and `.`");
        } else if OF_THE_BODY.contains(&name.text) {
            name.refuse(format!("`{}` is set by the server itself", name.text));
        }
        if value.text.contains('\0') {
            value.refuse(format!("the value of `{}` has a NUL", name.text));
        }
    }
    let texts = pairs.iter().flat_map(|(name, value)| [name, value]);
    if texts.map(|text| text.text.len()).sum::<usize>() > PARAMS_BYTES_MAX {
        let message = format!(
            "names and values have more than {} KiB",
            PARAMS_BYTES_MAX / 1024
        );
        section.report("params", message, None);
    }
    if !pairs.is_empty() && reach.protocol.is_some_and(|protocol| !protocol.is_cgi()) {
        let help = "`request_headers` of a site or route sets headers".to_owned();
        let message = "only upstreams of protocol fastcgi or scgi get variables";
        section.report("params", message, Some(help));
    }
    let owned = |(name, value): (Text<'_>, Text<'_>)| (name.text.to_owned(), value.text.to_owned());
    pairs.into_iter().map(owned).collect()
}

/// The variables of a table beneath one with those `above`.
pub(crate) fn merged_params(
    mut above: Vec<(String, String)>,
    own: Vec<(String, String)>,
) -> Vec<(String, String)> {
    above.retain(|(name, _)| !own.iter().any(|(other, _)| other == name));
    above.extend(own);
    above
}

fn must_reach_scripts(section: &Section<'_>, name: &str, reach: Reach) {
    let missing = if !reach.has_root {
        "there is no `root` for scripts"
    } else if !reach.has_proxy {
        "there is no `proxy` to run scripts"
    } else if reach.protocol.is_some_and(|protocol| !protocol.is_cgi()) {
        "only upstreams of protocol fastcgi or scgi run scripts"
    } else {
        return;
    };
    section.report(name, missing, None);
}
