//! The rules of what a request finds by another name than it has asked for.
//!
//! Gates, refusals, limits and rules of uploads belong to locations, and locations are found by paths. So a name that was found is
//! routed again, as a request for it would be. Where its location asks for more than the one that has found it, it belongs there.

use std::cell::RefCell;
use std::sync::Arc;

use levity_config::ArchiveForm;

use super::fingerprint::{Asked, Sought};
use super::location::{Files, Location};
use super::{OwnedInput, Route, RouteInput, Service};
use crate::explanation::{Explanation, Topic};
use crate::files::codings;
use crate::files::proof::Proof;

/// The rules of the location that a request has got to, to compare with those of names that it finds.
#[derive(Clone, Copy)]
pub struct Rules<'s, 'r> {
    service: &'s Service,
    location: &'s Location,
    input: RouteInput<'r>,
    /// What is known of the conditions of routes, for many names.
    conditions: Option<&'r Conditions>,
}

impl<'s, 'r> Rules<'s, 'r> {
    /// Those of `location` of `service`, for a request.
    pub fn new(service: &'s Service, location: &'s Location, input: RouteInput<'r>) -> Self {
        Self {
            service,
            location,
            input,
            conditions: None,
        }
    }

    /// Whether a request for `name` has to pass nothing more than one that has got here. It takes the time of a search among the
    /// routes, unless all have the same rules.
    pub fn suffice_for(&self, name: &[u8], sought: Sought) -> bool {
        self.location.asked == Asked::Never
            || self.added_at(name, sought).is_none() && self.of_originals(name).next().is_none()
    }

    /// What [`suffice_for`](Self::suffice_for) would say, as far as it does not depend on the request.
    pub fn proof(&self, name: &[u8], sought: Sought) -> Proof {
        match self.location.asked {
            Asked::ByRequest => Proof::PerRequest,
            Asked::Never | Asked::ByName if self.suffice_for(name, sought) => Proof::Same,
            Asked::Never | Asked::ByName => Proof::Other,
        }
    }

    /// Whether a request for `name` would find it among `files`, those of this location, and may have it in an archive of that
    /// form; the name of a folder ends with a slash.
    pub fn suffice_for_member(&self, name: &[u8], files: &Files, form: ArchiveForm) -> bool {
        let is_folder = name.ends_with(b"/");
        let is_among = |other: &Files| {
            Arc::ptr_eq(&other.root, &files.root)
                && other.strip_prefix == files.strip_prefix
                && (!is_folder || other.listing && other.archives.contains(&form))
        };
        let location = self.route(name);
        location.is_some_and(|location| {
            location.files.as_deref().is_some_and(is_among)
                && self.added_by(location, name, Sought::File).is_none()
                && self.of_originals(name).next().is_none()
        })
    }

    /// The location of a request for `name` if it has the files of this one; else this one.
    pub fn with_files_of(&self, name: &[u8]) -> &'s Location {
        let own = self.location.files.as_deref();
        let is_alike = |location: &&Location| match (location.files.as_deref(), own) {
            (Some(files), Some(own)) => {
                Arc::ptr_eq(&files.root, &own.root) && files.strip_prefix == own.strip_prefix
            }
            _ => false,
        };
        self.route(name).filter(is_alike).unwrap_or(self.location)
    }

    /// Whether whoever may list the folder of `name` may know that name. To be told a name costs nothing, and changes nothing.
    pub fn may_list(&self, name: &[u8]) -> bool {
        let may_list = |location: &Location, name: &[u8]| {
            location.number == self.location.number
                || self.location.fingerprint.may_list(&location.fingerprint)
                    && !hides(location, name)
        };
        let has_listed = |(name, coding)| {
            let location = self.route(name);
            location.is_some_and(|location| {
                !location.has_form(coding) || may_list(location, name) && !hides(location, name)
            })
        };
        self.location.asked == Asked::Never
            || self
                .route(name)
                .is_some_and(|location| may_list(location, name))
                && codings::originals(name).all(has_listed)
    }

    /// Whether the folder `name` is one of an internal location, so that nothing is to be said of it.
    pub fn is_internal(&self, name: &[u8]) -> bool {
        let is_internal = |location: &Location| location.internal && !self.location.internal;
        self.location.asked != Asked::Never && self.route(name).is_some_and(is_internal)
    }

    /// Whether the site has a public route for `name`, and none for `name` with a slash.
    pub fn has_route_only_without_slash(&self, name: &[u8]) -> bool {
        let routes = self.service.sites[self.location.site].routes.len();
        let has_route = |name: &[u8]| {
            let location = self.route(name);
            location.is_some_and(|location| location.position < routes && !location.internal)
        };
        has_route(name) && !has_route(&[name, b"/"].concat())
    }

    /// The files of which `name` would be a compressed form, with their locations, as far as these ask for more: a request for
    /// `name` has to pass them too.
    pub fn of_originals<'n>(
        self,
        name: &'n [u8],
    ) -> impl Iterator<Item = (&'s Location, &'n [u8])> + use<'s, 'r, 'n> {
        // The path of a request is not too long to be compared, and those of its originals are shorter.
        codings::originals(name).filter_map(move |(original, coding)| {
            let location = self.route(original)?;
            let asks = location.has_form(coding)
                && (hides(location, original)
                    || location.asks_about_paths
                    || self.added_by(location, original, Sought::File).is_some()
                    || location.fingerprint.upload != self.location.fingerprint.upload);
            asks.then_some((location, original))
        })
    }

    /// The location of `name`, if that asks for more or lets others write.
    ///
    /// # Errors
    /// For a name that is too long to be compared.
    pub fn elsewhere(&self, name: &[u8]) -> Result<Option<&'s Location>, TooLong> {
        if self.location.asked == Asked::Never {
            return Ok(None);
        }
        let location = self.route(name).ok_or(TooLong)?;
        let is_other = self.added_by(location, name, Sought::File).is_some()
            || location.fingerprint.upload != self.location.fingerprint.upload;
        Ok(is_other.then_some(location))
    }

    /// A copy for later; `service` is that of these rules.
    pub fn to_owned(&self, service: &Arc<Service>) -> OwnedRules {
        OwnedRules {
            service: service.clone(),
            site: self.location.site,
            position: self.location.position,
            input: self.input.to_owned(),
            conditions: Conditions::default(),
        }
    }

    /// As [`to_owned`](Self::to_owned); `None` where all locations of the site have the same rules.
    pub fn to_owned_unless_alike(&self, service: &Arc<Service>) -> Option<OwnedRules> {
        (self.location.asked != Asked::Never).then(|| self.to_owned(service))
    }

    /// Says to which route `name` belongs, which was found for another one, and which of its rules counts.
    pub fn explain(&self, name: &[u8], sought: Sought, explanation: &Explanation) {
        if self.location.asked == Asked::Never {
            return;
        }
        let shown = String::from_utf8_lossy(name);
        let place = match self.route(name) {
            Some(location) if location.number == self.location.number => {
                "the same route".to_owned()
            }
            Some(location) => location.place(),
            None => "no route: it is too long to be compared with them".to_owned(),
        };
        let then = match self.added_at(name, sought) {
            None => "whose rules the request has passed".to_owned(),
            Some(key) => {
                format!("where {key} counts: the request is answered as one for {shown}")
            }
        };
        let text = format!("{shown} was found, and belongs to {place}, {then}");
        explanation.add(Topic::Route, text);
    }

    /// The time that a comparison of a name of so many bytes takes, in bytes that are looked at.
    pub fn work(&self, bytes: usize) -> usize {
        bytes * self.service.expressions_max
    }

    fn added_at(&self, name: &[u8], sought: Sought) -> Option<&'static str> {
        match self.route(name) {
            Some(location) => self.added_by(location, name, sought),
            None => Some("its length"),
        }
    }

    /// The rule by which `location` may keep somebody from what lies at `name`, in words of the configuration.
    fn added_by(&self, location: &Location, name: &[u8], sought: Sought) -> Option<&'static str> {
        if location.number == self.location.number {
            return None;
        }
        let own = &self.location.limits;
        let is_passed = |limit| own.iter().any(|own| Arc::ptr_eq(own, limit));
        let (mine, other) = (&self.location.fingerprint, &location.fingerprint);
        if let Some(rule) = mine.added_by(other, sought) {
            Some(rule)
        } else if !location.limits.iter().all(is_passed) {
            Some("`limit`")
        } else if hides(location, name) {
            Some("`hide` or `show`")
        } else if sought == Sought::File && mine.root == other.root && !sends(location, name) {
            Some("which scripts are run")
        } else {
            None
        }
    }

    /// The location of a request for `name`; `None` if the routes cannot be compared with it without holding up the loop.
    fn route(&self, name: &[u8]) -> Option<&'s Location> {
        self.service.check_matched(name.len()).ok()?;
        let site = &self.service.sites[self.location.site];
        let Some(conditions) = self.conditions else {
            return Some(site.location(name, self.input));
        };
        let route = site.first_route(name, |number| {
            let matchers = &site.routes[number].matchers;
            self.input.matches_name(matchers, name) && conditions.hold(number, site, self.input)
        });
        Some(site.at(route.unwrap_or(site.routes.len())))
    }
}

/// A name that is too long to be compared with the routes.
pub struct TooLong;

/// Whether a request for `name` at `location` gets 404 because of a part of its name.
fn hides(location: &Location, name: &[u8]) -> bool {
    let files = location.files.as_deref();
    files.is_some_and(|files| files.hidden_name(files.beneath(name)).is_some())
}

/// Whether the file at `name` is no script at `location`, whose source is not sent there.
fn sends(location: &Location, name: &[u8]) -> bool {
    let files = location.files.as_deref();
    files.is_none_or(|files| files.shows(files.beneath(name)))
}

/// Whether the conditions of the routes of a site that are not about the path hold for a request, as far as that was asked. A request
/// may have thousands of headers and parameters, and a folder thousands of names.
#[derive(Default)]
struct Conditions(RefCell<Vec<Option<bool>>>);

impl Conditions {
    fn hold(&self, number: usize, site: &super::Site, input: RouteInput<'_>) -> bool {
        let mut known = self.0.borrow_mut();
        known.resize(site.routes.len(), None);
        let Route { matchers, .. } = &site.routes[number];
        *known[number].get_or_insert_with(|| input.matches_request(matchers))
    }
}

/// [`Rules`] for later than the request.
pub struct OwnedRules {
    service: Arc<Service>,
    site: usize,
    position: usize,
    input: OwnedInput,
    conditions: Conditions,
}

impl OwnedRules {
    /// As they were for the request.
    pub fn rules(&self) -> Rules<'_, '_> {
        Rules {
            service: &self.service,
            location: self.service.sites[self.site].at(self.position),
            input: self.input.input(),
            conditions: Some(&self.conditions),
        }
    }
}
