//! Who may use a site or route. A gate is inherited by itself: a table that gives the key of one keeps the others of the
//! table around it.

pub(crate) mod jwt;
pub(crate) mod read;
mod realm;
pub(crate) mod signed_url;

use std::path::PathBuf;
use std::sync::Arc;

use levity_wire::htpasswd;

use crate::network::AddressSet;

pub use self::jwt::Jwt;
pub use self::signed_url::{SignatureForm, SignedPart, SignedUrl};

/// The gates of a site or route. A request has to pass each of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gates {
    /// The clients that are let in; `None` lets all in.
    pub allow: Option<AddressSet>,
    /// The clients that are refused, even if `allow` has them.
    pub deny: AddressSet,
    /// URLs with a signature.
    pub signed_url: Option<SignedUrl>,
    /// JSON Web Tokens.
    pub jwt: Option<Jwt>,
    /// Names and passwords.
    pub basic_auth: Option<BasicAuth>,
    /// An application that decides.
    pub forward_auth: Option<ForwardAuth>,
}

/// `forward_auth`: an application that decides about each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The name of the upstream.
    pub upstream: String,
    /// Path and query of the request to it.
    pub path: String,
    /// Names of headers of its responses that go to the application of the location.
    pub copy: Vec<String>,
    /// The name of the header of its responses that names the user.
    pub user: Option<String>,
}

/// `basic_auth`: users with passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicAuth {
    /// What a browser shows. Printable ASCII without `"` and `\`.
    pub realm: String,
    /// The file of the users.
    pub file: PathBuf,
    /// Its users; empty when the configuration was not loaded from the disk.
    pub users: Arc<[htpasswd::Entry]>,
    /// Those that are let in; `None` for all of them.
    pub allow_users: Option<Vec<String>>,
    /// Whether applications get the Authorization header with the password.
    pub pass_authorization: bool,
    /// The header with the name of the user, for applications.
    pub user_header: Option<String>,
}

impl Gates {
    /// Names of headers by which applications, or this server, know who was let in.
    pub fn told(&self) -> impl Iterator<Item = &String> {
        let portal = self.forward_auth.iter();
        let copied = portal.flat_map(|gate| gate.copy.iter().chain(&gate.user));
        let users = self.basic_auth.iter().flat_map(|gate| &gate.user_header);
        let subjects = self.jwt.iter().flat_map(|gate| &gate.user_header);
        copied.chain(users).chain(subjects)
    }

    /// Whether nobody is let in.
    pub(crate) fn refuses_all(&self) -> bool {
        self.deny == AddressSet::everyone()
    }

    /// Whether clients have to prove who they are, be of some networks or of none of some, and `other` asks for nothing of that
    /// kind.
    pub(crate) fn bound_more_than(&self, other: &Self) -> bool {
        let mut both = self.kinds().into_iter().zip(other.kinds());
        both.any(|(own, other)| own && !other)
    }

    /// Whether clients have to prove who they are, be of some networks, and be of none of some.
    pub(crate) fn kinds(&self) -> [bool; 3] {
        let asks_who = self.signed_url.is_some()
            || self.jwt.is_some()
            || self.basic_auth.is_some()
            || self.forward_auth.is_some();
        let denies = self.deny != AddressSet::default();
        [asks_who, self.allow.is_some(), denies]
    }

    /// Whether there is a gate that `above` has not, or has in another form.
    pub(crate) fn adds_to(&self, above: &Self) -> bool {
        let differs = |has_own, is_equal: bool| has_own && !is_equal;
        differs(self.allow.is_some(), self.allow == above.allow)
            || differs(self.deny != AddressSet::default(), self.deny == above.deny)
            || differs(
                self.signed_url.is_some(),
                self.signed_url == above.signed_url,
            )
            || differs(self.jwt.is_some(), self.jwt == above.jwt)
            || differs(
                self.basic_auth.is_some(),
                self.basic_auth == above.basic_auth,
            )
            || differs(
                self.forward_auth.is_some(),
                self.forward_auth == above.forward_auth,
            )
    }
}
