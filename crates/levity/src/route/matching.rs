//! Whether a request matches a route.

use levity_config::address::Address;
use levity_config::{Matcher, Network, When};
use levity_wire::mime;

use crate::message::client::Client;
use crate::message::request::Request;

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
        self.mismatch(matchers, path).is_none()
    }

    /// Whether the request would match `matchers` as far as they look at its path, if it were for `path`.
    pub fn matches_name(&self, matchers: &[Matcher], path: &[u8]) -> bool {
        let mut matchers = matchers.iter();
        matchers.all(|matcher| matcher.path.matches(path) && is_of_type(&matcher.when, path))
    }

    /// Whether the request matches `matchers` as far as they look at all else.
    pub fn matches_request(&self, matchers: &[Matcher]) -> bool {
        let mut matchers = matchers.iter();
        matchers.all(|matcher| self.failing(&matcher.when).is_none())
    }

    /// The key of the first condition of `matchers` that does not hold for the request, if it were for `path`.
    pub fn mismatch(&self, matchers: &[Matcher], path: &[u8]) -> Option<&'static str> {
        let mut matchers = matchers.iter();
        matchers.find_map(|matcher| match matcher.path.matches(path) {
            false => Some("path"),
            true if !is_of_type(&matcher.when, path) => Some("type"),
            true => self.failing(&matcher.when),
        })
    }

    /// The key of the first condition besides those about the path that does not hold.
    fn failing(&self, when: &When) -> Option<&'static str> {
        let given = self.request.method();
        // HEAD is GET without content (RFC 9110, 9.3.2), so a rule for one is one for both.
        let is_method =
            |method: &String| method.as_bytes() == given || (method == "GET" && given == b"HEAD");
        let ip = self.client.and_then(|client| client.ip);
        let is_from = |network: &Network| ip.is_some_and(|ip| network.contains(ip));
        if !any_or_none(&when.methods, is_method) {
            Some("method")
        } else if !any_or_none(&when.clients, is_from) {
            Some("client")
        } else if !any_or_none(&when.listen, |address| self.listener == Some(address)) {
            Some("listen")
        } else if !self.has_headers(when) {
            Some("header")
        } else if !self.has_query(when) {
            Some("query")
        } else {
            None
        }
    }

    fn has_headers(&self, when: &When) -> bool {
        when.headers.iter().all(|(name, value)| {
            let mut values = self.request.headers_named(name);
            values.any(|given| value.matches(given))
        })
    }

    fn has_query(&self, when: &When) -> bool {
        when.query.iter().all(|(name, value)| {
            let query = self.request.query().unwrap_or_default();
            let mut pairs = form_urlencoded::parse(query);
            pairs.any(|(given, text)| given == *name && value.matches(text.as_bytes()))
        })
    }
}

/// Whether a file of that name would have one of the media types of `when`.
fn is_of_type(when: &When, path: &[u8]) -> bool {
    let media_type = || mime::of(path).as_bytes();
    any_or_none(&when.types, |types| types.include(media_type()))
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
