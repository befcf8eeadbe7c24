//! The handlers behind the gates, in order. A handler that is new gets its line here.

use std::sync::Arc;

use levity_acme::challenges::Challenges;
use levity_config::tls::{Certificates, SiteTls};
use levity_config::{Answer, Part, Pattern, Template, Try};

use crate::mailboxes::set::MailboxSet;
use crate::route::location::{
    Candidate, FileStep, Files, Handler, HttpsRedirect, HttpsRules, MailboxEndpoint, RedirectTo,
    TargetOf,
};
use crate::upstream::proxy::Proxy;

/// The handlers of a location without an answer, in order.
pub fn handlers(
    tries: Option<&[Try]>,
    files: Option<&Arc<Files>>,
    proxy: Option<&Arc<Proxy>>,
) -> Vec<Handler> {
    let scripts = |proxy: &Arc<Proxy>| files?.scripts_of(proxy);
    let runs_scripts = proxy.and_then(scripts).is_some();
    let to_proxy = || {
        let script = runs_scripts.then_some(Handler::Script);
        script.into_iter().chain(proxy.cloned().map(Handler::Proxy))
    };
    let tries = match (tries, files) {
        (Some([Try::File]) | None, Some(files)) if proxy.is_none() => {
            return vec![Handler::Files(files.clone())];
        }
        (None, _) => return to_proxy().collect(),
        (Some(tries), _) => tries,
    };
    let mut handlers = Vec::new();
    for one in tries {
        match one {
            Try::Proxy => handlers.extend(to_proxy()),
            Try::Status(status) => handlers.push(Handler::Refuse(*status)),
            of_files => {
                let is_named = matches!(of_files, Try::File);
                handlers.extend((is_named && runs_scripts).then_some(Handler::IndexScript));
                let step = files.and_then(|files| file_step(files, of_files, tries));
                handlers.extend(step.map(Handler::ExistingFile));
            }
        }
    }
    if !matches!(tries.last(), Some(Try::Proxy | Try::Status(_))) {
        handlers.push(Handler::Refuse(404));
    }
    handlers
}

/// What answers authorities, for a site that gets its certificates from them.
pub fn acme(tls: Option<&SiteTls>, challenges: Option<&Arc<Challenges>>) -> Option<Handler> {
    let is_theirs = tls.is_some_and(|tls| tls.certificates == Certificates::Acme);
    challenges.filter(|_| is_theirs).cloned().map(Handler::Acme)
}

/// What has requests to the site of this number among those with TLS come as it says; `port` is that of HTTPS, unless it is the
/// usual one.
pub fn https(tls: &SiteTls, number: usize, port: Option<u16>) -> Handler {
    Handler::Https(HttpsRules {
        client_auth: tls.client_auth.as_ref().map(|_| number),
        redirect: tls.redirect.then(|| HttpsRedirect {
            own_port: to_https(port),
            usual_port: to_https(None),
        }),
    })
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
pub fn searches(files: &Arc<Files>, tries: &[Try]) -> Vec<Handler> {
    let steps = tries.iter().filter_map(|one| file_step(files, one, tries));
    steps.map(Handler::ExistingFile).collect()
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
pub fn answer(
    of: &levity_config::Location,
    answer: &Answer,
    path: Option<&Pattern>,
    sets: &[Arc<MailboxSet>],
) -> Handler {
    let is_once = of.files_first;
    let target = |template: &Template| TargetOf {
        template: template.clone(),
        path: path.cloned(),
    };
    match answer {
        Answer::Redirect(redirect) => Handler::Redirect(RedirectTo {
            status: redirect.status,
            target: target(&redirect.to),
        }),
        Answer::Reroute(to) if is_once => Handler::RewriteOnce(target(to)),
        Answer::Reroute(to) => Handler::Rewrite(target(to)),
        Answer::Fixed(fixed) => Handler::Respond(fixed.clone()),
        Answer::Mailbox(number) => Handler::Mailbox(MailboxEndpoint {
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
