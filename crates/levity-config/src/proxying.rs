//! What sites and routes say of the upstream that answers for them.

use crate::fields::{Fields, Text};
use crate::foreign;
use crate::suggest::nearest;
use crate::upstream::read::Upstreams;
use crate::upstream::{AmbiguousPaths, Protocol, Proxying, Try};

const PROXY_HELP: &str = "add proxy = \"NAME\", the name of an [[upstream]]";

/// What a site or route has, of its own or from above.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reach {
    pub(crate) has_root: bool,
    pub(crate) has_proxy: bool,
    /// `try` leaves the upstream out.
    pub(crate) is_files_only: bool,
    /// What the upstream speaks; `None` without one, and when that is wrong.
    protocol: Option<Protocol>,
    /// `try` has files, then the upstream.
    is_file_first: bool,
    /// What scripts are is said.
    has_scripts: bool,
}

/// Reads the keys of one table; `above` is the reach of the site around a route.
pub(crate) fn read(fields: &Fields<'_>, upstreams: &Upstreams, above: Reach) -> (Proxying, Reach) {
    let proxy = fields.text("proxy");
    let known = proxy
        .as_ref()
        .and_then(|name| upstreams.find(fields.reader, name, "proxy"));
    let own = fields.has("proxy");
    let mut reach = Reach {
        is_files_only: above.is_files_only,
        has_root: above.has_root || fields.has("root"),
        has_proxy: above.has_proxy || own,
        protocol: match known {
            Some(known) => known.protocol,
            None => above.protocol.filter(|_| !own),
        },
        is_file_first: above.is_file_first,
        has_scripts: above.has_scripts || fields.has("script_suffix") || fields.has("script_index"),
    };
    let tries = tries(fields, reach);
    if let Some(tries) = tries.as_ref().filter(|tries| !tries.is_empty()) {
        reach.is_files_only = !tries.contains(&Try::Proxy);
        reach.is_file_first = tries.as_slice() == [Try::File, Try::Proxy];
    }
    if own || tries.is_some() {
        note_unsent_scripts(fields, reach);
    }
    let proxying = Proxying {
        proxy: proxy.map(|name| name.text.to_owned()),
        tries,
        script_suffix: script_suffix(fields, reach),
        script_index: script_index(fields, reach),
        body_bytes: fields.auto_size("body_bytes"),
        ambiguous_paths: fields.word("ambiguous_paths").map(|word| match word {
            "pass" => AmbiguousPaths::Pass,
            _ => AmbiguousPaths::Refuse,
        }),
    };
    (proxying, reach)
}

fn tries(fields: &Fields<'_>, reach: Reach) -> Option<Vec<Try>> {
    let given = fields.names("try")?;
    if given.is_empty() {
        fields.report("try", "nobody would answer", None);
    }
    let mut tries = Vec::new();
    for Text { text, span } in given {
        let refuse = |message: String, help| fields.reader.report(&span, message, help);
        let (one, reached) = match text {
            "file" => (Try::File, reach.has_root),
            "proxy" => (Try::Proxy, reach.has_proxy),
            _ => {
                let misspelt = || nearest(text, ["file", "proxy"]);
                let help = foreign::word("try", text)
                    .map(str::to_owned)
                    .or_else(|| Some(format!("did you mean \"{}\"?", misspelt()?)))
                    .unwrap_or_else(|| "one of `file`, `proxy`".to_owned());
                refuse(format!("`{text}` is no value of `try`"), Some(help));
                continue;
            }
        };
        if tries.contains(&one) {
            refuse(format!("`{text}` is given twice"), None);
        } else if one == Try::File && tries.contains(&Try::Proxy) {
            refuse("`file` can only stand before `proxy`".to_owned(), None);
        } else if !reached {
            let (message, help) = match one {
                Try::File => ("`file` needs a `root`, and there is none", None),
                Try::Proxy => (
                    "`try` asks an upstream, and no `proxy` names one",
                    Some(PROXY_HELP.to_owned()),
                ),
            };
            refuse(message.to_owned(), help);
        }
        tries.push(one);
    }
    Some(tries)
}

/// Where PHP is behind files and nothing says which of them are scripts.
fn note_unsent_scripts(fields: &Fields<'_>, reach: Reach) {
    let is_fastcgi = reach.protocol == Some(Protocol::Fastcgi);
    if is_fastcgi && reach.is_file_first && reach.has_root && !reach.has_scripts {
        let at = if fields.has("try") { "try" } else { "proxy" };
        let note = "`.php` files are left to the application and never sent; `script_suffix = \".php\"` has scripts found \
                    beneath the `root`";
        fields.reader.note(&fields.span_of(at), note.to_owned());
    }
}

/// Tells of what is said of files where the upstream answers everything. `is_used` says whether a route has
/// use for a key.
pub(crate) fn note_unasked_files(
    fields: &Fields<'_>,
    reach: Reach,
    is_used: impl Fn(&str) -> bool,
) {
    let asks_files = reach.is_files_only || reach.is_file_first || reach.has_scripts;
    let is_dead = |key: &&str| fields.has(key) && !is_used(key);
    let Some(key) = ["root", "listing", "index"].into_iter().find(is_dead) else {
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
        format!(
            "without `try` the upstream answers everything, and `{key}` has no effect; `try = [\"file\", \"proxy\"]` beneath a \
             `root` sends what is a file there"
        )
    };
    fields.reader.note(&fields.span_of(key), note);
}

fn script_suffix(fields: &Fields<'_>, reach: Reach) -> Option<String> {
    let Text { text, span } = fields.text("script_suffix")?;
    if !text.starts_with('.') || text.len() == 1 || text.contains(['/', '\0']) {
        let message = format!("`{text}` is not how the name of a script ends");
        let help = "a dot and what follows it, such as \".php\"".to_owned();
        fields.reader.report(&span, message, Some(help));
    }
    must_reach_scripts(fields, "script_suffix", reach);
    Some(text.to_owned())
}

fn script_index(fields: &Fields<'_>, reach: Reach) -> Option<String> {
    let Text { text, span } = fields.text("script_index")?;
    let is_wrong = |segment: &str| matches!(segment, "" | "." | "..") || segment.contains('\0');
    if text.split('/').any(is_wrong) {
        let message = format!("`{text}` is not the name of a script");
        let help = "a file beneath `root`, such as \"index.php\"".to_owned();
        fields.reader.report(&span, message, Some(help));
    }
    must_reach_scripts(fields, "script_index", reach);
    Some(text.to_owned())
}

fn must_reach_scripts(fields: &Fields<'_>, name: &str, reach: Reach) {
    let missing = if !reach.has_root {
        "there is no `root` for scripts"
    } else if !reach.has_proxy {
        "there is no `proxy` to run scripts"
    } else if reach.protocol.is_some_and(|protocol| !protocol.is_cgi()) {
        "only upstreams of protocol fastcgi or scgi run scripts"
    } else {
        return;
    };
    fields.report(name, missing, None);
}
