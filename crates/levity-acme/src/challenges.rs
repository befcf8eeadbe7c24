//! Answers for authorities that look whether a name is under control of this server.
//!
//! They are files, so that servers with the same folder answer for each other: an authority may come to any of them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_tls::files;
use serde::{Deserialize, Serialize};

use crate::folder::Folder;

/// How often other servers look at the files.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The age after which a file is that of a server that has died.
const AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// The length of a SHA-256.
const DIGEST_BYTES: usize = 32;

/// What a TLS configuration is, without its type.
pub type TlsConfig = Arc<levity_tls::ServerConfig>;

/// The answers of now. Event loops read them without a lock.
#[derive(Default)]
pub struct Challenges(ArcSwap<Answers>);

#[derive(Default)]
struct Answers {
    /// The content of files by their token.
    http: HashMap<String, String>,
    /// Handshakes by the name that is asked for.
    tls: HashMap<String, (Vec<u8>, TlsConfig)>,
}

/// An answer in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The content of the file `token`.
    Http {
        /// The last part of its path.
        token: String,
        /// Its content.
        content: String,
    },
    /// A handshake for `name`.
    Tls {
        /// A DNS name or an IP address.
        name: String,
        /// The SHA-256 of the key authorization, in base64.
        digest: String,
    },
}

impl Challenges {
    /// The content of the file with this token (RFC 8555, 8.3).
    #[must_use]
    pub fn http(&self, token: &str) -> Option<String> {
        self.0.load().http.get(token).cloned()
    }

    /// The handshake for a client that asks for `name` and offers [`ALPN`](levity_tls::challenge::ALPN) only.
    #[must_use]
    pub fn tls(&self, name: &str) -> Option<TlsConfig> {
        let answers = self.0.load();
        answers
            .tls
            .get(&name.to_ascii_lowercase())
            .map(|(_, config)| config.clone())
    }

    /// Reads the files again. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn look(&self, folder: &Folder) -> io::Result<()> {
        let old = self.0.load();
        let mut new = Answers::default();
        for entry in fs::read_dir(folder.challenges())? {
            let path = entry?.path();
            match read(&path) {
                Some(Answer::Http { token, content }) => {
                    new.http.insert(token, content);
                }
                Some(Answer::Tls { name, digest }) => {
                    let digest = BASE64_STANDARD.decode(&digest).unwrap_or_default();
                    if digest.len() != DIGEST_BYTES {
                        continue;
                    }
                    let asked = name_in_handshake(&name);
                    let same = old.tls.get(&asked).filter(|(before, _)| *before == digest);
                    let config = same.map(|(_, config)| Ok(config.clone()));
                    let config =
                        config.unwrap_or_else(|| levity_tls::challenge::config(&name, &digest));
                    if let Ok(config) = config {
                        new.tls.insert(asked, (digest, config));
                    }
                }
                None => {}
            }
        }
        let is_empty = |answers: &Answers| answers.http.is_empty() && answers.tls.is_empty();
        if !(is_empty(&new) && is_empty(&old)) {
            self.0.store(Arc::new(new));
        }
        Ok(())
    }
}

/// An answer. A file that is too old is removed.
fn read(path: &Path) -> Option<Answer> {
    let modified = fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    let is_old = |now: SystemTime| {
        let age = now.duration_since(modified);
        age.is_ok_and(|age| age > AGE_MAX)
    };
    // The clock of this machine may be ahead of that by which the file has its time.
    if is_old(SystemTime::now()) && files::now_in(path.parent()?).is_ok_and(is_old) {
        let _ = fs::remove_file(path);
        return None;
    }
    serde_json::from_slice(&files::read(path).ok()?).ok()
}

/// The name by which an authority asks: for an address that of its reverse lookup (RFC 8738, 6).
fn name_in_handshake(name: &str) -> String {
    match name.parse() {
        Ok(IpAddr::V4(ip)) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(ip)) => {
            let nibbles = ip.octets().into_iter().rev();
            let nibbles = nibbles.map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            nibbles.collect::<String>() + "ip6.arpa"
        }
        Err(_) => name.to_ascii_lowercase(),
    }
}

/// An answer that is there until this is dropped.
pub(crate) struct Published(PathBuf);

impl Published {
    /// Writes an answer for whoever looks. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn new(folder: &Folder, answer: &Answer) -> Result<Self, String> {
        let (Answer::Http { token: name, .. } | Answer::Tls { name, .. }) = answer;
        let path = folder.challenge(name);
        let text = serde_json::to_vec(answer).map_err(|error| error.to_string())?;
        folder.write(&path, &text)?;
        Ok(Self(path))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_there_while_they_are_published() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        let other = Folder::open(state.path()).expect("the same folder");
        assert!(folder.is_shared() && other.is_shared());
        let (one, two) = (Challenges::default(), Challenges::default());
        let file = Answer::Http {
            token: "token".to_owned(),
            content: "content".to_owned(),
        };
        let handshake = Answer::Tls {
            name: "A.test".to_owned(),
            digest: BASE64_STANDARD.encode([7; 32]),
        };
        let published =
            [&file, &handshake].map(|answer| Published::new(&folder, answer).expect("written"));
        fs::write(folder.challenge("damaged"), "{").expect("written");
        for challenges in [&one, &two] {
            challenges.look(&other).expect("read");
            assert_eq!(challenges.http("token").as_deref(), Some("content"));
            assert!(challenges.http("other").is_none());
            assert!(challenges.tls("a.TEST").is_some() && challenges.tls("b.test").is_none());
        }
        let before = one.tls("a.test").expect("a handshake");
        one.look(&folder).expect("read");
        assert!(Arc::ptr_eq(&before, &one.tls("a.test").expect("the same")));
        drop((published, other));
        one.look(&folder).expect("read");
        assert!(one.http("token").is_none() && one.tls("a.test").is_none());
        assert!(!folder.is_shared());
    }

    #[test]
    fn answers_of_servers_that_have_died_are_removed() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        let answer = |token: &str| Answer::Http {
            token: token.to_owned(),
            content: token.to_owned(),
        };
        let published = ["old", "new"].map(|token| {
            let published = Published::new(&folder, &answer(token));
            published.expect("written")
        });
        let file = fs::File::options().write(true).open(&published[0].0);
        let before = SystemTime::now() - AGE_MAX * 2;
        file.and_then(|file| file.set_modified(before))
            .expect("a time");
        let challenges = Challenges::default();
        challenges.look(&folder).expect("read");
        assert!(challenges.http("old").is_none() && challenges.http("new").is_some());
        let left = fs::read_dir(folder.challenges()).expect("a folder");
        assert_eq!(left.count(), 1);
    }

    #[test]
    fn addresses_have_names_in_handshakes() {
        assert_eq!(name_in_handshake("192.0.2.7"), "7.2.0.192.in-addr.arpa");
        let name = name_in_handshake("2001:db8::1");
        assert!(
            name.starts_with("1.0.0.0.") && name.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"),
            "{name}"
        );
        assert_eq!(name.len(), "ip6.arpa".len() + 64);
    }
}
