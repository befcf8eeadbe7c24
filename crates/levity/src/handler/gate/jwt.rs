//! The gate that asks for a JSON Web Token (RFC 7519, RFC 6750). The event loop verifies codes of HS256. With a public
//! key it takes a tenth of a millisecond for each key that is tried, so the pool of threads does it.

use std::time::{Duration, Instant, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use levity_compute::Class;
use levity_config::Jwt;
use levity_telemetry::stats::GateKind;
use levity_wire::jwt::{self, Claims, Key, Material, Token};
use sha2::Sha256;

use super::super::chain::{Asked, Decision, Gate, Waiting, Waits};
use super::super::{Handling, Outcome};
use crate::http::error::error;
use crate::http::response::Response;
use crate::loop_core::compute::Panicked;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::tls::signature;

/// The maximum number of keys that are tried for a token that names none.
const TRIES_MAX: usize = 4;

/// The estimated processor time with one public key.
const TRY_TIME: Duration = Duration::from_micros(100);

/// The difference of clocks that is tolerated, in seconds.
const LEEWAY_S: f64 = 30.0;

impl Gate for Jwt {
    const KIND: Option<GateKind> = Some(GateKind::Jwt);

    fn ask<'s>(&'s self, cx: &mut Handling<'s>, request: &Request) -> Decision<'s> {
        let Some(given) = find(request, self) else {
            cx.explain_refusal("the request has no token");
            return challenge(self, "").into();
        };
        match has_public(&self.keys) {
            false => Decision::Now(cx.verified(verified(given, &self.keys), self)),
            true => Decision::Wait(self),
        }
    }

    fn name(&self, _: &Client) -> String {
        "`jwt`".to_owned()
    }
}

impl Waits for Jwt {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.verify_token(asked.request, self))
    }
}

impl<'a> Handling<'a> {
    /// Has the token of the request verified by the pool.
    async fn verify_token(&mut self, request: &Request, gate: &'a Jwt) -> Outcome<'a> {
        let token = find(request, gate).expect("a request without a token is refused at once");
        let (token, keys) = (token.to_vec(), gate.keys.clone());
        let cost = TRY_TIME * keys.len().min(TRIES_MAX) as u32;
        let work = move || verified(&token, &keys);
        let (compute, stream) = (&self.worker.core.compute, self.disk.connection());
        match compute.run(Class::Response, stream, cost, work).await {
            Ok(computed) => self.verified(computed.value, gate),
            Err(Panicked) => Outcome::Response(error(500, "")),
        }
    }

    /// Lets the request through if it has a token with a valid signature, with these claims, and the gate accepts them.
    fn verified(&mut self, claims: Option<Claims>, gate: &'a Jwt) -> Outcome<'a> {
        let now_s = self.now_s();
        let Some(claims) = claims.filter(|claims| holds(claims, gate, now_s)) else {
            let reason = "the token has no valid signature, or is not for this gate and time";
            self.explain_refusal(reason);
            return Outcome::Response(challenge(gate, ", error=\"invalid_token\""));
        };
        let user = claims.subject.unwrap_or_default().into_bytes();
        self.identity.set_user(user, gate.user_header.as_ref());
        self.identity.claims = Some(Box::new(claims.all));
        Outcome::Next
    }
}

impl Handling<'_> {
    /// How long the token of the client will be accepted; `None` without a token.
    #[cfg(feature = "mailbox")]
    pub(in super::super) fn token_time_left(&self) -> Option<std::time::Duration> {
        let ends_s = self.identity.claims.as_ref()?.get("exp")?.as_f64()?;
        let left_s = (ends_s + LEEWAY_S - self.now_s()).max(0.0);
        let left = std::time::Duration::try_from_secs_f64(left_s);
        Some(left.unwrap_or(std::time::Duration::MAX))
    }

    /// The present time in seconds since 1970.
    pub(in super::super) fn now_s(&self) -> f64 {
        let now = self.worker.core.clock.wall_time(Instant::now());
        let since = now.duration_since(UNIX_EPOCH);
        since.map_or(0.0, |since| since.as_secs_f64())
    }
}

/// The token of the request: from Authorization, else from the cookie or the parameter of the gate.
fn find<'r>(request: &'r Request, gate: &Jwt) -> Option<&'r [u8]> {
    let cookie = || {
        let name = gate.cookie.as_deref()?;
        let cookies = request.headers_named("cookie");
        cookies
            .flat_map(|line| line.split(|&byte| byte == b';'))
            .find_map(|pair| value(pair.trim_ascii(), name))
    };
    let parameter = || {
        let name = gate.query.as_deref()?;
        let mut pairs = request.query()?.split(|&byte| byte == b'&');
        pairs.find_map(|pair| value(pair, name))
    };
    request.bearer().or_else(cookie).or_else(parameter)
}

/// What follows `NAME=`.
fn value<'p>(pair: &'p [u8], name: &str) -> Option<&'p [u8]> {
    pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Whether one of `keys` takes long to verify with.
fn has_public(keys: &[Key]) -> bool {
    let is_secret = |key: &Key| matches!(key.material, Material::Secret(_));
    !keys.iter().all(is_secret)
}

/// The claims of a token that one of `keys` has signed.
fn verified(given: &[u8], keys: &[Key]) -> Option<Claims> {
    let token = jwt::parse(given)?;
    let mut fitting = keys.iter().filter(|key| key.fits(&token)).take(TRIES_MAX);
    let is_valid = fitting.any(|key| has_signed(key, &token));
    is_valid.then_some(token.claims)
}

fn has_signed(key: &Key, token: &Token<'_>) -> bool {
    match &key.material {
        Material::Secret(secret) => has_mac(secret, token),
        public => signature::has_signed(public, token),
    }
}

/// Whether the token has the code of HS256 with this secret.
pub fn has_mac(secret: &[u8], token: &Token<'_>) -> bool {
    Hmac::<Sha256>::new_from_slice(secret).is_ok_and(|mut mac| {
        mac.update(token.signed);
        mac.verify_slice(&token.signature).is_ok()
    })
}

/// Whether the token is for this gate, and for now. One without an end would be valid forever, so there has to be one.
fn holds(claims: &Claims, gate: &Jwt, now_s: f64) -> bool {
    let is_current = claims.expires.is_some_and(|end| now_s < end + LEEWAY_S)
        && claims
            .not_before
            .is_none_or(|start| start <= now_s + LEEWAY_S);
    let is_by = gate.issuer.is_none() || claims.issuer == gate.issuer;
    // A token for others is refused also where nothing is configured (RFC 7519, 4.1.3).
    let is_for = match gate.audience.is_empty() {
        true => claims.audience.is_empty(),
        false => claims
            .audience
            .iter()
            .any(|one| gate.audience.contains(one)),
    };
    is_current && is_by && is_for
}

fn challenge(gate: &Jwt, reason: &str) -> Response {
    let mut response = error(401, "");
    let challenge = format!("Bearer realm=\"{}\"{reason}", gate.realm);
    response
        .fields
        .add("WWW-Authenticate", challenge.as_bytes());
    response
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    /// Made by openssl.
    const KEYS: &str = r#"{"keys":[{"kty":"RSA","kid":"r","e":"AQAB","n":"sIdYsfQ8M1aaSXizeuO4-oiTA00v5C5pai-3jhC5umIe7yAHFZdv440oIWNZ5GvtQ6g5gsl9_tVE6aAL_q_frQV4BN0IEok2J69FQCaAwigqqWiBf7D-nNW5gy-teAyVd0I0-0-6U8rsdsQ4AxNMQfbwAvCXp0o2-qoaXWni7RBcNBGcu47rpcrdL-Ebw5VXbsbMm254iPBC5BUnXqKaguw7tJ9MQoi7_J_qZIoWz2L0r1AuE9mv_24j8vcPGjJTruYiMbaKdqyq68FHzRf0Rd4hFPUjhjRy4Vt1XIrmSgO2c3iXt2ppPk9Qw7DpF66Hg_s8xHD-JQ_mOrGjQQ8fEQ"},{"kty":"OKP","crv":"Ed25519","kid":"e","x":"eqL6B8MZWKAXd9ZMc4PKi2jxj1ilrv4V7BK_htcQzFE"}]}"#;

    /// By `ann` for `app` and `other`, from 2001 to 2100.
    const RS256: &str = "eyJhbGciOiAiUlMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAiciJ9.eyJzdWIiOiAiYW5uIiwgImlzcyI6ICJodHRwczovL2lkLmV4YW1wbGUiLCAiYXVkIjogWyJhcHAiLCAib3RoZXIiXSwgImV4cCI6IDQxMDI0NDQ4MDAsICJuYmYiOiAxMDAwMDAwMDAwfQ.naSutj8RajAwpX3qWo3Z0A26ZcJsQ8jMStKk5VAw8zG2U1i4ffQg1xOc7TG_8SjhCeHeC6SvOfuCbIgU-CdM_0RktlLuWnjk7QAxhHIpJOMHfce7jsQKWDNZjYP3mHBEw6dFq5MmLemRqU_BBcFdya_zZRGpO876MpEWbvmhaL731-7RWjZ4xsUPNvLRafwjw7Kl7Z0R4Uw0g08V-6Lw_fIdIxkco38tHohvMmYCmCCLwwQry5O_6DUUUT-KxBHrLtjwbV6K3AcyGrUBkJI8GWYT6DG5xAiEDvJuVTFf7qNvQXEbOhDfIwediucUFqaN3azXzH71bOWYp14GLcwgyQ";

    const EDDSA: &str = "eyJhbGciOiAiRWREU0EiLCAidHlwIjogIkpXVCIsICJraWQiOiAiZSJ9.eyJzdWIiOiAiYW5uIiwgImlzcyI6ICJodHRwczovL2lkLmV4YW1wbGUiLCAiYXVkIjogWyJhcHAiLCAib3RoZXIiXSwgImV4cCI6IDQxMDI0NDQ4MDAsICJuYmYiOiAxMDAwMDAwMDAwfQ.5-s2iaQWcf2f2KyE_NWaeS4RGUw4ZKO9O2SPROEMGf-UQs6yIwZzgvKnuYFN59vBcT3wh50UL2QEcf4z56GECA";

    const NOW: f64 = 2_000_000_000.0;

    fn gate(keys: &str) -> Jwt {
        Jwt {
            keys: jwt::keys(keys).expect("keys").into(),
            issuer: Some("https://id.example".to_owned()),
            audience: vec!["app".to_owned()],
            cookie: None,
            query: None,
            realm: String::new(),
            user_header: None,
        }
    }

    fn accepted(token: &str, gate: &Jwt, now_s: f64) -> Option<Claims> {
        let claims = verified(token.as_bytes(), &gate.keys)?;
        holds(&claims, gate, now_s).then_some(claims)
    }

    fn is_accepted(token: &str, gate: &Jwt, now_s: f64) -> bool {
        accepted(token, gate, now_s).is_some()
    }

    #[test]
    fn tokens_of_openssl() {
        let gate = gate(KEYS);
        for token in [RS256, EDDSA] {
            let claims = accepted(token, &gate, NOW).expect("accepted");
            assert_eq!(claims.subject.as_deref(), Some("ann"));
            let parts: Vec<&str> = token.split('.').collect();
            let other = [EDDSA, RS256][usize::from(token == EDDSA)];
            let foreign = other.rsplit('.').next().expect("a signature");
            for changed in [
                token[..token.len() - 4].to_owned(),
                format!("{}.{}.", parts[0], parts[1]),
                format!("{}.{}.{foreign}", parts[0], parts[1]),
                format!(
                    "{}.{}.{}",
                    parts[0],
                    parts[1].replacen('I', "J", 1),
                    parts[2]
                ),
            ] {
                assert!(!is_accepted(&changed, &gate, NOW), "{changed}");
            }
        }
    }

    #[test]
    fn times_issuer_and_audience() {
        let right = gate(KEYS);
        let (start, end) = (1_000_000_000.0, 4_102_444_800.0);
        for (now_s, expected) in [
            (start - LEEWAY_S - 1.0, false),
            (start - LEEWAY_S, true),
            (end + LEEWAY_S - 1.0, true),
            (end + LEEWAY_S, false),
        ] {
            assert_eq!(is_accepted(EDDSA, &right, now_s), expected, "{now_s}");
        }
        let no_one = Claims::default();
        assert!(!holds(&no_one, &right, NOW));
        let mut other = right.clone();
        other.issuer = Some("https://evil.example".to_owned());
        assert!(!is_accepted(EDDSA, &other, NOW));
        for (audience, expected) in [
            (vec![], false),
            (vec!["x"], false),
            (vec!["x", "other"], true),
        ] {
            let mut other = right.clone();
            other.audience = audience
                .iter()
                .map(|one: &&str| (*one).to_owned())
                .collect();
            assert_eq!(is_accepted(EDDSA, &other, NOW), expected, "{audience:?}");
        }
    }

    /// A public key is known to everyone. It must not be taken for a secret.
    #[test]
    fn a_public_key_is_no_secret() {
        use base64::Engine as _;
        use base64::prelude::BASE64_URL_SAFE_NO_PAD;
        let gate = gate(KEYS);
        let claims = RS256.split('.').nth(1).expect("claims");
        for key in gate.keys.iter() {
            let bytes = match &key.material {
                Material::Rsa(n, _) => n.clone(),
                Material::Ed25519(x) => x.to_vec(),
                Material::Secret(_) => unreachable!("there is none"),
            };
            for secret in [&bytes[..], KEYS.as_bytes()] {
                let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
                let signed = format!("{header}.{claims}");
                let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key");
                mac.update(signed.as_bytes());
                let signature = BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
                assert!(!is_accepted(&format!("{signed}.{signature}"), &gate, NOW));
            }
        }
    }
}
