//! The gate that lets in whoever has a signed URL, for as long as it is valid. Computes for microseconds.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use levity_config::{SignatureForm, SignedPart, SignedUrl};
use levity_telemetry::stats::GateKind;
use md5::{Digest as _, Md5};
use sha2::Sha256;

use super::super::chain::{Decision, Gate};
use super::super::{Handling, Outcome};
use crate::credentials::password::are_equal;
use crate::http::error::error;
use crate::message::client::Client;
use crate::message::request::Request;

/// Both with and without padding, as nginx reads it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Gate for SignedUrl {
    const KIND: Option<GateKind> = Some(GateKind::SignedUrl);

    /// A signature is about the URL as it was sent, also after a rewrite.
    fn ask<'s>(&'s self, cx: &mut Handling<'s>, request: &Request) -> Decision<'s> {
        let (path, query) = request.sent_path_and_query();
        let query = query.unwrap_or_default();
        let signed = Signed {
            path,
            query,
            client: client_text(cx.client),
        };
        let now = cx.worker.core.clock.wall_time(Instant::now());
        match signed.check(self, now) {
            Ok(()) => Decision::Now(Outcome::Next),
            Err(Refused::Wrong) => {
                cx.explain_refusal("the URL has no signature, or that of another URL");
                error(403, "").into()
            }
            Err(Refused::Expired) => error(410, "the link has expired").into(),
        }
    }

    fn name(&self, _: &Client) -> String {
        "`signed_url`".to_owned()
    }
}

/// As nginx writes it.
fn client_text(client: &Client) -> String {
    let ip = client.ip.map(|ip| ip.to_canonical().to_string());
    ip.unwrap_or_else(|| "unix:".to_owned())
}

/// Why a URL does not let its client in.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// It has no signature, or one of another URL.
    Wrong,
    /// Its signature is right, and its time is over.
    Expired,
}

/// What a signature is about.
struct Signed<'r> {
    /// Decoded.
    path: &'r [u8],
    /// As sent.
    query: &'r [u8],
    client: String,
}

impl Signed<'_> {
    fn check(&self, gate: &SignedUrl, now: SystemTime) -> Result<(), Refused> {
        let expires = match &gate.form {
            SignatureForm::HmacSha256 { with_client } => self.check_hmac(gate, *with_client),
            SignatureForm::Md5(parts) => self.check_md5(gate, parts),
        };
        match expires.ok_or(Refused::Wrong)? {
            Some(until) if now > until => Err(Refused::Expired),
            _ => Ok(()),
        }
    }

    /// The end of the validity; `None` for a wrong signature. It is of the path and of all parameters before it, which
    /// end the query.
    fn check_hmac(&self, gate: &SignedUrl, with_client: bool) -> Option<Option<SystemTime>> {
        // In the text that is signed it would be the end of the path.
        if self.path.contains(&b'?') {
            return None;
        }
        let separator = format!("&{}=", gate.signature);
        let at = memchr::memmem::rfind(self.query, separator.as_bytes())?;
        let (signed, signature) = (&self.query[..at], &self.query[at + separator.len()..]);
        let signature = BASE64.decode(signature).ok()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&gate.secret.0).ok()?;
        for part in [self.path, b"?", signed] {
            mac.update(part);
        }
        if with_client {
            mac.update(b"\n");
            mac.update(self.client.as_bytes());
        }
        mac.verify_slice(&signature).ok()?;
        time(parameter(signed, &gate.expires)?).map(Some)
    }

    /// The same for signatures as those of nginx, where the time may be missing.
    fn check_md5(&self, gate: &SignedUrl, parts: &[SignedPart]) -> Option<Option<SystemTime>> {
        let has_time = parts.contains(&SignedPart::Expires);
        let expires = match has_time {
            true => parameter(self.query, &gate.expires)?,
            false => b"",
        };
        let signature = BASE64
            .decode(parameter(self.query, &gate.signature)?)
            .ok()?;
        let mut hash = Md5::new();
        for part in parts {
            hash.update(match part {
                SignedPart::Text(text) => text.as_bytes(),
                SignedPart::Expires => expires,
                SignedPart::Path => self.path,
                SignedPart::Client => self.client.as_bytes(),
                SignedPart::Secret => &gate.secret.0,
            });
        }
        if !are_equal(&hash.finalize(), &signature) {
            return None;
        }
        match has_time {
            true => time(expires).map(Some),
            false => Some(None),
        }
    }
}

/// The value of the only parameter called `name`, as sent.
fn parameter<'q>(query: &'q [u8], name: &str) -> Option<&'q [u8]> {
    let mut values = query.split(|&byte| byte == b'&').filter_map(|pair| {
        let rest = pair.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    });
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// A number of seconds since 1970.
fn time(digits: &[u8]) -> Option<SystemTime> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let seconds = str::from_utf8(digits)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use levity_config::Secret;

    use super::*;

    /// `printf '%s' '/a b/c?expires=2000000000&x=1' | openssl dgst -sha256 -hmac 0123456789abcdef -binary | basenc --base64url`
    const HMAC: &str = "utfyi_Bi4We82iK1nrmX5lt7xUgxEBb1Ans22DxTp5E=";

    /// `printf '%s' '2000000000/a b/c192.0.2.1 secret' | openssl md5 -binary | basenc --base64url`
    const MD5: &str = "6edBqeqzOff4XkwlmiORPQ==";

    fn gate(form: SignatureForm, secret: &str) -> SignedUrl {
        SignedUrl {
            form,
            secret: Secret(secret.as_bytes().to_vec()),
            signature: "s".to_owned(),
            expires: "expires".to_owned(),
        }
    }

    fn hmac(with_client: bool) -> SignedUrl {
        gate(
            SignatureForm::HmacSha256 { with_client },
            "0123456789abcdef",
        )
    }

    /// That of nginx's documentation.
    fn md5() -> SignedUrl {
        let parts = [
            SignedPart::Expires,
            SignedPart::Path,
            SignedPart::Client,
            SignedPart::Text(" ".to_owned()),
            SignedPart::Secret,
        ];
        gate(SignatureForm::Md5(parts.into()), "secret")
    }

    fn check(gate: &SignedUrl, path: &str, query: &str, now: u64) -> Result<(), Refused> {
        let signed = Signed {
            path: path.as_bytes(),
            query: query.as_bytes(),
            client: "192.0.2.1".to_owned(),
        };
        signed.check(gate, UNIX_EPOCH + Duration::from_secs(now))
    }

    const END: u64 = 2_000_000_000;

    #[test]
    fn signatures_of_openssl_are_right_until_they_expire() {
        let own = (hmac(false), format!("expires={END}&x=1&s={HMAC}"));
        let of_nginx = (md5(), format!("expires={END}&s={MD5}"));
        for (gate, query) in [own, of_nginx] {
            for query in [query.clone(), query.trim_end_matches('=').to_owned()] {
                assert_eq!(check(&gate, "/a b/c", &query, END), Ok(()));
                assert_eq!(
                    check(&gate, "/a b/c", &query, END + 1),
                    Err(Refused::Expired)
                );
                assert_eq!(check(&gate, "/a b/d", &query, 0), Err(Refused::Wrong));
            }
        }
        let swapped = format!("s={MD5}&x=1&expires={END}");
        assert_eq!(check(&md5(), "/a b/c", &swapped, 0), Ok(()));
    }

    #[test]
    fn whatever_is_changed_is_wrong() {
        let query = format!("expires={END}&x=1&s={HMAC}");
        for changed in [
            String::new(),
            query.replace("200", "300"),
            query.replace("x=1", "x=2"),
            query.replace("x=1&", ""),
            query.replace("&s=", "&S="),
            format!("{query}&x=2"),
            format!("{query}&s=x"),
            query.replace(HMAC, ""),
            query.replace(HMAC, &HMAC[..20]),
            query.replace(HMAC, MD5),
        ] {
            assert_eq!(
                check(&hmac(false), "/a b/c", &changed, 0),
                Err(Refused::Wrong),
                "{changed}"
            );
        }
        // The signature is not about the client.
        assert_eq!(check(&hmac(true), "/a b/c", &query, 0), Err(Refused::Wrong));
        let query = format!("expires={END}&s={MD5}");
        for changed in [
            String::new(),
            query.replace("200", "300"),
            query.replace(&format!("expires={END}&"), ""),
            format!("expires=1&{query}"),
            format!("{query}&s={MD5}"),
            query.replace(MD5, HMAC),
        ] {
            assert_eq!(
                check(&md5(), "/a b/c", &changed, 0),
                Err(Refused::Wrong),
                "{changed}"
            );
        }
    }

    #[test]
    fn a_time_is_a_number() {
        assert_eq!(time(b"12"), Some(UNIX_EPOCH + Duration::from_secs(12)));
        for text in ["", "+1", "-1", "1.5", "99999999999999999999", "0x1"] {
            assert_eq!(time(text.as_bytes()), None, "{text}");
        }
    }
}
