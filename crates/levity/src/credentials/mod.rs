//! Names and passwords: who they belong to, what is known about them, and how often a client may
//! guess.
//!
//! A hash takes tens of milliseconds and of MiB by intention, so it is a job of the computing pool;
//! a semaphore lets half of its threads, at least one, compute hashes. The job belongs to a
//! background task and not to the request: a client that leaves early is charged for its guess, and
//! the permit is not free before the memory is.
//!
//! Wrong passwords are remembered per worker (`verdicts.rs`), right ones also for all, under
//! SHA-256 with a random key that each load of the users makes anew; requests with the same
//! password wait for one verdict. Bounds on guessing (`guesses.rs`) are shared by all workers and
//! survive a reload. What others have found out, verdicts and hashes in progress, is looked up only
//! for a client that the bounds admit, and each client is charged for a wrong verdict, wherever it
//! comes from: otherwise whoever is refused could guess without end the password of a user who is
//! logged in. A place in the queue is taken behind that, where a hash begins; whoever gets none is
//! charged, too. Before the bounds comes only what this client itself was right with
//! (`Verdicts::is_earned` of the worker, then `earned` of all workers).
//!
//! A client has at most four passwords in the queue, which is served in order and has 16 places per
//! permit, so that an honest client waits for a few hashes. One name may have a quarter of these
//! places, whether or not a user has it: otherwise nobody could log in while many clients guess the
//! password of one, and a refusal must not tell which names exist. A hash uses the memory of the
//! hash before it while others wait. The password of a user who does not exist is compared with the
//! hash of the first user of the file.
//!
//! Event loops take the lock of the table for one look-up; only threads that compute hashes take
//! that of the memory. Nothing else here blocks.

mod generations;
pub mod guesses;
pub mod password;
pub mod verdicts;

use std::collections::HashMap;
use std::io;
use std::ops::{Deref, DerefMut};

use levity_config::BasicAuth;
use levity_wire::basic_auth::Credentials;
use levity_wire::htpasswd::{Entry, Hash};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use self::password::Memory;
use crate::message::client_prefix::ClientPrefix;

/// A keyed hash of a name and a password.
pub type Digest = [u8; 32];

/// A keyed hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NameKey(u64);

/// A name and a password that a client gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guess {
    /// The client.
    pub client: ClientPrefix,
    /// What stands for name and password.
    pub digest: Digest,
}

impl Guess {
    /// A part of the digest by which two guesses of a client are told apart.
    fn short_digest(&self) -> u64 {
        short(&self.digest)
    }
}

/// The first bytes of a digest.
fn short(digest: &Digest) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_ne_bytes(first)
}

/// What the gates of a location have found out about the sender of a request.
#[derive(Debug, Default, Clone)]
pub struct Identity {
    /// The name of the user; empty without one.
    pub user: Vec<u8>,
    /// The Authorization header is for this server and not for the application.
    pub hides_authorization: bool,
    /// Headers for the application, in which the gates describe the sender.
    pub fields: Vec<(String, Vec<u8>)>,
    /// What the token of the sender claims, if there was one.
    pub claims: Option<Box<Map<String, Value>>>,
}

impl Identity {
    /// Notes that the sender is `user`, whose name applications get in `header`. A name that no header can have is not told.
    pub fn set_user(&mut self, user: Vec<u8>, header: Option<&String>) {
        let is_plain = user.trim_ascii().len() == user.len()
            && !user.is_empty()
            && !user.iter().any(u8::is_ascii_control);
        if let Some(header) = header {
            // After a rewrite a gate is asked again.
            self.fields.retain(|(name, _)| name != header);
            self.fields
                .extend(is_plain.then(|| (header.clone(), user.clone())));
        }
        self.user = user;
    }
}

/// The sender of a request of whom no gate knows anything.
pub static NOBODY: Identity = Identity {
    user: Vec::new(),
    hides_authorization: false,
    fields: Vec::new(),
    claims: None,
};

/// What gates have found out, if any has: most requests meet none. [`NOBODY`] until it is changed.
#[derive(Debug, Default, Clone)]
pub struct FoundIdentity(Option<Box<Identity>>);

impl Deref for FoundIdentity {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        self.0.as_deref().unwrap_or(&NOBODY)
    }
}

impl DerefMut for FoundIdentity {
    fn deref_mut(&mut self) -> &mut Identity {
        self.0.get_or_insert_default()
    }
}

/// The users of a gate.
pub struct Users {
    hashes: HashMap<String, Hash>,
    /// Compared with the password of a user who does not exist, so that the time does not tell names from others; `None`
    /// without any user.
    decoy: Option<Hash>,
    /// Random. Digests of other users, or of these before a reload, differ.
    key: [u8; 32],
}

impl Users {
    /// The users that `settings` let in.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn new(settings: &BasicAuth) -> io::Result<Self> {
        let names = settings.allow_users.as_ref();
        let is_allowed = |entry: &&Entry| names.is_none_or(|names| names.contains(&entry.user));
        let allowed = settings.users.iter().filter(is_allowed);
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        Ok(Self {
            hashes: allowed
                .map(|entry| (entry.user.clone(), entry.hash.clone()))
                .collect(),
            decoy: settings.users.first().map(|entry| entry.hash.clone()),
            key,
        })
    }

    /// What stands for `given` in memory: nobody can find the password from it without the key.
    pub fn digest(&self, given: &Credentials) -> Digest {
        let mut hash = Sha256::new();
        hash.update(self.key);
        // A name has no colon, so no two pairs give the same bytes.
        hash.update(given.user.as_bytes());
        hash.update(b":");
        hash.update(given.password.as_bytes());
        hash.finalize().into()
    }

    /// What stands for the name in memory, whether or not a user has it: nobody can tell by it which names exist.
    pub fn name_key(&self, given: &Credentials) -> NameKey {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(given.user.as_bytes());
        NameKey(short(&hash.finalize().into()))
    }

    /// Whether the password is that of the user. Takes milliseconds to seconds of the processor, and the memory of the hash.
    pub fn verify(&self, given: &Credentials, memory: &mut Memory) -> bool {
        match self.hashes.get(&given.user) {
            Some(hash) => password::verify(&given.password, hash, memory),
            None => {
                // Only for its time: no password is right.
                let _ = self
                    .decoy
                    .as_ref()
                    .map(|decoy| password::verify(&given.password, decoy, memory));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(lines: &str, allow_users: Option<&[&str]>) -> Users {
        let entries = levity_wire::htpasswd::parse(lines).expect("lines");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Users::new(&BasicAuth {
            realm: String::new(),
            file: "users".into(),
            users: entries.into(),
            allow_users: allow_users.map(names),
            pass_authorization: false,
            user_header: None,
        })
        .expect("random bytes")
    }

    fn given(user: &str, password: &str) -> Credentials {
        Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    /// Made by `htpasswd -bnBC 4`.
    const LINES: &str = "\
        ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";

    #[test]
    fn a_digest_depends_on_name_password_and_users() {
        let (one, other) = (users(LINES, None), users(LINES, None));
        let digest = one.digest(&given("ann", "b:c"));
        assert_eq!(digest, one.digest(&given("ann", "b:c")));
        for (user, password) in [("ann", "b:d"), ("anna", "b:c"), ("b", "c")] {
            assert_ne!(digest, one.digest(&given(user, password)));
        }
        assert_ne!(digest, other.digest(&given("ann", "b:c")));
        let name = one.name_key(&given("ann", "b"));
        assert_eq!(name, one.name_key(&given("ann", "c")));
        assert_ne!(name, one.name_key(&given("eve", "b")));
        assert_ne!(name, other.name_key(&given("ann", "b")));
    }

    /// The decoy is the hash of another user, whose password must not open the door for every name.
    #[test]
    fn nobody_gets_in_with_a_name_that_does_not_exist() {
        let line = format!("ann:{}\n", password::hash("secret").expect("a hash"));
        let all = users(&line, None);
        let verifies = |users: &Users, user, password| {
            users.verify(&given(user, password), &mut Memory::default())
        };
        assert!(verifies(&all, "ann", "secret"));
        assert!(!verifies(&all, "ann", "Secret"));
        assert!(!verifies(&all, "eve", "secret"));
        assert!(!verifies(&users(&line, Some(&["eve"])), "ann", "secret"));
        assert!(!verifies(&users("", None), "ann", ""));
    }
}
