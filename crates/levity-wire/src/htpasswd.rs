//! Files of users and hashed passwords, one `USER:HASH` per line, as `htpasswd` of the Apache HTTP server writes them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// The maximum memory of one Argon2 hash, in KiB.
pub const ARGON2_KIB_MAX: u32 = 256 * 1024;

/// The maximum number of passes of one Argon2 hash over its memory.
pub const ARGON2_PASSES_MAX: u32 = 64;

/// The maximum parallelism of one Argon2 hash. It costs memory, and no time is saved.
pub const ARGON2_LANES_MAX: u32 = 16;

/// The bounds of the cost of bcrypt: 2^15 takes about two seconds.
const BCRYPT_COST: std::ops::RangeInclusive<u32> = 4..=15;

/// The maximum number of rounds of SHA-crypt. Its default is 5000.
const SHA_CRYPT_ROUNDS_MAX: u32 = 1_000_000;

/// The maximum number of bytes in the name of a user.
const USER_BYTES_MAX: usize = 255;

/// The bytes of a salt of Argon2.
const SALT_BYTES: std::ops::RangeInclusive<usize> = 8..=64;

/// The bytes of a hash of Argon2.
const OUTPUT_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// A user and the hash of the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Without a colon and control characters, never empty.
    pub user: String,
    /// The hash.
    pub hash: Hash,
}

/// A password hash whose parameters are within bounds.
#[derive(Clone, PartialEq, Eq)]
pub enum Hash {
    /// `$argon2id$`, `$argon2i$` or `$argon2d$` (RFC 9106).
    Argon2(Argon2),
    /// `$2a$`, `$2b$` or `$2y$`, whole.
    Bcrypt(String),
    /// `$5$` or `$6$`: SHA-crypt with SHA-256 or SHA-512, whole.
    ShaCrypt(String),
}

/// An Argon2 hash with its parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct Argon2 {
    /// The variant: `argon2id`, `argon2i` or `argon2d`.
    pub variant: &'static str,
    /// 16 or 19.
    pub version: u32,
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Parallelism.
    pub lanes: u32,
    /// The salt.
    pub salt: Vec<u8>,
    /// The hash.
    pub output: Vec<u8>,
}

impl fmt::Debug for Hash {
    /// Without the hash, which does not belong in any output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Argon2(_) => "Argon2",
            Self::Bcrypt(_) => "Bcrypt",
            Self::ShaCrypt(_) => "ShaCrypt",
        })
    }
}

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid {
    /// The line, counted from 1.
    pub line: usize,
    /// A phrase.
    pub reason: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Reads a file. Empty lines and those that begin with `#` are passed over, and so is what follows a second colon.
///
/// # Errors
/// The first line that is no user with a hash of a known kind, within bounds; also a user that occurs twice.
pub fn parse(text: &str) -> Result<Vec<Entry>, Invalid> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut users = std::collections::HashSet::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let invalid = |reason| Invalid {
            line: index + 1,
            reason,
        };
        let entry = entry(line).map_err(invalid)?;
        if !users.insert(entry.user.clone()) {
            return Err(invalid("the user has a line already"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(line: &str) -> Result<Entry, &'static str> {
    let mut parts = line.split(':');
    let (user, hash) = (parts.next().unwrap_or_default(), parts.next());
    let hash = hash.ok_or("expected USER:HASH")?;
    if user.is_empty() || user.len() > USER_BYTES_MAX || user.contains(char::is_control) {
        return Err("not the name of a user: 1 to 255 bytes without control characters");
    }
    Ok(Entry {
        user: user.to_owned(),
        hash: self::hash(hash)?,
    })
}

fn hash(text: &str) -> Result<Hash, &'static str> {
    if text.starts_with("$argon2") {
        return argon2(text).map(Hash::Argon2);
    }
    if text.starts_with("$2") {
        return bcrypt(text).map(|()| Hash::Bcrypt(text.to_owned()));
    }
    if text.starts_with("$5$") || text.starts_with("$6$") {
        return sha_crypt(text).map(|()| Hash::ShaCrypt(text.to_owned()));
    }
    Err(if text.starts_with("$apr1$") || text.starts_with("$1$") {
        "hashes with MD5 are not supported: `levity passwd` or `htpasswd -B` makes a better one"
    } else if text.starts_with("{SHA}") {
        "SHA-1 without salt is not supported: `levity passwd` or `htpasswd -B` makes a hash"
    } else {
        "not a hash of Argon2, bcrypt or SHA-crypt, which `levity passwd` or `htpasswd -B` makes"
    })
}

/// `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`
fn argon2(text: &str) -> Result<Argon2, &'static str> {
    const FORM: &str = "expected $argon2id$v=19$m=KIB,t=PASSES,p=LANES$SALT$HASH";
    let mut parts = text.split('$').skip(1);
    let mut next = || parts.next().ok_or(FORM);
    let variants = ["argon2id", "argon2i", "argon2d"];
    let name = next()?;
    let variant = variants.into_iter().find(|variant| *variant == name);
    let version = number(next()?, "v=").filter(|version| [16, 19].contains(version));
    let mut costs = next()?.split(',');
    let mut cost = |key| costs.next().and_then(|text| number(text, key));
    let (memory_kib, passes, lanes) = (cost("m="), cost("t="), cost("p="));
    let has_more_costs = costs.next().is_some();
    let decode = |text: &str| STANDARD_NO_PAD.decode(text).map_err(|_| FORM);
    let (salt, output) = (decode(next()?)?, decode(next()?)?);
    if has_more_costs || next().is_ok() {
        return Err(FORM);
    }
    let parsed = Argon2 {
        variant: variant.ok_or(FORM)?,
        version: version.ok_or(FORM)?,
        memory_kib: memory_kib.ok_or(FORM)?,
        passes: passes.ok_or(FORM)?,
        lanes: lanes.ok_or(FORM)?,
        salt,
        output,
    };
    let is_bounded = (1..=ARGON2_LANES_MAX).contains(&parsed.lanes)
        && (8 * parsed.lanes..=ARGON2_KIB_MAX).contains(&parsed.memory_kib)
        && (1..=ARGON2_PASSES_MAX).contains(&parsed.passes)
        && SALT_BYTES.contains(&parsed.salt.len())
        && OUTPUT_BYTES.contains(&parsed.output.len());
    match is_bounded {
        true => Ok(parsed),
        false => Err("Argon2 takes at most 256 MiB (m), 64 passes (t) and 16 lanes (p)"),
    }
}

/// The number after `key`, without a sign.
fn number(text: &str, key: &str) -> Option<u32> {
    let digits = text.strip_prefix(key)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// `$2y$12$` and 53 characters of salt and hash.
fn bcrypt(text: &str) -> Result<(), &'static str> {
    const FORM: &str = "expected $2y$COST$ and 53 characters";
    let rest = ["$2a$", "$2b$", "$2y$"]
        .into_iter()
        .find_map(|start| text.strip_prefix(start));
    let (cost, rest) = rest.and_then(|rest| rest.split_once('$')).ok_or(FORM)?;
    if cost.len() != 2 || rest.len() != 53 || !rest.bytes().all(is_crypt) {
        return Err(FORM);
    }
    match number(cost, "").filter(|cost| BCRYPT_COST.contains(cost)) {
        Some(_) => Ok(()),
        None => Err("the cost of bcrypt is from 04 to 15"),
    }
}

/// `$6$rounds=5000$SALT$HASH`, where the rounds may be absent.
fn sha_crypt(text: &str) -> Result<(), &'static str> {
    const FORM: &str = "expected $5$SALT$HASH or $6$SALT$HASH";
    let hash_bytes = if text.starts_with("$5$") { 43 } else { 86 };
    let parts: Vec<&str> = text[3..].split('$').collect();
    let (rounds, salt, hash) = match parts[..] {
        [salt, hash] => (None, salt, hash),
        [rounds, salt, hash] => (Some(rounds), salt, hash),
        _ => return Err(FORM),
    };
    let is_valid = |text: &str| text.bytes().all(is_crypt);
    if !is_valid(salt)
        || !(1..=16).contains(&salt.len())
        || !is_valid(hash)
        || hash.len() != hash_bytes
    {
        return Err(FORM);
    }
    let rounds = rounds.map(|rounds| number(rounds, "rounds="));
    match rounds {
        None => Ok(()),
        Some(Some(1000..=SHA_CRYPT_ROUNDS_MAX)) => Ok(()),
        Some(_) => Err("the rounds of SHA-crypt are from 1000 to 1000000"),
    }
}

/// The alphabet of crypt(3).
fn is_crypt(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"./".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGON2: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE";
    const BCRYPT: &str = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";

    fn sha(rounds: &str, hash_bytes: usize) -> String {
        let kind = if hash_bytes == 43 { 5 } else { 6 };
        format!("${kind}${rounds}saltsalt${}", "a".repeat(hash_bytes))
    }

    #[test]
    fn a_file() {
        let sha = sha("rounds=1000$", 86);
        let text = format!("# users\n\na:{ARGON2}\r\nb c:{BCRYPT}:more\n  \nä:{sha}");
        let entries = parse(&text).expect("a file");
        let users: Vec<_> = entries.iter().map(|entry| entry.user.as_str()).collect();
        assert_eq!(users, ["a", "b c", "ä"]);
        let Hash::Argon2(argon2) = &entries[0].hash else {
            panic!("{:?}", entries[0])
        };
        assert_eq!((argon2.variant, argon2.version), ("argon2id", 19));
        let costs = (argon2.memory_kib, argon2.passes, argon2.lanes);
        assert_eq!(costs, (19456, 2, 1));
        assert_eq!(
            (&argon2.salt[..], argon2.output.len()),
            (&b"saltsaltsalt"[..], 32)
        );
        assert_eq!(entries[1].hash, Hash::Bcrypt(BCRYPT.to_owned()));
        assert_eq!(entries[2].hash, Hash::ShaCrypt(sha));
        assert!(!format!("{entries:?}").contains("salt"));
    }

    #[test]
    fn hashes_of_all_kinds() {
        for hash in [
            ARGON2.to_owned(),
            ARGON2
                .replace("argon2id", "argon2i")
                .replace("v=19", "v=16"),
            BCRYPT.replace("$2y", "$2b"),
            sha("", 43),
            sha("", 86),
        ] {
            parse(&format!("a:{hash}")).unwrap_or_else(|error| panic!("{hash}: {error}"));
        }
    }

    #[test]
    fn what_is_refused_names_the_line() {
        let argon2 = |from: &str, to: &str| ARGON2.replace(from, to);
        for (hash, reason) in [
            (String::new(), "not a hash"),
            ("secret".to_owned(), "not a hash"),
            ("$apr1$x$y".to_owned(), "MD5"),
            ("{SHA}abc".to_owned(), "SHA-1"),
            (argon2("m=19456", "m=262145"), "at most 256 MiB"),
            (argon2("m=19456", "m=7"), "at most 256 MiB"),
            (argon2("t=2", "t=65"), "at most"),
            (argon2("t=2", "t=0"), "at most"),
            (argon2("p=1", "p=17"), "at most"),
            (argon2("p=1", "p=1,x=1"), "expected $argon2id"),
            (argon2("v=19", "v=18"), "expected $argon2id"),
            (argon2("argon2id", "argon2x"), "expected $argon2id"),
            (argon2("m=19456", "m=+19456"), "expected $argon2id"),
            (argon2("c2FsdHNhbHRzYWx0", "c2Fs"), "at most"),
            (format!("{ARGON2}$x"), "expected $argon2id"),
            (BCRYPT.replace("$05$", "$31$"), "from 04 to 15"),
            (BCRYPT.replace("$05$", "$5$"), "expected $2y$"),
            (BCRYPT.replace("$2y", "$2x"), "expected $2y$"),
            (BCRYPT[..59].to_owned(), "expected $2y$"),
            (sha("rounds=999$", 43), "from 1000"),
            (sha("rounds=1000001$", 86), "from 1000"),
            (sha("", 85), "expected $5$"),
        ] {
            let error = parse(&format!("\nx:{ARGON2}\ny:{hash}\n")).expect_err(&hash);
            assert_eq!(error.line, 3, "{hash}");
            assert!(error.reason.contains(reason), "{hash}: {error}");
        }
        for (text, reason) in [
            ("user", "expected USER:HASH"),
            (&format!(":{ARGON2}"), "not the name"),
            (&format!("a\tb:{ARGON2}"), "not the name"),
            (&format!("{}:{ARGON2}", "a".repeat(256)), "not the name"),
            (&format!("a:{BCRYPT}\na:{ARGON2}"), "a line already"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.reason.contains(reason), "{text}: {error}");
        }
    }
}
