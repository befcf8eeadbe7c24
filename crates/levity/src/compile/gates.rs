//! Who is let in, and how much is let through.

use std::io;
use std::sync::Arc;

use levity_config::{AddressSet, Config, Gates, Matcher};
use levity_wire::http1;

use super::resources::{Resources, SiteParts};
use crate::credentials::Users;
use crate::handler::chain::{Handlers, boxed};
use crate::handler::gate::access::Access;
use crate::handler::gate::basic_auth::BasicAuth;
use crate::handler::gate::forward_auth::ForwardAuth;
use crate::handler::gate::rate_limits::RateLimits;
use crate::handler::https::{CLIENT_CERT, CLIENT_CERT_CHAIN};
use crate::rate_limit::limit::RateLimit;

/// Headers by which applications know who is let in. A route or site that lets everyone in may lead to the same application
/// as one that does not, so clients may send them nowhere.
pub fn reserved(config: &Config) -> Vec<String> {
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let gates = locations.map(|location| &location.gates);
    let mut names: Vec<_> = gates.flat_map(Gates::told).cloned().collect();
    let mut policies = config.sites.iter().filter_map(|site| site.tls.as_ref());
    if policies.any(|tls| tls.client_auth.is_some()) {
        names.extend([CLIENT_CERT, CLIENT_CERT_CHAIN].map(str::to_owned));
    }
    names
}

/// The gates of a location, in order: those that cost least come first. `limits` come before passwords, whose guesses they
/// bound too.
pub fn gates(
    of: &levity_config::Gates,
    limits: &[Arc<RateLimit>],
    resources: &mut Resources<'_>,
) -> io::Result<Handlers> {
    let access = Access {
        allow: of.allow.clone(),
        deny: of.deny.clone(),
    };
    let refuses = access.allow.is_some() || access.deny != AddressSet::default();
    let basic_auth = of.basic_auth.as_ref();
    let basic_auth = basic_auth
        .map(|settings| resources.basic_auth(settings))
        .transpose()?;
    let forward_auth = of.forward_auth.as_ref();
    let forward_auth = forward_auth
        .map(|settings| resources.forward_auth(settings))
        .transpose()?;
    let list = [
        refuses.then(|| boxed(access)),
        (!limits.is_empty()).then(|| boxed(RateLimits(limits.to_vec()))),
        of.signed_url.clone().map(boxed),
        of.jwt.clone().map(boxed),
        basic_auth.map(boxed),
        forward_auth.map(boxed),
    ];
    Ok(list.into_iter().flatten().collect())
}

/// The limits of a location in the routes that `matchers` select. Locations that inherit a limit share it: its scope is the site,
/// and as many of the routes as it stands in.
pub fn rate_limits(
    of: &levity_config::Location,
    site: &SiteParts,
    matchers: &[Matcher],
    resources: &Resources<'_>,
) -> Vec<Arc<RateLimit>> {
    let limit = |settings: &levity_config::RateLimit| {
        let scope = format!("{:?} {:?}", site.hosts, &matchers[..settings.depth]);
        let registry = resources.rate_limits;
        registry.limit(settings, &scope, resources.rate_limit_bytes)
    };
    of.rate_limits.iter().map(limit).collect()
}

impl Resources<'_> {
    fn basic_auth(&mut self, settings: &levity_config::BasicAuth) -> io::Result<Arc<BasicAuth>> {
        let mut known = self.users.iter();
        if let Some((_, gate)) = known.find(|(known, _)| known == settings) {
            return Ok(gate.clone());
        }
        let gate = Arc::new(BasicAuth {
            users: Users::new(settings)?,
            challenge: format!("Basic realm=\"{}\", charset=\"UTF-8\"", settings.realm),
            pass_authorization: settings.pass_authorization,
            user_header: settings.user_header.clone(),
        });
        self.users.push((settings.clone(), gate.clone()));
        Ok(gate)
    }

    fn forward_auth(&mut self, of: &levity_config::ForwardAuth) -> io::Result<ForwardAuth> {
        // By these two the client may authenticate itself.
        let is_credential =
            |name: &String| http1::is_one_of(name.as_bytes(), &["authorization", "cookie"]);
        // Trusted proxies may not send what it says either.
        let mut remove = self.reserved.clone();
        remove.retain(|name| !is_credential(name));
        Ok(ForwardAuth {
            proxy: self.delegation_target(&of.upstream, &remove)?,
            path: of.path.clone().into_bytes(),
            copy: of.copy.clone(),
            user: of.user.clone(),
        })
    }
}
