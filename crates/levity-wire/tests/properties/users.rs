//! Files of users, credentials and tokens.

use std::collections::HashSet;

use levity_wire::{basic_auth, htpasswd, jwt};

/// Lines are read one by one: what is wrong further down changes nothing above it.
pub fn htpasswd(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    match htpasswd::parse(&text) {
        Ok(entries) => {
            let users: HashSet<&str> = entries.iter().map(|entry| entry.user.as_str()).collect();
            assert_eq!(users.len(), entries.len());
            assert!(entries.len() <= lines.len() && !users.contains(""));
            assert!(!users.iter().any(|user| user.contains([':', '\n', '\0'])));
            let half = htpasswd::parse(&lines[..lines.len() / 2].join("\n"));
            assert!(half.is_ok_and(|half| entries.starts_with(&half)));
        }
        Err(invalid) => {
            assert!((1..=lines.len()).contains(&invalid.line));
            assert!(htpasswd::parse(&lines[..invalid.line - 1].join("\n")).is_ok());
            assert!(htpasswd::parse(&lines[..invalid.line].join("\n")).is_err());
        }
    }
}

/// What is read fits the bounds, and is the same whatever the case of the scheme.
pub fn basic_auth(value: &[u8]) {
    let Some(given) = basic_auth::credentials(value) else {
        return;
    };
    assert!(!given.user.is_empty() && given.user.len() <= 255 && !given.user.contains(':'));
    assert!(given.password.len() <= basic_auth::PASSWORD_BYTES_MAX);
    assert!(!given.user.contains(char::is_control) && !given.password.contains(char::is_control));
    let mut lower = value.to_vec();
    lower[..5].make_ascii_lowercase();
    assert_eq!(basic_auth::credentials(&lower), Some(given));
}

/// What is signed is the start of the token, and no algorithm is `none`.
pub fn jwt(bytes: &[u8]) {
    made_token_is_one(bytes);
    let _ = jwt::keys(&String::from_utf8_lossy(bytes));
    let Some(token) = jwt::parse(bytes) else {
        return;
    };
    assert!(bytes.starts_with(token.signed) && bytes[token.signed.len()] == b'.');
    assert_eq!(token.signed.iter().filter(|&&byte| byte == b'.').count(), 1);
    let none = jwt::Key {
        id: None,
        material: jwt::Material::Ed25519([0; 32]),
    };
    assert_eq!(none.fits(&token), token.algorithm == jwt::Algorithm::EdDsa);
}

/// A token that is made claims what it was made with, for any issuer and signature.
fn made_token_is_one(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(1024)];
    let issuer = String::from_utf8_lossy(bytes);
    let unsigned = jwt::Unsigned::hs256(Some(&issuer), bytes.len() as u64);
    let signed = unsigned.signed().to_vec();
    let text = unsigned.with_signature(bytes);
    let token = jwt::parse(text.as_bytes()).expect("it is one");
    assert_eq!((token.signed, &token.signature[..]), (&signed[..], bytes));
    assert_eq!(token.claims.issuer.as_deref(), Some(&issuer[..]));
    assert_eq!(token.claims.expires, Some(bytes.len() as f64));
}
