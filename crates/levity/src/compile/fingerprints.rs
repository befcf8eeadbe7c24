//! Which locations of a site have the same rules.

use std::path::Path;
use std::sync::Arc;

use levity_config::{
    AddressSet, Answer, BasicAuth, ForwardAuth, Gates, Jwt, Matcher, NamePattern, SignedUrl,
    Symlinks, Try, When,
};

use crate::rate_limit::limit::RateLimit;
use crate::route::fingerprint::{Asked, Fingerprint, GATES};
use crate::route::location::Location;

/// Gives the locations of a site their fingerprints. `of` are their configurations, in the same order.
pub fn mark<'c>(
    locations: &mut [&mut Location],
    of: &[&'c levity_config::Location],
    matchers: impl Iterator<Item = &'c Matcher>,
) {
    let mut known = Known::default();
    for (location, of) in locations.iter_mut().zip(of) {
        location.fingerprint = known.fingerprint(location, of);
    }
    let first = locations.first().map(|location| location.fingerprint);
    let is_first = |location: &&mut Location| Some(location.fingerprint) == first;
    let asked = if locations.iter().all(is_first) {
        Asked::Never
    } else if matchers.into_iter().any(|one| looks_at_request(&one.when)) {
        Asked::ByRequest
    } else {
        Asked::ByName
    };
    for (position, location) in locations.iter_mut().enumerate() {
        (location.asked, location.position) = (asked, position);
    }
}

/// Whether a condition is about more than the path. Media types are those of names.
fn looks_at_request(when: &When) -> bool {
    *when
        != When {
            types: when.types.clone(),
            ..When::default()
        }
}

/// The rules that were met, each with the number of its place.
#[derive(Default)]
struct Known<'c> {
    allow: Vec<&'c AddressSet>,
    deny: Vec<&'c AddressSet>,
    signed_url: Vec<&'c SignedUrl>,
    jwt: Vec<&'c Jwt>,
    basic_auth: Vec<&'c BasicAuth>,
    forward_auth: Vec<&'c ForwardAuth>,
    refusals: Vec<Refusal<'c>>,
    names: Vec<[&'c [NamePattern]; 2]>,
    roots: Vec<&'c Path>,
    upstreams: Vec<&'c str>,
    limits: Vec<Vec<*const RateLimit>>,
    uploads: Vec<&'c levity_config::Upload>,
}

/// How everyone is refused.
#[derive(PartialEq, Eq)]
enum Refusal<'c> {
    Answer(&'c Answer),
    /// A `try` in which nothing else can answer.
    Status(u16),
    /// Files that it needs do not respond.
    Closed,
}

impl<'c> Known<'c> {
    fn fingerprint(&mut self, location: &Location, of: &'c levity_config::Location) -> Fingerprint {
        let limits = location.limits.iter().map(Arc::as_ptr).collect();
        let options = &of.options;
        let upload = of.uploads().filter(|_| !location.is_closed);
        Fingerprint {
            internal: of.internal,
            refusal: numbered(&mut self.refusals, refusal(location, of)),
            gates: self.gates(&of.gates),
            has_strict_links: options.symlinks == Symlinks::Beneath,
            names: number(&mut self.names, [&options.hide, &options.show]),
            root: numbered(&mut self.roots, of.root.as_deref()),
            application: self.application(of),
            scripts: self.scripts(of),
            limits: number(&mut self.limits, limits),
            upload: numbered(&mut self.uploads, upload),
        }
    }

    fn gates(&mut self, of: &'c Gates) -> [usize; GATES] {
        let deny = Some(&of.deny).filter(|deny| **deny != AddressSet::default());
        [
            numbered(&mut self.allow, of.allow.as_ref()),
            numbered(&mut self.deny, deny),
            numbered(&mut self.signed_url, of.signed_url.as_ref()),
            numbered(&mut self.jwt, of.jwt.as_ref()),
            numbered(&mut self.basic_auth, of.basic_auth.as_ref()),
            numbered(&mut self.forward_auth, of.forward_auth.as_ref()),
        ]
    }

    fn application(&mut self, of: &'c levity_config::Location) -> usize {
        let mut tries = of.proxying.tries.iter().flatten();
        let is_file = of.proxying.tries.is_none() || tries.any(|one| *one == Try::File);
        if of.answer.is_some() || of.asks_files() && is_file {
            return 0;
        }
        upstream(of).map_or(1, |name| 2 + number(&mut self.upstreams, name))
    }

    fn scripts(&mut self, of: &'c levity_config::Location) -> usize {
        let proxying = &of.proxying;
        if proxying.script_suffix.is_none() && proxying.script_index.is_none() {
            return 0;
        }
        upstream(of).map_or(1, |name| 2 + number(&mut self.upstreams, name))
    }
}

/// The upstream that may answer.
fn upstream(of: &levity_config::Location) -> Option<&str> {
    let is_asked = |tries: &Vec<Try>| tries.contains(&Try::Proxy);
    let name = of.proxying.proxy.as_deref();
    name.filter(|_| of.answer.is_none() && of.proxying.tries.as_ref().is_none_or(is_asked))
}

fn refusal<'c>(location: &Location, of: &'c levity_config::Location) -> Option<Refusal<'c>> {
    if location.is_closed {
        return Some(Refusal::Closed);
    }
    if let Some(answer) = &of.answer {
        let refuses = answer.refusal().is_some() && !of.files_first;
        return refuses.then_some(Refusal::Answer(answer));
    }
    let tries = of.proxying.tries.as_ref()?;
    let answers = |one: &Try| one.asks_files() || *one == Try::Proxy;
    match tries.last() {
        Some(Try::Status(status)) if !tries.iter().any(answers) => Some(Refusal::Status(*status)),
        _ => None,
    }
}

/// The place of `one` in `known`, counted from 1, where it is added if it is new; 0 for none.
fn numbered<T: PartialEq>(known: &mut Vec<T>, one: Option<T>) -> usize {
    one.map_or(0, |one| 1 + number(known, one))
}

fn number<T: PartialEq>(known: &mut Vec<T>, one: T) -> usize {
    let place = known.iter().position(|other| *other == one);
    place.unwrap_or_else(|| {
        known.push(one);
        known.len() - 1
    })
}
