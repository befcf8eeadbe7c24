//! Keys for signatures of messages (TSIG, RFC 8945), and the files that have them.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{Name, TSigner};

/// The maximum size of a file with a key, in bytes. A larger one is most likely another file.
const FILE_BYTES_MAX: u64 = 16 * 1024;

/// How far the clocks of client and server may differ, in seconds: the value of RFC 8945, section 10.
const FUDGE: u16 = 300;

/// A key that this machine and a server share.
#[derive(Clone)]
pub struct TsigKey {
    /// Its name, which the server knows it by.
    pub name: String,
    /// What computes its signatures, on both sides.
    pub algorithm: Algorithm,
    /// The shared secret itself, not its base64 form.
    pub secret: Vec<u8>,
}

/// What computes the signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// `hmac-sha256`, the default of `tsig-keygen` and `keymgr`.
    #[default]
    HmacSha256,
    /// `hmac-sha384`.
    HmacSha384,
    /// `hmac-sha512`.
    HmacSha512,
}

impl fmt::Debug for TsigKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "TsigKey({}, {:?})", self.name, self.algorithm)
    }
}

impl TsigKey {
    /// Reads the file of one key, as `tsig-keygen` (BIND) or `keymgr -t` (Knot) writes it. Blocks.
    ///
    /// # Errors
    /// In words, with the path and without any part of the content.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = read_text(path);
        let key = text.and_then(|text| Self::parse(&text));
        key.map_err(|problem| format!("{} {problem}", path.display()))
    }

    /// Both forms have the same words in the same order: `key NAME algorithm WORD secret BASE64`, where `id: NAME` is the
    /// name in that of Knot.
    fn parse(text: &str) -> Result<Self, String> {
        let is_comment = |line: &&str| ["#", "//"].iter().any(|mark| line.starts_with(mark));
        let lines = text.lines().map(str::trim);
        let text = lines
            .filter(|line| !is_comment(line))
            .collect::<Vec<_>>()
            .join("\n");
        let words: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || "{};\"'".contains(c))
            .filter(|word| !word.is_empty())
            .collect();
        let name = following(&words, ["key", "id:"], "name")?.ok_or("has no key")?;
        let algorithm = following(&words, ["algorithm", "algorithm:"], "algorithm")?;
        let secret = following(&words, ["secret", "secret:"], "secret")?;
        Ok(Self {
            name: name.to_owned(),
            algorithm: algorithm.map_or(Ok(Algorithm::default()), Algorithm::parse)?,
            secret: decoded(secret.ok_or("has a key without its `secret`")?)?,
        })
    }

    /// What signs messages with this key.
    ///
    /// # Errors
    /// In words, if the name is no name of the DNS.
    pub(super) fn signer(&self) -> Result<TSigner, String> {
        let name = Name::from_ascii(&self.name)
            .map_err(|error| format!("the name of the key {} is invalid: {error}", self.name))?;
        let signer = TSigner::new(self.secret.clone(), self.algorithm.into(), name, FUDGE);
        signer.map_err(|error| format!("the key {} cannot be used: {error}", self.name))
    }
}

impl Algorithm {
    fn parse(word: &str) -> Result<Self, String> {
        match word.to_ascii_lowercase().as_str() {
            "hmac-sha256" => Ok(Self::HmacSha256),
            "hmac-sha384" => Ok(Self::HmacSha384),
            "hmac-sha512" => Ok(Self::HmacSha512),
            // The word stays unnamed: in a file with a mistake it may be the secret.
            _ => Err(
                "has a key whose `algorithm` is none of hmac-sha256, hmac-sha384, hmac-sha512"
                    .into(),
            ),
        }
    }
}

impl From<Algorithm> for TsigAlgorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::HmacSha256 => Self::HmacSha256,
            Algorithm::HmacSha384 => Self::HmacSha384,
            Algorithm::HmacSha512 => Self::HmacSha512,
        }
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let opened = File::open(path);
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("has more than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not a text".to_owned())
}

/// The word that follows the only one of `marks`, unless it is the name of another part.
fn following<'a>(
    words: &[&'a str],
    marks: [&str; 2],
    part: &str,
) -> Result<Option<&'a str>, String> {
    let mut found = words
        .windows(2)
        .filter(|pair| marks.contains(&pair[0]))
        .map(|pair| pair[1]);
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(_) => Err(format!(
            "has more than one {part} of a key: write each key into a file of its own"
        )),
    }
}

fn decoded(secret: &str) -> Result<Vec<u8>, String> {
    match STANDARD.decode(secret) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes),
        _ => Err("has a key whose `secret` is not in base64".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIND: &str =
        "key \"levity\" {\n\talgorithm hmac-sha384;\n\tsecret \"c2VjcmV0IQ==\";\n};\n";
    const KNOT: &str = "# hmac-sha512:levity.:c2VjcmV0IQ==\nkey:\n  - id: levity.\n    algorithm: hmac-sha512\n    \
                        secret: c2VjcmV0IQ==\n";

    fn read(text: impl AsRef<[u8]>) -> Result<TsigKey, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.key");
        std::fs::write(&path, text).unwrap();
        let start = format!("{} ", path.display());
        TsigKey::read(&path).map_err(|problem| problem.strip_prefix(&start).unwrap().to_owned())
    }

    #[track_caller]
    fn assert_key(text: &str, name: &str, algorithm: Algorithm) {
        let key = read(text).unwrap();
        assert_eq!((key.name.as_str(), key.algorithm), (name, algorithm));
        assert_eq!(key.secret, b"secret!");
        assert_eq!(
            format!("{key:?}"),
            format!("TsigKey({name}, {algorithm:?})")
        );
    }

    #[test]
    fn both_forms() {
        assert_key(BIND, "levity", Algorithm::HmacSha384);
        assert_key(KNOT, "levity.", Algorithm::HmacSha512);
    }

    #[test]
    fn other_spellings() {
        let one_line = "// mine\nkey levity{algorithm HMAC-SHA256;secret c2VjcmV0IQ==;};";
        assert_key(one_line, "levity", Algorithm::HmacSha256);
        let quoted = "key:\n- id: 'levity'\n  algorithm: hmac-sha256\n  secret: \"c2VjcmV0IQ==\"";
        assert_key(quoted, "levity", Algorithm::HmacSha256);
        let default = "key levity { secret c2VjcmV0IQ==; };";
        assert_key(default, "levity", Algorithm::HmacSha256);
    }

    #[test]
    fn problems() {
        let problem = |text: &str| read(text).unwrap_err();
        for text in [
            "",
            "\n# hmac-sha256:levity:c2VjcmV0IQ==\n",
            "key",
            "c2VjcmV0IQ==",
        ] {
            assert_eq!(problem(text), "has no key", "{text}");
        }
        assert_eq!(
            problem(&BIND.replace("hmac-sha384", "hmac-md5")),
            "has a key whose `algorithm` is none of hmac-sha256, hmac-sha384, hmac-sha512"
        );
        assert_eq!(
            problem("key levity { algorithm hmac-sha256; };"),
            "has a key without its `secret`"
        );
        for secret in ["c2VjcmV0IQ=", "c2VjcmV0IQ==c2V", "c2Vjc!V0IQ=="] {
            let text = BIND.replace("c2VjcmV0IQ==", secret);
            assert_eq!(problem(&text), "has a key whose `secret` is not in base64");
        }
        for form in [BIND, KNOT] {
            let two = format!("{form}{form}");
            let said = problem(&two);
            assert!(
                said.starts_with("has more than one name of a key"),
                "{said}"
            );
        }
        assert_eq!(problem(&"#\n".repeat(10_000)), "has more than 16384 bytes");
        assert_eq!(read(b"key \xff").unwrap_err(), "is not a text");
        let missing = TsigKey::read(Path::new("/no/such.key")).unwrap_err();
        assert!(
            missing.starts_with("/no/such.key cannot be read: No such file"),
            "{missing}"
        );
    }

    #[test]
    fn a_name_of_a_key_is_a_name_of_the_dns() {
        let problem = |name: &str| {
            let key = read(BIND.replace("levity", name)).unwrap();
            key.signer().err()
        };
        assert_eq!(problem("levity"), None);
        let said = problem(&"x".repeat(64)).unwrap();
        assert!(said.starts_with("the name of the key xxxx"), "{said}");
    }
}
