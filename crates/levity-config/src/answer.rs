//! What a site or route answers itself: `redirect`, `reroute`, `respond` and `mailbox`.

use crate::headers;
use crate::mailbox::read::Mailboxes;
use crate::matcher::{Matcher, When};
use crate::model::{Answer, Fixed, Location, Redirect, Site};
use crate::on_disk;
use crate::pattern::Pattern;
use crate::pattern_index::PatternIndex;
use crate::section::{Section, Text};
use crate::template::{Part, Template};

/// The keys that an answer makes useless beside it.
const OTHER_HANDLERS: &[&str] = &[
    "root",
    "proxy",
    "try",
    "script_suffix",
    "script_index",
    "script_root",
    "listing",
    "listing_archive",
    "hide",
    "show",
    "index",
    "precompressed",
];

/// A key that gives an answer.
struct Kind {
    key: &'static str,
    /// The same response comes whatever the site has: nothing is let by without a gate.
    is_final: bool,
    read: fn(&Given<'_, '_>) -> Option<Answer>,
}

/// Those of which a table may have one.
const KINDS: [Kind; 4] = [
    Kind {
        key: "redirect",
        is_final: true,
        read: |given| redirect(&given.table()?, given.path).map(Answer::Redirect),
    },
    Kind {
        key: "reroute",
        is_final: false,
        read: |given| reroute(given.section, given.path).map(Answer::Reroute),
    },
    Kind {
        key: "respond",
        is_final: true,
        read: |given| Some(Answer::Fixed(fixed(&given.table()?))),
    },
    Kind {
        key: "mailbox",
        is_final: false,
        read: |given| {
            let number = given.mailboxes.named_by(given.section, given.key);
            number.map(Answer::Mailbox)
        },
    },
];

/// What an answer is read from.
struct Given<'g, 's> {
    section: &'g Section<'s>,
    key: &'static str,
    path: Option<&'g Pattern>,
    mailboxes: &'g Mailboxes,
}

impl<'s> Given<'_, 's> {
    fn table(&self) -> Option<Section<'s>> {
        // Reports what is no table.
        let table = self.section.child(self.key);
        self.section.has_table(self.key).then_some(table)
    }
}

/// The keys of answers.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.key)
}

const STATUSES: &[usize] = &[301, 302, 303, 307, 308];

/// What stands for any name in a path.
pub(crate) const SAMPLE: &str = "levity-sample";

/// The maximum number of bytes in the body of a fixed response: it is copied for each request.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Whether a table has a key of an answer.
pub(crate) fn is_named(section: &Section<'_>) -> bool {
    keys().any(|key| section.has(key))
}

/// Whether a table has one that asks nobody else.
pub(crate) fn is_final(section: &Section<'_>) -> bool {
    let mut kinds = KINDS.iter();
    kinds.any(|kind| kind.is_final && section.has(kind.key))
}

/// Reads the answer of one table. `path` is that of a route. `is_alone` is whether other handlers
/// beside an answer have no effect; in a site they may be meant for its routes.
pub(crate) fn read(
    section: &Section<'_>,
    path: Option<&Pattern>,
    is_alone: bool,
    mailboxes: &Mailboxes,
) -> Option<Answer> {
    let Kind { key, read, .. } = KINDS.iter().find(|kind| section.has(kind.key))?;
    let handlers = OTHER_HANDLERS.iter().copied().filter(|_| is_alone);
    for other in keys().filter(|other| other != key).chain(handlers) {
        if section.has(other) {
            section.report(
                other,
                format_args!("`{key}` answers every request here"),
                None,
            );
        }
    }
    read(&Given {
        section,
        key,
        path,
        mailboxes,
    })
}

/// Reads `reroute`, a path on this server.
fn reroute(section: &Section<'_>, path: Option<&Pattern>) -> Option<Template> {
    let given = section.text("reroute")?;
    let text = given.text;
    let refuse =
        |help: String| given.refuse_with(format!("`{text}` is not a path to go on with"), help);
    let to = Template::parse(text).map_err(refuse).ok()?;
    if to.has_host() || text.contains('#') {
        refuse("a path on this server; `redirect` sends clients elsewhere".to_owned());
        return None;
    }
    check_parts(&given, &to, path);
    Some(to)
}

fn redirect(section: &Section<'_>, path: Option<&Pattern>) -> Option<Redirect> {
    section.require("to");
    let status = section.count("status");
    if !STATUSES.contains(&status) {
        let message = format!("{status} is not the status of a redirect");
        let help =
            "301 and 308 are permanent, 302, 303 and 307 are not; 307 and 308 keep the method";
        section.report("status", message, Some(help.to_owned()));
    }
    let given = section.text("to")?;
    let to = Template::parse(given.text);
    let to = to.map_err(|help| {
        given.refuse_with(format!("`{}` is no target of a redirect", given.text), help);
    });
    let to = to.ok()?;
    check_parts(&given, &to, path);
    Some(Redirect {
        to,
        status: u16::try_from(status).unwrap_or_default(),
    })
}

/// Reports placeholders for which the path of the route has no text.
pub(crate) fn check_parts(given: &Text<'_>, to: &Template, path: Option<&Pattern>) {
    let has_rest = to.0.contains(&Part::Rest);
    if has_rest && !matches!(path, Some(Pattern::Prefix(_))) {
        given.refuse_with(
            "there is no rest of the path here",
            "`{rest}` stands for what `*` matches in the `path` of a route, such as `/old/*`",
        );
    }
    let groups = path.map_or(0, Pattern::groups);
    let number = |part: &Part| match part {
        Part::Group(number) => Some(*number),
        _ => None,
    };
    if let Some(number) =
        to.0.iter()
            .filter_map(number)
            .find(|number| *number > groups)
    {
        let help = "`{1}` stands for what the first star, braces or group matches, as in \"/*/old\"; `/a/*` has `{rest}`";
        given.refuse_with(format!("there is no `{{{number}}}` here"), help);
    }
}

fn fixed(section: &Section<'_>) -> Fixed {
    let status = section.count("status");
    let body = section.text("body").map_or("", |given| given.text);
    if body.len() > BODY_BYTES_MAX {
        let message = format!("{} bytes are more than {BODY_BYTES_MAX}", body.len());
        section.report("body", message, Some("a file can be longer".to_owned()));
    }
    if !body.is_empty() && matches!(status, 204 | 304) {
        let message = format!("a response of status {status} has no content");
        section.report("body", message, None);
    }
    Fixed {
        status: u16::try_from(status).unwrap_or_default(),
        body: body.to_owned(),
        headers: headers::of_answer(section, "headers"),
    }
}

/// Whether the redirect or the rewrite of a route, or of the site for `None`, leads to itself in the end. `site` has no errors so far.
/// Patterns whose paths cannot be told are taken to lead elsewhere.
pub(crate) fn finds_loop(site: &Site, start: Option<usize>) -> bool {
    let path = match start {
        Some(number) => sample(&site.routes[number].matcher().path),
        None => Some(format!("/{SAMPLE}")),
    };
    let index = site.route_index();
    path.is_some_and(|path| leads_back(site, &index, start, path, site.routes.len() + 2))
}

/// Whether a request for `path`, which gets to the route `start`, or to the site for `None`, is led there again within so many
/// steps. `index` is that of its routes. May block, to look for files that go before an answer.
pub(crate) fn leads_back(
    site: &Site,
    index: &PatternIndex,
    start: Option<usize>,
    mut path: String,
    steps_max: usize,
) -> bool {
    let mut at = start;
    for _ in 0..steps_max {
        let route = at.map(|number| &site.routes[number]);
        let location = route.map_or(&site.location, |route| &route.location);
        if route.is_some_and(|route| route.matcher().when != When::default())
            || (location.files_first && has_file(location, &path))
        {
            return false;
        }
        let to = match &location.answer {
            Some(Answer::Redirect(redirect)) => &redirect.to,
            Some(Answer::Reroute(to)) => to,
            _ => return false,
        };
        let Some(next) = to.path_from(&path, route.map(|route| &route.matcher().path)) else {
            return false;
        };
        path = next;
        let matches = |matcher: &Matcher| matcher.path.matches(path.as_bytes());
        let of_path = |number: usize| site.routes[number].matchers.iter().all(matches);
        at = index.first_matching(path.as_bytes(), of_path);
        if at == start {
            return true;
        }
    }
    false
}

fn has_file(location: &Location, path: &str) -> bool {
    let root = location.root.as_ref();
    root.is_some_and(|root| on_disk::exists(&root.join(path.trim_start_matches('/'))))
}

/// A path that the pattern matches.
fn sample(pattern: &Pattern) -> Option<String> {
    match pattern {
        Pattern::Exact(path) | Pattern::Page(path) => Some(path.clone()),
        Pattern::Prefix(prefix) => Some(format!("{prefix}{SAMPLE}")),
        Pattern::Glob(_) | Pattern::Named { .. } | Pattern::Regex(_) => None,
    }
}
