//! Whether a request matches a route.

use levity_config::address::Address;
use levity_config::{Matcher, When};
use levity_wire::mime;

use crate::http::client::Client;
use crate::http::request::Request;

/// What routes look at.
#[derive(Clone, Copy)]
pub struct RouteInput<'a> {
    /// The request.
    pub request: &'a Request,
    /// Its client; `None` for a request of the server itself.
    pub client: Option<&'a Client>,
    /// The listener that the client connected to, if known.
    pub listener: Option<&'a Address>,
}

impl<'a> RouteInput<'a> {
    /// That of a request without client.
    pub fn of(request: &'a Request) -> Self {
        Self {
            request,
            client: None,
            listener: None,
        }
    }

    /// A copy.
    pub fn to_owned(self) -> OwnedInput {
        OwnedInput {
            request: self.request.clone(),
            client: self.client.copied(),
            listener: self.listener.cloned(),
        }
    }

    /// Whether the request would match all of `matchers`, if it were for `path`.
    pub fn matches(&self, matchers: &[Matcher], path: &[u8]) -> bool {
        matchers
            .iter()
            .all(|matcher| matcher.path.matches(path) && self.holds(&matcher.when, path))
    }

    fn holds(&self, when: &When, path: &[u8]) -> bool {
        let given = self.request.method();
        // HEAD is GET without content (RFC 9110, 9.3.2), so a rule for one is one for both.
        let is_method =
            |method: &String| method.as_bytes() == given || (method == "GET" && given == b"HEAD");
        let ip = self.client.and_then(|client| client.ip);
        let media_type = || mime::of(path).as_bytes();
        any_or_none(&when.methods, is_method)
            && any_or_none(&when.clients, |network| {
                ip.is_some_and(|ip| network.contains(ip))
            })
            && any_or_none(&when.listen, |address| self.listener == Some(address))
            && any_or_none(&when.types, |types| types.include(media_type()))
            && when.headers.iter().all(|(name, value)| {
                let mut values = self.request.headers_named(name);
                values.any(|given| value.matches(given))
            })
            && when.query.iter().all(|(name, value)| {
                let query = self.request.query().unwrap_or_default();
                let mut pairs = form_urlencoded::parse(query);
                pairs.any(|(given, text)| given == *name && value.matches(text.as_bytes()))
            })
    }
}

/// What routes look at, for later than the request.
pub struct OwnedInput {
    request: Request,
    client: Option<Client>,
    listener: Option<Address>,
}

impl OwnedInput {
    /// As it was for the request.
    pub fn input(&self) -> RouteInput<'_> {
        RouteInput {
            request: &self.request,
            client: self.client.as_ref(),
            listener: self.listener.as_ref(),
        }
    }
}

/// Whether one of `list` holds; an empty list holds.
fn any_or_none<T>(list: &[T], holds: impl FnMut(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(holds)
}
