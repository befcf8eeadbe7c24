//! The proof for applications that a request came through this server, and that they may hold its client.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use levity_wire::jwt::Unsigned;
use sha2::Sha256;

/// How long a proof is valid, in seconds.
const LIFETIME_S: u64 = 3600;

/// The value of `Grip-Sig` at `now`.
pub fn grip_sig(key: &[u8], now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let token = Unsigned::hs256(Some("levity"), now.as_secs() + LIFETIME_S);
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(token.signed());
    token.with_signature(&mac.finalize().into_bytes())
}
