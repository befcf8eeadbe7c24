//! `signed_url`: URLs that let their clients in for some time.

use crate::schema::{Key, Kind, documented, key};
use crate::section::{Secret, Section, Text};

/// The minimum length of a secret for HMAC: 128 bits, if its bytes are random.
const SECRET_BYTES_MIN: usize = 16;

/// `signed_url`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedUrl {
    /// What is signed, and how.
    pub form: SignatureForm,
    /// Never empty when the configuration was loaded from the disk.
    pub secret: Secret,
    /// The parameter with the signature.
    pub signature: String,
    /// The parameter with the end of the validity, in seconds since 1970.
    pub expires: String,
}

/// What is signed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignatureForm {
    /// HMAC with SHA-256 of path and query.
    HmacSha256 {
        /// The address of the client is signed too.
        with_client: bool,
    },
    /// MD5 of a text, as nginx computes it.
    Md5(Vec<SignedPart>),
}

/// A part of a text that is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedPart {
    /// Text as it is.
    Text(String),
    /// `{expires}`: the parameter, as sent.
    Expires,
    /// `{path}`: the decoded path.
    Path,
    /// `{client}`: the address of the client.
    Client,
    /// `{secret}`
    Secret,
}

const PLACEHOLDERS: &[(&str, SignedPart)] = &[
    ("expires", SignedPart::Expires),
    ("path", SignedPart::Path),
    ("client", SignedPart::Client),
    ("secret", SignedPart::Secret),
];

/// `[site.signed_url]` and `[site.route.signed_url]`
pub(crate) const KEYS: &[Key] = documented! {
    /// A file with the secret in its first line, at least 16 bytes, such as `openssl rand -hex 32` prints. This or `secret`
    /// is required.
    key("secret_file", Kind::Text("a path"), None).secret();
    /// The secret itself.
    key("secret", Kind::Text("a text"), None).or_file();
    /// The parameter of the query with the signature, in URL-safe Base64. Without `md5` it is the last one.
    key("signature", Kind::Text("a name"), Some("signature"));
    /// The parameter with the end of the validity, in seconds since 1970. Afterwards the response is 410.
    key("expires", Kind::Text("a name"), Some("expires"));
    /// Whether the address of the client is signed too.
    key("client", Kind::Boolean, Some("false"));
    /// The text whose MD5 is the signature, for URLs that were made for `secure_link` of nginx, such as
    /// `"{expires}{path}{client} {secret}"`. Without it the signature is HMAC with SHA-256 of the decoded path, `?`, and the
    /// query before the signature.
    key("md5", Kind::Text("a text"), None);
};

/// Reads the table; `None` when it is wrong, which has been reported.
pub(crate) fn read(section: &Section<'_>) -> Option<SignedUrl> {
    let md5 = section.text("md5");
    let with_client = section.boolean("client") == Some(true);
    if !section.has("secret") {
        section.require("secret_file");
    }
    let bytes_min = if md5.is_none() { SECRET_BYTES_MIN } else { 1 };
    let secret = section.secret_of("secret", bytes_min);
    let (signature, expires) = (name(section, "signature"), name(section, "expires"));
    if signature == expires {
        section.report("signature", "it is `expires` too", None);
    }
    if md5.is_some() && section.has("client") {
        let help = "`{client}` in `md5` stands for the address".to_owned();
        section.report("client", "`md5` says what is signed", Some(help));
    }
    let form = match md5 {
        Some(given) => SignatureForm::Md5(parts(&given)?),
        None => SignatureForm::HmacSha256 { with_client },
    };
    Some(SignedUrl {
        form,
        secret: secret?,
        signature,
        expires,
    })
}

/// The name of a parameter, as it is sent.
fn name(section: &Section<'_>, key: &str) -> String {
    let Some(given) = section.text(key) else {
        return section.default(key).to_owned();
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    if given.text.is_empty() || !given.text.bytes().all(is_plain) {
        given.refuse(format!("`{}` is not the name of a parameter", given.text));
    }
    given.text.to_owned()
}

fn parts(given: &Text<'_>) -> Option<Vec<SignedPart>> {
    let mut parts = Vec::new();
    let mut rest = given.text;
    while !rest.is_empty() {
        let (text, after) = rest.split_once('{').unwrap_or((rest, ""));
        if !text.is_empty() {
            parts.push(SignedPart::Text(text.to_owned()));
        }
        if text.len() == rest.len() {
            break;
        }
        let placeholder = after.split_once('}').and_then(|(name, after)| {
            let mut known = PLACEHOLDERS.iter();
            Some((known.find(|(known, _)| *known == name)?, after))
        });
        let Some(((_, part), after)) = placeholder else {
            given.refuse_with(
                "`md5`: not a placeholder",
                "one of `{expires}`, `{path}`, `{client}`, `{secret}`",
            );
            return None;
        };
        parts.push(part.clone());
        rest = after;
    }
    for (part, name) in [(SignedPart::Path, "path"), (SignedPart::Secret, "secret")] {
        if !parts.contains(&part) {
            given.refuse(format!("`md5`: it lacks `{{{name}}}`"));
        }
    }
    Some(parts)
}
