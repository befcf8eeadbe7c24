//! Which locations of a site have the same rules.

use std::sync::Arc;

use levity_config::{Answer, Gates, LocationOptions, Matcher, NamePattern, Symlinks, Try, When};

use crate::rate_limit::limit::RateLimit;
use crate::route::fingerprint::{Asked, Fingerprint};
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
    gates: Vec<&'c Gates>,
    names: Vec<Names<'c>>,
    refusals: Vec<&'c Answer>,
    answers: Vec<Answers<'c>>,
    scripts: Vec<Scripts<'c>>,
    limits: Vec<Vec<Arc<RateLimit>>>,
    uploads: Vec<&'c levity_config::Upload>,
}

/// Which names are sent.
type Names<'c> = (&'c [NamePattern], &'c [NamePattern], Symlinks);

/// What answers to the name of a file that exists.
#[derive(PartialEq, Eq)]
enum Answers<'c> {
    File,
    Application(Option<&'c str>),
    /// What the location of this number says to all requests.
    Own(u32),
}

/// The application that runs scripts, their suffix, the one for all else, and the largest body of their requests.
type Scripts<'c> = (
    Option<&'c str>,
    Option<&'c str>,
    Option<&'c str>,
    Option<usize>,
);

impl<'c> Known<'c> {
    fn fingerprint(&mut self, location: &Location, of: &'c levity_config::Location) -> Fingerprint {
        let refusal = answer(of).filter(|answer| refuses(answer));
        let limits = location.limits().to_vec();
        let is_same = |one: &Vec<Arc<RateLimit>>| {
            one.len() == limits.len() && one.iter().zip(&limits).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let of_limits = self.limits.iter().position(is_same);
        let scripts = scripts(of);
        Fingerprint {
            internal: of.internal,
            refusal: refusal.map_or(0, |answer| 1 + number(&mut self.refusals, answer)),
            gates: match location.is_closed() {
                true => usize::MAX,
                false if of.gates == Gates::default() => 0,
                false => 1 + number(&mut self.gates, &of.gates),
            },
            names: number(&mut self.names, names(&of.options)),
            answer: number(&mut self.answers, answers(location, of)),
            scripts: scripts.map_or(0, |scripts| 1 + number(&mut self.scripts, scripts)),
            limits: of_limits.unwrap_or_else(|| {
                self.limits.push(limits);
                self.limits.len() - 1
            }),
            upload: match location.upload().and(of.upload.as_ref()) {
                Some(upload) => 1 + number(&mut self.uploads, upload),
                None => 0,
            },
        }
    }
}

/// The place of `one` in `known`, where it is added if it is new.
fn number<T: PartialEq>(known: &mut Vec<T>, one: T) -> usize {
    let place = known.iter().position(|other| *other == one);
    place.unwrap_or_else(|| {
        known.push(one);
        known.len() - 1
    })
}

/// Whether everyone is refused.
pub fn refuses(answer: &Answer) -> bool {
    matches!(answer, Answer::Fixed(fixed) if fixed.status >= 400)
}

/// What the location says to requests for files too.
fn answer(of: &levity_config::Location) -> Option<&Answer> {
    of.answer.as_ref().filter(|_| !of.files_first)
}

fn names(options: &LocationOptions) -> Names<'_> {
    (&options.hide, &options.show, options.symlinks)
}

fn answers<'c>(location: &Location, of: &'c levity_config::Location) -> Answers<'c> {
    let tries = of.proxying.tries.as_deref();
    match answer(of) {
        Some(_) => Answers::Own(location.number),
        None if of.asks_files() && tries.is_none_or(|tries| tries.contains(&Try::File)) => {
            Answers::File
        }
        None => Answers::Application(of.proxying.proxy.as_deref()),
    }
}

fn scripts(of: &levity_config::Location) -> Option<Scripts<'_>> {
    let of = &of.proxying;
    let (suffix, index) = (of.script_suffix.as_deref(), of.script_index.as_deref());
    if suffix.is_none() && index.is_none() {
        return None;
    }
    let is_asked = |tries: &Vec<Try>| tries.contains(&Try::Proxy);
    let proxy = of.proxy.as_deref();
    let proxy = proxy.filter(|_| of.tries.as_ref().is_none_or(is_asked));
    Some((proxy, suffix, index, of.body_bytes))
}
