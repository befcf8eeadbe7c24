//! The rules of what a request finds by another name than it has asked for.
//!
//! Gates, refusals, limits and rules of uploads belong to locations, and locations are found by paths. So a name that was found is
//! routed again, as a request for it would be: it has the rules of the location that was asked, or it belongs elsewhere.

use std::sync::Arc;

use levity_config::ArchiveForm;

use super::fingerprint::Asked;
use super::location::{Files, Location};
use super::{OwnedInput, RouteInput, Service};
use crate::codings;
use crate::explanation::{Explanation, Topic};
use crate::proof::Proof;

/// The rules of the location that a request has got to, to compare with those of names that it finds.
#[derive(Clone, Copy)]
pub struct Rules<'s, 'r> {
    service: &'s Service,
    location: &'s Location,
    input: RouteInput<'r>,
}

impl<'s, 'r> Rules<'s, 'r> {
    /// Those of `location` of `service`, for a request.
    pub fn new(service: &'s Service, location: &'s Location, input: RouteInput<'r>) -> Self {
        Self {
            service,
            location,
            input,
        }
    }

    /// Whether what lies at `name` has these rules. It takes the time of a search among the routes, unless all have the same.
    pub fn are_of(&self, name: &[u8]) -> bool {
        let has_same = |name: &[u8]| {
            let location = self.route(name);
            location.is_some_and(|location| self.is_same(location))
        };
        self.location.asked == Asked::Never
            || has_same(name) && self.of_originals(name).next().is_none()
    }

    /// What [`are_of`](Self::are_of) would say, as far as it does not depend on the request.
    pub fn proof(&self, name: &[u8]) -> Proof {
        match self.location.asked {
            Asked::ByRequest => Proof::PerRequest,
            Asked::Never | Asked::ByName if self.are_of(name) => Proof::Same,
            Asked::Never | Asked::ByName => Proof::Other,
        }
    }

    /// Whether a request for `name` would find it among `files`, those of this location, and may have it in an archive of that
    /// form; the name of a folder ends with a slash.
    pub fn are_of_member(&self, name: &[u8], files: &Files, form: ArchiveForm) -> bool {
        let is_folder = name.ends_with(b"/");
        let is_among = |other: &Files| {
            Arc::ptr_eq(&other.root, &files.root)
                && other.strip_prefix == files.strip_prefix
                && (!is_folder || other.listing && other.archives.contains(&form))
        };
        let location = self.route(name);
        let files = location.and_then(|location| location.files.as_deref());
        files.is_some_and(is_among) && self.are_of(name)
    }

    /// Whether whoever may list the folder of `name` may know that name.
    pub fn may_list(&self, name: &[u8]) -> bool {
        let may_list = |location: &Location| {
            let files = location.files.as_deref();
            let is_hidden = |files: &Files| files.hidden_name(files.beneath(name)).is_some();
            let own = &self.location.fingerprint;
            own.may_list(&location.fingerprint) && !files.is_some_and(is_hidden)
        };
        self.location.asked == Asked::Never
            || self.route(name).is_some_and(|location| {
                location.number == self.location.number || may_list(location)
            })
    }

    /// The files of which `name` would be a compressed form, with their locations, as far as these have other rules: a request
    /// for `name` has to pass them too.
    pub fn of_originals<'n>(
        self,
        name: &'n [u8],
    ) -> impl Iterator<Item = (&'s Location, &'n [u8])> + use<'s, 'r, 'n> {
        let originals = (self.location.asked != Asked::Never).then(|| codings::originals(name));
        originals
            .into_iter()
            .flatten()
            .filter_map(move |(original, coding)| {
                let location = self.route(original)?;
                (location.has_form(coding) && !self.is_same(location))
                    .then_some((location, original))
            })
    }

    /// The location of `name`, if that has other rules.
    pub fn elsewhere(&self, name: &[u8]) -> Option<&'s Location> {
        if self.location.asked == Asked::Never {
            return None;
        }
        self.route(name).filter(|location| !self.is_same(location))
    }

    /// A copy for later; `service` is that of these rules.
    pub fn to_owned(&self, service: &Arc<Service>) -> OwnedRules {
        OwnedRules {
            service: service.clone(),
            site: self.location.site,
            position: self.location.position,
            input: self.input.to_owned(),
        }
    }

    /// As [`to_owned`](Self::to_owned); `None` where all locations of the site have the same rules.
    pub fn to_owned_unless_alike(&self, service: &Arc<Service>) -> Option<OwnedRules> {
        (self.location.asked != Asked::Never).then(|| self.to_owned(service))
    }

    /// Says to which route `name` belongs, which was found for another one, and which of its rules differ.
    pub fn explain(&self, name: &[u8], explanation: &Explanation) {
        if self.location.asked == Asked::Never {
            return;
        }
        let shown = String::from_utf8_lossy(name);
        let text = match self.route(name) {
            Some(location) if location.number == self.location.number => {
                format!("{shown}, which was found, belongs to the same one")
            }
            Some(location) => {
                let place = location.place();
                match self.location.fingerprint.difference(&location.fingerprint) {
                    None => {
                        format!("{shown}, which was found, belongs to {place}: with the same rules")
                    }
                    Some(key) => {
                        format!("{shown}, which was found, belongs to {place}: there {key} differs")
                    }
                }
            }
            None => format!("{shown}, which was found, is too long to be compared with the routes"),
        };
        explanation.add(Topic::Route, text);
    }

    /// The time that a comparison of a name of so many bytes takes, in bytes that are looked at.
    pub fn work(&self, bytes: usize) -> usize {
        bytes * self.service.expressions_max
    }

    fn is_same(&self, location: &Location) -> bool {
        location.number == self.location.number || location.fingerprint == self.location.fingerprint
    }

    /// The location of a request for `name`; `None` if the routes cannot be compared with it without holding up the loop. That
    /// may be for one request as often as it is for those of its own path.
    fn route(&self, name: &[u8]) -> Option<&'s Location> {
        self.service.check_matched(2 * name.len()).ok()?;
        Some(self.service.sites[self.location.site].location(name, self.input))
    }
}

/// [`Rules`] for later than the request.
pub struct OwnedRules {
    service: Arc<Service>,
    site: usize,
    position: usize,
    input: OwnedInput,
}

impl OwnedRules {
    /// As they were for the request.
    pub fn rules(&self) -> Rules<'_, '_> {
        Rules {
            service: &self.service,
            location: self.service.sites[self.site].at(self.position),
            input: self.input.input(),
        }
    }
}
