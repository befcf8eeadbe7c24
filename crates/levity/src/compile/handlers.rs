//! The handlers of locations, in order. A handler that is new gets its line here.

use std::io;
use std::sync::Arc;

use levity_config::tls::Certificates;
use levity_config::{Answer, Part, Pattern, Template, Try};

use super::resources::{Resources, SiteParts};
use super::{gates, uploads};
use crate::handler::acme::Acme;
use crate::handler::chain::{Handler, Handlers, boxed};
use crate::handler::file_step::{Candidate, FileStep};
use crate::handler::gate::closed::Closed;
use crate::handler::https::{HttpsRedirect, HttpsRules};
use crate::handler::mailbox::MailboxEndpoint;
use crate::handler::redirect::{RedirectTo, Rewrite, TargetOf};
use crate::handler::refuse::Refuse;
use crate::handler::script::{IndexScript, Script};
use crate::mailboxes::set::MailboxSet;
use crate::rate_limit::limit::RateLimit;
use crate::route::location::Files;
use crate::upstream::proxy::Proxy;

/// What the handlers of a location are made of, beside its configuration.
pub struct LocationParts<'a> {
    /// The path of its route.
    pub path: Option<&'a Pattern>,
    pub files: Option<&'a Arc<Files>>,
    pub proxy: Option<&'a Arc<Proxy>>,
    pub limits: &'a [Arc<RateLimit>],
    pub is_closed: bool,
}

/// The handlers of a location, in order.
pub fn handlers(
    of: &levity_config::Location,
    parts: &LocationParts<'_>,
    site: &SiteParts,
    resources: &mut Resources<'_>,
) -> io::Result<Handlers> {
    let mut handlers = Handlers::new();
    handlers.extend(acme(site, resources));
    handlers.extend(https(site, resources));
    // A browser sends no credentials with a preflight.
    handlers.extend(of.cors.clone().map(boxed));
    handlers.extend(gates::gates(&of.gates, parts.limits, resources)?);
    handlers.extend(uploads::upload(of, parts.files, parts.proxy.is_some(), resources).map(boxed));
    match &of.answer {
        Some(answer) => {
            let files = parts.files.filter(|_| of.files_first);
            handlers.extend(
                files
                    .into_iter()
                    .flat_map(|files| searches(files, &of.searches())),
            );
            handlers.push(self::answer(of, answer, parts.path, &resources.mailboxes));
        }
        None => {
            let tries = of.proxying.tries.as_deref();
            handlers.extend(tried(tries, parts.files, parts.proxy));
        }
    }
    handlers.extend(parts.is_closed.then(|| boxed(Closed)));
    Ok(handlers)
}

/// The handlers that answer at a location without an answer of its own, in order.
fn tried(
    tries: Option<&[Try]>,
    files: Option<&Arc<Files>>,
    proxy: Option<&Arc<Proxy>>,
) -> Handlers {
    let scripts = |proxy: &Arc<Proxy>| files?.scripts_of(proxy);
    let runs_scripts = proxy.and_then(scripts).is_some();
    let to_proxy = || {
        let script = runs_scripts.then(|| boxed(Script));
        script.into_iter().chain(proxy.cloned().map(boxed))
    };
    let tries = match (tries, files) {
        (Some([Try::File]) | None, Some(files)) if proxy.is_none() => {
            return vec![boxed(files.clone())];
        }
        (None, _) => return to_proxy().collect(),
        (Some(tries), _) => tries,
    };
    let mut handlers = Vec::new();
    for one in tries {
        match one {
            Try::Proxy => handlers.extend(to_proxy()),
            Try::Status(status) => handlers.push(boxed(Refuse(*status))),
            of_files => {
                let is_named = matches!(of_files, Try::File);
                handlers.extend((is_named && runs_scripts).then(|| boxed(IndexScript)));
                let step = files.and_then(|files| file_step(files, of_files, tries));
                handlers.extend(step.map(boxed));
            }
        }
    }
    if !matches!(tries.last(), Some(Try::Proxy | Try::Status(_))) {
        handlers.push(boxed(Refuse(404)));
    }
    handlers
}

/// What answers authorities, for a site that gets its certificates from them.
fn acme(site: &SiteParts, resources: &Resources<'_>) -> Option<Box<dyn Handler>> {
    let tls = site.tls.as_ref();
    let is_theirs = tls.is_some_and(|tls| tls.certificates == Certificates::Acme);
    let challenges = resources.challenges.as_ref().filter(|_| is_theirs);
    challenges.cloned().map(Acme).map(boxed)
}

/// What has requests to a site with TLS come as it says.
fn https(site: &SiteParts, resources: &Resources<'_>) -> Option<Box<dyn Handler>> {
    let tls = site.tls.as_ref()?;
    Some(boxed(HttpsRules {
        client_auth: tls.client_auth.as_ref().map(|_| site.tls_number),
        redirect: tls.redirect.then(|| HttpsRedirect {
            own_port: to_https(resources.https_port),
            usual_port: to_https(None),
        }),
    }))
}

fn to_https(port: Option<u16>) -> RedirectTo {
    RedirectTo {
        status: 308,
        target: TargetOf {
            template: Template(https_url(port)),
            path: None,
        },
    }
}

/// The URL of a request with `https`.
fn https_url(port: Option<u16>) -> Vec<Part> {
    let text = |text: &str| Part::Text(text.to_owned());
    let port = port.map(|port| text(&format!(":{port}")));
    let before = [text("https://"), Part::Host].into_iter().chain(port);
    before.chain([Part::Path, text("?"), Part::Query]).collect()
}

/// The searches of files among `tries`.
fn searches(files: &Arc<Files>, tries: &[Try]) -> Handlers {
    let steps = tries.iter().filter_map(|one| file_step(files, one, tries));
    steps.map(boxed).collect()
}

/// The search of `one` among `tries`; `None` for what is no search of files.
fn file_step(files: &Arc<Files>, one: &Try, tries: &[Try]) -> Option<FileStep> {
    let candidate = match one {
        Try::File if tries.contains(&Try::Directory) => Candidate::File,
        Try::File => Candidate::FileOrIndex,
        Try::FileWith(suffix) => Candidate::WithSuffix(suffix.clone().into_bytes()),
        Try::Directory => Candidate::Folder,
        Try::Path(path) => Candidate::At([&files.strip_prefix, path.as_bytes()].concat()),
        Try::Proxy | Try::Status(_) => return None,
    };
    Some(FileStep {
        files: files.clone(),
        candidate,
    })
}

/// The handler of a location with an answer of its own.
fn answer(
    of: &levity_config::Location,
    answer: &Answer,
    path: Option<&Pattern>,
    sets: &[Arc<MailboxSet>],
) -> Box<dyn Handler> {
    let once = of.files_first;
    let target = |template: &Template| TargetOf {
        template: template.clone(),
        path: path.cloned(),
    };
    match answer {
        Answer::Redirect(redirect) => boxed(RedirectTo {
            status: redirect.status,
            target: target(&redirect.to),
        }),
        Answer::Reroute(to) => boxed(Rewrite {
            to: target(to),
            once,
        }),
        Answer::Fixed(fixed) => boxed(fixed.clone()),
        Answer::Mailbox(number) => boxed(MailboxEndpoint {
            set: sets[*number].clone(),
            prefix: mailbox_prefix(of, path),
        }),
    }
}

/// What precedes the names of boxes in paths: `strip_prefix`, or the folder in which all paths of the route are.
fn mailbox_prefix(of: &levity_config::Location, path: Option<&Pattern>) -> Vec<u8> {
    let folder = || {
        let start = path.map_or("", |path| path.start());
        start
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder)
            .to_owned()
    };
    of.strip_prefix.clone().unwrap_or_else(folder).into_bytes()
}
