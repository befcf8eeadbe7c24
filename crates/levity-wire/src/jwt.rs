//! JSON Web Tokens in the compact form (RFC 7519, RFC 7515), and sets of keys (RFC 7517).
//!
//! The algorithm follows from the key: a key of one kind is never used as one of another. So a token cannot have a public
//! RSA key taken for a secret of HMAC, and `none` is no algorithm.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// The maximum length of a token in bytes; a header is hardly longer.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The minimum length of a secret for HS256 in bytes (RFC 7518, 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// The lengths of RSA moduli in bytes: 2048 to 4096 bits. A longer one would take longer than a loop may compute.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

/// The maximum number of keys in a set.
pub const KEYS_MAX: usize = 64;

/// What signs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// Ed25519.
    EdDsa,
}

/// A token whose signature has not been verified.
#[derive(Debug, Clone, PartialEq)]
pub struct Token<'t> {
    /// What is signed: header and claims, as sent.
    pub signed: &'t [u8],
    /// What the header says.
    pub algorithm: Algorithm,
    /// The key that the header names.
    pub key_id: Option<String>,
    /// The signature.
    pub signature: Vec<u8>,
    /// What it claims.
    pub claims: Claims,
}

/// What a token claims (RFC 7519, 4.1). Times are in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claims {
    /// `exp`: the end of the validity.
    pub expires: Option<f64>,
    /// `nbf`: its start.
    pub not_before: Option<f64>,
    /// `aud`: the recipients; empty without.
    pub audience: Vec<String>,
    /// `iss`: who made it.
    pub issuer: Option<String>,
    /// `sub`: the user.
    pub subject: Option<String>,
    /// All claims, those above included, as they are.
    pub all: Map<String, Value>,
}

/// A key, and the name by which tokens may refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// `kid`
    pub id: Option<String>,
    /// The key itself.
    pub material: Material,
}

/// The bytes of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// For HS256.
    Secret(Vec<u8>),
    /// For RS256: modulus and exponent, without leading zeros.
    Rsa(Vec<u8>, Vec<u8>),
    /// For EdDSA.
    Ed25519([u8; 32]),
}

impl fmt::Debug for Material {
    /// Without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.algorithm(), f)
    }
}

impl Material {
    /// The only algorithm that the key is for.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Secret(_) => Algorithm::Hs256,
            Self::Rsa(..) => Algorithm::Rs256,
            Self::Ed25519(_) => Algorithm::EdDsa,
        }
    }
}

impl Key {
    /// Whether the key may have signed `token`.
    #[must_use]
    pub fn fits(&self, token: &Token<'_>) -> bool {
        let is_named = match (&token.key_id, &self.id) {
            (Some(wanted), Some(own)) => wanted == own,
            _ => true,
        };
        is_named && token.algorithm == self.material.algorithm()
    }
}

/// A token for HS256 before it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned(String);

impl Unsigned {
    /// A token that claims `iss`, if the issuer is given, and `exp`, in seconds since 1970.
    #[must_use]
    pub fn hs256(issuer: Option<&str>, expires: u64) -> Self {
        let mut text = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"HS256"}"#);
        let mut claims = Map::new();
        claims.extend(issuer.map(|issuer| ("iss".to_owned(), issuer.into())));
        claims.insert("exp".to_owned(), expires.into());
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(Value::Object(claims).to_string(), &mut text);
        Self(text)
    }

    /// What is signed: header and claims.
    #[must_use]
    pub fn signed(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The token with the signature of [`Unsigned::signed`]: its HMAC with SHA-256 and the secret.
    #[must_use]
    pub fn with_signature(mut self, signature: &[u8]) -> String {
        self.0.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut self.0);
        self.0
    }
}

/// Reads a token. `None` if it is malformed, of another algorithm, or has extensions that must be understood.
#[must_use]
pub fn parse(token: &[u8]) -> Option<Token<'_>> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let end = token.iter().rposition(|&byte| byte == b'.')?;
    let (signed, signature) = (&token[..end], &token[end + 1..]);
    let mut parts = signed.split(|&byte| byte == b'.');
    let (header, claims) = (object(parts.next()?)?, object(parts.next()?)?);
    if parts.next().is_some() || header.contains_key("crit") {
        return None;
    }
    let algorithm = match header.get("alg")?.as_str()? {
        "HS256" => Algorithm::Hs256,
        "RS256" => Algorithm::Rs256,
        "EdDSA" | "Ed25519" => Algorithm::EdDsa,
        _ => return None,
    };
    Some(Token {
        signed,
        algorithm,
        key_id: text(&header, "kid")?,
        signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        claims: self::claims(&claims)?,
    })
}

fn object(part: &[u8]) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    match serde_json::from_slice(&bytes).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// A member that is a string if it is there.
#[expect(clippy::option_option, reason = "wrong, absent, or a text")]
fn text(object: &Map<String, Value>, name: &str) -> Option<Option<String>> {
    match object.get(name) {
        None => Some(None),
        Some(Value::String(text)) => Some(Some(text.clone())),
        Some(_) => None,
    }
}

/// A member that is a number if it is there.
#[expect(clippy::option_option, reason = "wrong, absent, or a number")]
fn number(object: &Map<String, Value>, name: &str) -> Option<Option<f64>> {
    match object.get(name) {
        None => Some(None),
        Some(value) => value.as_f64().map(Some),
    }
}

fn claims(object: &Map<String, Value>) -> Option<Claims> {
    let audience = match object.get("aud") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => {
            let texts = all.iter().map(|one| one.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>()?
        }
        Some(_) => return None,
    };
    Some(Claims {
        expires: number(object, "exp")?,
        not_before: number(object, "nbf")?,
        audience,
        issuer: text(object, "iss")?,
        subject: text(object, "sub")?,
        all: object.clone(),
    })
}

/// Reads a set of keys (RFC 7517). Keys of other kinds and for other purposes are passed over.
///
/// # Errors
/// A phrase: no set of keys, a key that is malformed or too weak, or none that can be used.
pub fn keys(text: &str) -> Result<Vec<Key>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let list = value.get("keys").and_then(Value::as_array);
    let list = list.ok_or("a set of keys has an array `keys`")?;
    let mut keys = Vec::new();
    for (index, one) in list.iter().enumerate() {
        let key = key(one).map_err(|reason| format!("key {}: {reason}", index + 1))?;
        keys.extend(key);
    }
    match keys.len() {
        0 => Err("it has no key of RSA for RS256, of Ed25519 or for HS256".to_owned()),
        1..=KEYS_MAX => Ok(keys),
        _ => Err(format!("it has more than {KEYS_MAX} keys")),
    }
}

/// A key; `Ok(None)` for one of another kind or purpose.
fn key(value: &Value) -> Result<Option<Key>, &'static str> {
    let member = |name: &str| value.get(name).and_then(Value::as_str);
    let is_for = |algorithms: &[&str]| member("alg").is_none_or(|alg| algorithms.contains(&alg));
    if member("use").is_some_and(|purpose| purpose != "sig") {
        return Ok(None);
    }
    let bytes = |name: &str| {
        let text = member(name).ok_or("a member is missing")?;
        let decoded = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
        decoded.map_err(|_| "a member is not in URL-safe Base64")
    };
    let material = match member("kty").ok_or("`kty` is missing")? {
        "RSA" if is_for(&["RS256"]) => {
            let (modulus, exponent) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
            if !MODULUS_BYTES.contains(&modulus.len()) {
                return Err("a key of RSA has 2048 to 4096 bits");
            }
            Material::Rsa(modulus, exponent)
        }
        "OKP" if member("crv") == Some("Ed25519") && is_for(&["EdDSA", "Ed25519"]) => {
            let point = bytes("x")?.try_into();
            Material::Ed25519(point.map_err(|_| "a key of Ed25519 has 32 bytes")?)
        }
        "oct" if is_for(&["HS256"]) => {
            let secret = bytes("k")?;
            if secret.len() < SECRET_BYTES_MIN {
                return Err("a secret has at least 32 bytes");
            }
            Material::Secret(secret)
        }
        _ => return Ok(None),
    };
    let id = member("kid").map(str::to_owned);
    Ok(Some(Key { id, material }))
}

fn without_zeros(bytes: Vec<u8>) -> Vec<u8> {
    let start = bytes.iter().position(|&byte| byte != 0);
    bytes[start.unwrap_or(bytes.len())..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(header: &str, claims: &str) -> String {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        format!("{header}.{claims}.c2ln")
    }

    #[test]
    fn a_token() {
        let claims = r#"{"exp":1.5,"nbf":1,"aud":["a","b"],"iss":"i","sub":"s","x":{}}"#;
        let text = encoded(r#"{"alg":"RS256","kid":"k","typ":"JWT"}"#, claims);
        let token = parse(text.as_bytes()).expect("a token");
        assert_eq!(
            (token.algorithm, token.key_id.as_deref()),
            (Algorithm::Rs256, Some("k"))
        );
        assert_eq!(
            token.signed,
            text.strip_suffix(".c2ln").unwrap_or_default().as_bytes()
        );
        assert_eq!(token.signature, b"sig");
        let expected = Claims {
            expires: Some(1.5),
            not_before: Some(1.0),
            audience: vec!["a".to_owned(), "b".to_owned()],
            issuer: Some("i".to_owned()),
            subject: Some("s".to_owned()),
            all: token.claims.all.clone(),
        };
        assert_eq!(token.claims, expected);
        assert_eq!(token.claims.all["sub"], "s");
        let text = encoded(r#"{"alg":"EdDSA"}"#, r#"{"aud":"a"}"#);
        assert_eq!(
            parse(text.as_bytes()).expect("a token").claims.audience,
            ["a"]
        );
    }

    #[test]
    fn a_token_is_made() {
        let unsigned = Unsigned::hs256(Some("a \"b\""), 4_102_444_800);
        let signed = unsigned.signed().to_vec();
        let text = unsigned.with_signature(&[0xff; 32]);
        let token = parse(text.as_bytes()).expect("a token");
        assert_eq!(
            (token.signed, token.algorithm),
            (&signed[..], Algorithm::Hs256)
        );
        assert_eq!(token.signature, [0xff; 32]);
        let expected = Claims {
            expires: Some(4_102_444_800.0),
            issuer: Some("a \"b\"".to_owned()),
            all: token.claims.all.clone(),
            ..Claims::default()
        };
        assert_eq!(token.claims, expected);
        assert_eq!(token.claims.all["iss"], "a \"b\"");
        let text = Unsigned::hs256(None, 1).with_signature(b"");
        assert_eq!(text, "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJleHAiOjF9.");
    }

    #[test]
    fn what_is_no_token() {
        for (header, claims) in [
            (r#"{"alg":"none"}"#, "{}"),
            (r#"{"alg":"None"}"#, "{}"),
            (r#"{"alg":"HS512"}"#, "{}"),
            (r#"{"alg":["HS256"]}"#, "{}"),
            ("{}", "{}"),
            ("[]", "{}"),
            ("x", "{}"),
            (r#"{"alg":"HS256"}"#, "[]"),
            (r#"{"alg":"HS256","crit":["b64"]}"#, "{}"),
            (r#"{"alg":"HS256","kid":1}"#, "{}"),
            (r#"{"alg":"HS256"}"#, r#"{"exp":"1"}"#),
            (r#"{"alg":"HS256"}"#, r#"{"exp":null}"#),
            (r#"{"alg":"HS256"}"#, r#"{"nbf":[]}"#),
            (r#"{"alg":"HS256"}"#, r#"{"aud":[1]}"#),
            (r#"{"alg":"HS256"}"#, r#"{"aud":{}}"#),
            (r#"{"alg":"HS256"}"#, r#"{"iss":1}"#),
        ] {
            assert_eq!(
                parse(encoded(header, claims).as_bytes()),
                None,
                "{header} {claims}"
            );
        }
        let whole = encoded(r#"{"alg":"HS256"}"#, "{}");
        for text in [
            String::new(),
            whole.replace('.', ""),
            whole.replace(".c2ln", ""),
            whole.replace("c2ln", "c2ln="),
            format!("{whole}.x"),
            format!("{whole}.{}", "a".repeat(TOKEN_BYTES_MAX)),
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_key_is_for_one_algorithm() {
        let set = format!(
            r#"{{"keys":[{{"kty":"oct","k":"{}","kid":"a"}},{{"kty":"OKP","crv":"Ed25519","x":"{}"}},
             {{"kty":"RSA","n":"{}","e":"AQAB"}},{{"kty":"EC","crv":"P-256"}},
             {{"kty":"RSA","use":"enc"}},{{"kty":"RSA","alg":"RS512"}},{{"kty":"oct","alg":"HS512"}}]}}"#,
            URL_SAFE_NO_PAD.encode([1; 32]),
            URL_SAFE_NO_PAD.encode([2; 32]),
            URL_SAFE_NO_PAD.encode([&[0][..], &[3; 256]].concat()),
        );
        let keys = keys(&set).expect("keys");
        let algorithms: Vec<_> = keys.iter().map(|key| key.material.algorithm()).collect();
        assert_eq!(
            algorithms,
            [Algorithm::Hs256, Algorithm::EdDsa, Algorithm::Rs256]
        );
        assert_eq!(keys[2].material, Material::Rsa(vec![3; 256], vec![1, 0, 1]));
        let fits = |header: &str| {
            let text = encoded(header, "{}");
            let token = parse(text.as_bytes()).expect("a token");
            keys.iter().map(|key| key.fits(&token)).collect::<Vec<_>>()
        };
        assert_eq!(fits(r#"{"alg":"HS256"}"#), [true, false, false]);
        assert_eq!(fits(r#"{"alg":"HS256","kid":"b"}"#), [false, false, false]);
        assert_eq!(fits(r#"{"alg":"RS256","kid":"a"}"#), [false, false, true]);
        assert!(!format!("{keys:?}").contains('3'));
    }

    #[test]
    fn sets_that_cannot_be() {
        for (set, reason) in [
            ("x", "not JSON"),
            ("[]", "an array `keys`"),
            (r#"{"keys":[]}"#, "it has no key"),
            (r#"{"keys":[{"kty":"EC"}]}"#, "it has no key"),
            (r#"{"keys":[{}]}"#, "key 1: `kty` is missing"),
            (
                r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#,
                "2048 to 4096 bits",
            ),
            (
                r#"{"keys":[{"kty":"RSA","n":"AQAB"}]}"#,
                "a member is missing",
            ),
            (
                r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQAB"}]}"#,
                "32 bytes",
            ),
            (
                r#"{"keys":[{"kty":"oct","k":"AQAB"}]}"#,
                "at least 32 bytes",
            ),
            (r#"{"keys":[{"kty":"oct","k":"!"}]}"#, "Base64"),
        ] {
            let error = keys(set).expect_err(set);
            assert!(error.contains(reason), "{set}: {error}");
        }
    }
}
