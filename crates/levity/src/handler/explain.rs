//! What handlers do with a request, in words.

use std::io;
use std::sync::Arc;

use levity_config::NamePattern;
use rustix::io::Errno;

use super::Outcome;
use crate::explanation::{Explanation, Topic};
use crate::message::client::Client;
use crate::rate_limit::limit::RateLimit;
use crate::resolve::Found;
use crate::resolve::servable::object::RunnableScript;
use crate::route::{Candidate, Files, Gate, Handler};
use crate::upstream::proxy::Proxy;

/// Why a request for a file is refused with 405.
pub(super) const METHODS_OF_FILES: &str = "files are for GET, HEAD and OPTIONS only";

fn of_upload(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Response(refused) if refused.status >= 400 => {
            format!("`upload` refuses with {}", refused.status)
        }
        _ => "`upload` takes it; the response depends on what is there, and nothing is written now"
            .to_owned(),
    }
}

/// What a handler says that decides whether the request gets here; `None` for others.
fn of_access(handler: &Handler, outcome: &Outcome<'_>, client: &Client) -> Option<String> {
    Some(match handler {
        Handler::Gate(gate) => format!("{}: {}", of_gate(gate, client), verdict(outcome)),
        Handler::RateLimits(limits) => {
            let verdict = match outcome {
                Outcome::Response(_) => verdict(outcome),
                _ => "lets the first request in; counters are not those of the running server"
                    .to_owned(),
            };
            format!("{}: {verdict}", of_limits(limits))
        }
        Handler::Https(rules) if rules.client_auth.is_some() => match outcome {
            Outcome::Next => {
                "`client_authorities`: lets the request in; the client is taken to have a certificate"
                    .to_owned()
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Says what `handler` did.
pub(super) fn handler(
    handler: &Handler,
    outcome: &Outcome<'_>,
    client: &Client,
    explanation: &Explanation,
) {
    if let Some(text) = of_access(handler, outcome, client) {
        return explanation.add(Topic::Gate, text);
    }
    if matches!(outcome, Outcome::Next) && passes_silently(handler) {
        return;
    }
    let text = match handler {
        Handler::Proxy(proxy) => match outcome {
            Outcome::Response(refused) if refused.status >= 400 => {
                format!("`proxy` refuses with {}", refused.status)
            }
            _ => to_proxy(proxy),
        },
        Handler::Upload(_) => of_upload(outcome),
        Handler::Acme(_) => "an authority looks whether the name leads here".to_owned(),
        Handler::Https(_) => match location(outcome) {
            Some(to) => format!("`tls` redirects to {to}: the request has not come over TLS"),
            None => "`tls` wants it to come over another connection".to_owned(),
        },
        Handler::Preflight(_) => "`cors` answers the preflight".to_owned(),
        Handler::Redirect(to) => match location(outcome) {
            Some(location) => format!("`redirect` with {} to {location}", to.status),
            None => format!("`redirect` with {}", to.status),
        },
        Handler::Rewrite(_) => format!("`reroute`{}", target(outcome)),
        Handler::RewriteOnce(_) => format!("`_redirects`{}", target(outcome)),
        Handler::Respond(fixed) => {
            explanation.set_reason("`respond` gives this status to every request here");
            format!("`respond` with {}", fixed.status)
        }
        Handler::Mailbox(of) => {
            format!(
                "`mailbox` of `{}`; nothing is sent or received now",
                of.set.of.name
            )
        }
        Handler::Refuse(status) => {
            explanation.set_reason(match outcome {
                Outcome::Response(refusal) if refusal.status == 405 => METHODS_OF_FILES,
                _ => "no step of `try` has found anything",
            });
            format!("nothing was found: {status}")
        }
        Handler::ExistingFile(step) => {
            format!(
                "`try` of {}{}",
                candidate(&step.candidate),
                goes_on(outcome)
            )
        }
        Handler::IndexScript => format!("a script as index{}", goes_on(outcome)),
        Handler::Script => format!("the script of the path{}", goes_on(outcome)),
        Handler::Gate(_) | Handler::RateLimits(_) | Handler::Files(_) => return,
    };
    explanation.add(Topic::Handler, text);
}

/// Names the gates in `rest`, which a request with this outcome does not get to.
pub(super) fn not_reached(
    outcome: &Outcome<'_>,
    rest: &[Handler],
    client: &Client,
    explanation: &Explanation,
) {
    if !matches!(outcome, Outcome::Response(_)) {
        return;
    }
    for handler in rest {
        let gate = match handler {
            Handler::Gate(gate) => of_gate(gate, client),
            Handler::RateLimits(limits) => of_limits(limits),
            _ => continue,
        };
        explanation.add(Topic::Gate, format!("{gate}: not reached"));
    }
}

/// Whether there is nothing to say of a handler that leaves the request to the next one.
fn passes_silently(handler: &Handler) -> bool {
    matches!(
        handler,
        Handler::Acme(_) | Handler::Https(_) | Handler::Preflight(_) | Handler::Upload(_)
    )
}

fn of_gate(gate: &Gate, client: &Client) -> String {
    match gate {
        Gate::Access(_) => {
            let ip = client.ip.map(|ip| ip.to_string());
            let ip = ip.unwrap_or_else(|| "of a Unix socket".to_owned());
            format!("`allow` and `deny`, client {ip}")
        }
        Gate::Closed => "files that do not respond or are absent".to_owned(),
        Gate::SignedUrl(_) => "`signed_url`".to_owned(),
        Gate::Jwt(_) => "`jwt`".to_owned(),
        Gate::BasicAuth(_) => "`basic_auth`".to_owned(),
        Gate::ForwardAuth(gate) => {
            let path = String::from_utf8_lossy(&gate.path);
            let upstream = &gate.proxy.upstream.settings.name;
            format!(
                "`forward_auth` of {path} at `{upstream}`, which is not asked now and taken to agree"
            )
        }
    }
}

/// Limits count the requests of the process that explains, and not those of a server.
fn of_limits(limits: &[Arc<RateLimit>]) -> String {
    let named = |limit: &Arc<RateLimit>| match limit.only_reports() {
        true => format!("{} (report_only)", limit.name()),
        false => limit.name().to_owned(),
    };
    let names: Vec<_> = limits.iter().map(named).collect();
    format!("`limit` {}", names.join(", "))
}

fn verdict(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Response(response) => format!("refuses with {}", response.status),
        _ => "lets the request in".to_owned(),
    }
}

fn goes_on(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Response(response) => format!(" answers with {}", response.status),
        _ => ": the next handler follows".to_owned(),
    }
}

/// Where a redirect leads.
fn location(outcome: &Outcome<'_>) -> Option<String> {
    let Outcome::Response(response) = outcome else {
        return None;
    };
    let location = response.fields.value("location")?;
    Some(String::from_utf8_lossy(location).into_owned())
}

fn target(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Rewritten(to) => {
            let target = String::from_utf8_lossy(&to.target);
            format!(" to {target}, which is routed again")
        }
        _ => " does not apply".to_owned(),
    }
}

fn to_proxy(proxy: &Proxy) -> String {
    let settings = &proxy.upstream.settings;
    let mut text = format!(
        "`proxy` to `{}` by {}",
        settings.name,
        settings.protocol_label()
    );
    if !proxy.strip_prefix.is_empty() {
        let prefix = String::from_utf8_lossy(&proxy.strip_prefix);
        text.push_str(&format!(" without {prefix}"));
    }
    text + ", which is not asked now: status and other headers are those of its response"
}

fn candidate(candidate: &Candidate) -> String {
    match candidate {
        Candidate::FileOrIndex => "the file or index".to_owned(),
        Candidate::File => "the file".to_owned(),
        Candidate::WithSuffix(suffix) => {
            format!("the file with {}", String::from_utf8_lossy(suffix))
        }
        Candidate::Folder => "the folder".to_owned(),
        Candidate::At(path) => String::from_utf8_lossy(path).into_owned(),
    }
}

/// Says what a search for `path` among `files` has found.
pub(super) fn search(
    files: &Files,
    path: &[u8],
    found: &io::Result<Found>,
    explanation: &Explanation,
) {
    let root = files.root.last();
    let (root, path) = (root.path().display(), String::from_utf8_lossy(path));
    let names_folder = path.is_empty() || path.ends_with('/');
    let found = match found {
        Ok(Found::File(file, _)) => {
            let what = match file.led.index {
                None => "a file".to_owned(),
                Some(number) => {
                    let name = String::from_utf8_lossy(&files.index[number]);
                    format!("its index file {name}")
                }
            };
            format!("{what} of {} bytes", file.entry.meta.size)
        }
        Ok(Found::Directory(_)) if !names_folder => {
            "a folder, but the path has no slash at its end".to_owned()
        }
        Ok(Found::Directory(_)) => "a folder without index".to_owned(),
        Err(error) => error.to_string(),
    };
    explanation.add(Topic::File, format!("{root}/{path}: {found}"));
}

/// Says which script among `files` runs.
pub(super) fn script(files: &Files, script: &RunnableScript, explanation: &Explanation) {
    let root = files.root.last();
    let name = String::from_utf8_lossy(script.name());
    let mut text = format!("{}/{name}: the script that runs", root.path().display());
    if let Some(info) = script.info() {
        let info = String::from_utf8_lossy(info);
        text.push_str(&format!(", with /{info} as its PATH_INFO"));
    }
    explanation.add(Topic::File, text);
}

/// Says why `path` is not looked for among `files`.
pub(super) fn hidden(files: &Files, path: &[u8], explanation: &Explanation) {
    let reason = match files.hidden_name(path) {
        Some(name) => {
            let name = String::from_utf8_lossy(name);
            let is_in_list = |pattern: &NamePattern| pattern.matches(name.as_bytes());
            match files.names.hidden.iter().any(is_in_list) {
                true => format!("the name `{name}` is in `hide`"),
                false => {
                    format!("the name `{name}` begins with a dot, and `show` does not have it")
                }
            }
        }
        None => "it is a script, whose source is not sent".to_owned(),
    };
    let path = String::from_utf8_lossy(path);
    explanation.add(Topic::File, format!("/{path}: not looked for, {reason}"));
    explanation.set_reason(reason);
}

/// Why a file cannot be sent.
pub(super) fn failure(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => "nothing has this name".to_owned(),
        Some(Errno::NOTDIR) => "a part of the path before its end is no folder".to_owned(),
        Some(Errno::ACCESS | Errno::PERM) => "whoever runs this command may not read it".to_owned(),
        Some(_) if levity_disk::left_root(error) => {
            "a symbolic link leaves the root; `symlinks = \"follow\"` allows that".to_owned()
        }
        _ => error.to_string(),
    }
}
