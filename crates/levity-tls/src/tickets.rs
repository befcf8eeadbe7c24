//! Keys of session tickets, by which a client resumes a session at any event loop, and with files at any server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;

/// How long keys make tickets that no file gives.
pub const ROTATION: Duration = Duration::from_secs(6 * 60 * 60);

/// Keys that have made tickets before are kept to read these.
const KEYS_MAX: usize = 2;

/// The minimum of secret bytes in a file.
const FILE_BYTES_MIN: usize = 32;

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = 32;

/// The keys. The first one makes tickets, all read them. Reading them takes no lock.
pub struct TicketKeys {
    keys: ArcSwap<Vec<Arc<TicketKey>>>,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} keys", self.keys.load().len())
    }
}

struct TicketKey {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

/// The length of what is derived from a secret: a name and a key.
struct NameAndKey;

impl KeyType for NameAndKey {
    fn len(&self) -> usize {
        NAME_BYTES + KEY_BYTES
    }
}

impl TicketKey {
    fn of_secret(secret: &[u8]) -> Self {
        let mut bytes = [0; NAME_BYTES + KEY_BYTES];
        let derived = Salt::new(HKDF_SHA256, b"levity session ticket").extract(secret);
        let derived = derived.expand(&[], NameAndKey);
        let filled = derived.and_then(|derived| derived.fill(&mut bytes));
        filled.expect("a valid length");
        let (name, key) = bytes.split_at(NAME_BYTES);
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a valid length");
        Self {
            name: name.try_into().expect("its length"),
            key: LessSafeKey::new(key),
        }
    }

    fn random() -> Self {
        let mut secret = [0; KEY_BYTES];
        rand::fill(&mut secret).expect("random bytes");
        Self::of_secret(&secret)
    }
}

impl TicketKeys {
    /// One key, which nobody else has.
    #[must_use]
    pub fn random() -> Self {
        Self {
            keys: ArcSwap::from_pointee(vec![Arc::new(TicketKey::random())]),
        }
    }

    /// Has a new key make tickets.
    pub fn rotate(&self) {
        let old = self.keys.load();
        let keys = std::iter::once(Arc::new(TicketKey::random())).chain(old.iter().cloned());
        self.keys.store(Arc::new(keys.take(KEYS_MAX).collect()));
    }

    /// The keys of files with secret bytes, of which the first one makes tickets. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn read(paths: &[impl AsRef<Path>]) -> Result<Self, String> {
        let key = |path: &Path| {
            let secret = crate::files::read(path)?;
            match secret.len() >= FILE_BYTES_MIN {
                true => Ok(Arc::new(TicketKey::of_secret(&secret))),
                false => Err(format!(
                    "{} has fewer than {FILE_BYTES_MIN} bytes; `openssl rand -out FILE 80` makes one",
                    path.display()
                )),
            }
        };
        let keys: Result<Vec<_>, String> = paths.iter().map(|path| key(path.as_ref())).collect();
        Ok(Self {
            keys: ArcSwap::from_pointee(keys?),
        })
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        (KEYS_MAX as u32) * ROTATION.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.load();
        let TicketKey { name, key } = &**keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let aad = Aad::from(name);
        let nonce_of_key = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce_of_key, aad, &mut sealed)
            .ok()?;
        Some([&name[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let keys = self.keys.load();
        let TicketKey { name, key } = &**keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let plain = key
            .open_in_place(nonce, Aad::from(name), &mut sealed)
            .ok()?;
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_read_until_its_key_is_gone() {
        let keys = TicketKeys::random();
        let ticket = keys.encrypt(b"session").expect("a ticket");
        assert_ne!(ticket, keys.encrypt(b"session").expect("another"));
        for _ in 0..KEYS_MAX {
            assert_eq!(keys.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
            keys.rotate();
        }
        assert_eq!(keys.decrypt(&ticket), None);
    }

    #[test]
    fn a_changed_or_cut_ticket_is_refused() {
        let keys = TicketKeys::random();
        let ticket = keys.encrypt(b"session").expect("a ticket");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.decrypt(&changed), None, "byte {at}");
            assert_eq!(keys.decrypt(&ticket[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn servers_with_the_same_file_read_each_others_tickets() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two, short] = ["one", "two", "short"].map(|name| folder.path().join(name));
        std::fs::write(&one, [1; 80]).expect("written");
        std::fs::write(&two, [2; FILE_BYTES_MIN]).expect("written");
        std::fs::write(&short, [3; FILE_BYTES_MIN - 1]).expect("written");
        let before = TicketKeys::read(&[&one]).expect("keys");
        let after = TicketKeys::read(&[&two, &one]).expect("keys");
        let ticket = before.encrypt(b"session").expect("a ticket");
        assert_eq!(after.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        let ticket = after.encrypt(b"session").expect("a ticket");
        assert_eq!(before.decrypt(&ticket), None);
        let error = TicketKeys::read(&[&short]).expect_err("too short");
        assert!(error.ends_with("has fewer than 32 bytes; `openssl rand -out FILE 80` makes one"));
    }
}
