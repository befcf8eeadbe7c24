//! `jwt`: JSON Web Tokens.

use std::sync::Arc;

use levity_wire::jwt::{self, Key as VerificationKey, Material};

use super::realm::realm;
use crate::schema::{Key, Kind, documented, key};
use crate::section::{Secret, Section};

/// The maximum length of a file of keys.
const KEYS_BYTES_MAX: u64 = 256 * 1024;

/// `jwt`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    /// Keys, one of which has signed a token; empty when the configuration was not loaded from the disk.
    pub keys: Arc<[VerificationKey]>,
    /// Who has to have made the tokens.
    pub issuer: Option<String>,
    /// Recipients, one of which a token has to name; if there is none, a token may name none.
    pub audience: Vec<String>,
    /// The cookie that may have the token.
    pub cookie: Option<String>,
    /// The parameter of the query that may have the token.
    pub query: Option<String>,
    /// As in [`BasicAuth`](crate::BasicAuth).
    pub realm: String,
    /// The header with the subject of the token, for applications.
    pub user_header: Option<String>,
}

/// `[site.jwt]` and `[site.route.jwt]`
pub(crate) const KEYS: &[Key] = documented! {
    /// A file with the public keys, a JSON Web Key Set (RFC 7517): RSA of 2048 to 4096 bits for RS256, Ed25519 for EdDSA, and
    /// `oct` for HS256. It is read at start and at each reload. This or `secret_file` is required.
    key("keys", Kind::Text("a path"), None);
    /// A file with a secret for HS256 in its first line, at least 32 bytes.
    key("secret_file", Kind::Text("a path"), None).secret();
    /// Who has to have made the tokens: their `iss`.
    key("issuer", Kind::Text("a text"), None);
    /// Recipients, one of which has to be in the `aud` of a token. Without the key a token must have no `aud`: it is meant
    /// for others.
    key("audience", Kind::Names, None);
    /// A cookie that may have the token, where no `Authorization` header with the scheme Bearer has it.
    key("cookie", Kind::Text("a name"), None);
    /// A parameter of the query that may have it, where neither has it. Tokens in URLs end up in logs.
    key("query", Kind::Text("a name"), None);
    /// The realm in refusals.
    key("realm", Kind::Text("a text"), Some("Restricted"));
    /// A header with the `sub` of the token for applications, as in `basic_auth`.
    key("user_header", Kind::Text("the name of a header"), None);
};

/// Reads the table but for its `user_header`; `None` when it is wrong, which has been reported.
pub(crate) fn read(section: &Section<'_>, user_header: Option<String>) -> Option<Jwt> {
    let issuer = section.text("issuer").map(|given| given.text.to_owned());
    let audience = section.names("audience").unwrap_or_default();
    let audience = audience.iter().map(|given| given.text.to_owned());
    let (cookie, query) = (name(section, "cookie"), name(section, "query"));
    let realm = realm(section);
    if section.has("keys") && section.has("secret_file") {
        section.report("secret_file", "`keys` is given too", None);
    }
    if !section.has("secret_file") {
        section.require("keys");
    }
    Some(Jwt {
        issuer,
        audience: audience.collect(),
        cookie,
        query,
        realm,
        user_header,
        keys: keys(section)?.into(),
    })
}

fn keys(section: &Section<'_>) -> Option<Vec<VerificationKey>> {
    if !section.has("keys") {
        return secret(section);
    }
    let (file, text) = section.file_text("keys", KEYS_BYTES_MAX)?;
    let Some(text) = text else {
        return Some(Vec::new());
    };
    let report =
        |reason| section.report("keys", format_args!("{}: {reason}", file.display()), None);
    let found = jwt::keys(&text).map_err(report).ok()?;
    // A set of public keys may be for clients, too.
    let is_secret = |key: &VerificationKey| matches!(key.material, Material::Secret(_));
    if found.iter().any(is_secret) {
        section.withhold("keys", &file);
    }
    Some(found)
}

fn secret(section: &Section<'_>) -> Option<Vec<VerificationKey>> {
    let Secret(bytes) = section.secret_of("secret", jwt::SECRET_BYTES_MIN)?;
    // A file that was not read is no key: everybody knows the empty one.
    let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
    let key = bytes.map(|bytes| VerificationKey {
        id: None,
        material: Material::Secret(bytes),
    });
    Some(key.into_iter().collect())
}

/// The name of a cookie or parameter.
fn name(section: &Section<'_>, key: &str) -> Option<String> {
    let given = section.text(key)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    if given.text.is_empty() || !given.text.bytes().all(is_plain) {
        given.refuse(format!("`{}` is not a name for a token", given.text));
    }
    Some(given.text.to_owned())
}
