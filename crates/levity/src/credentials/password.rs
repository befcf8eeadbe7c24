//! Password hashes: takes long and much memory by intention, so never on an event loop.

use std::fmt::Write as _;
use std::io;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use levity_wire::htpasswd::{self, Hash};
use sha_crypt::{PasswordVerifier as _, ShaCrypt};

/// The first choice of OWASP's cheat sheet for Argon2id, with less memory: 19 MiB, two passes, one lane. It takes about
/// 20 ms.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);

const SALT_BYTES: usize = 16;

const OUTPUT_BYTES: usize = 32;

/// The memory of a hash, for the next one.
#[derive(Default)]
pub struct Memory(Vec<Block>);

/// Whether `password` has this hash. Computes for milliseconds to seconds.
pub fn verify(password: &str, hash: &Hash, memory: &mut Memory) -> bool {
    match hash {
        Hash::Argon2(hash) => argon2(password, hash, memory),
        Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        Hash::ShaCrypt(hash) => ShaCrypt::default()
            .verify_password(password.as_bytes(), hash.as_str())
            .is_ok(),
    }
}

fn argon2(password: &str, hash: &htpasswd::Argon2, Memory(memory): &mut Memory) -> bool {
    let algorithm = hash.variant.parse::<Algorithm>();
    let version = Version::try_from(hash.version);
    let bytes = Some(hash.output.len());
    let params = Params::new(hash.memory_kib, hash.passes, hash.lanes, bytes);
    let (Ok(algorithm), Ok(version), Ok(params)) = (algorithm, version, params) else {
        return false;
    };
    let mut output = vec![0; hash.output.len()];
    let blocks = params.block_count();
    if memory.capacity() > blocks {
        // Of a larger hash, whose memory is kept for no smaller one.
        *memory = Vec::new();
    }
    memory.resize(blocks, Block::default());
    let argon2 = Argon2::new(algorithm, version, params);
    let password = password.as_bytes();
    let computed = argon2.hash_password_into_with_memory(password, &hash.salt, &mut output, memory);
    computed.is_ok() && are_equal(&output, &hash.output)
}

/// Whether two texts are equal. Takes the same time wherever they differ.
pub fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let different = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && different == 0
}

/// The hash of `password` by Argon2id, as it stands in a file of users. Computes for about 20 ms.
///
/// # Errors
/// When the kernel gives no random bytes.
pub fn hash(password: &str) -> io::Result<String> {
    let (memory_kib, passes, lanes) = COST;
    let (mut salt, mut output) = ([0; SALT_BYTES], [0; OUTPUT_BYTES]);
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    let params = Params::new(memory_kib, passes, lanes, Some(OUTPUT_BYTES));
    let params = params.map_err(io::Error::other)?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2
        .hash_password_into(password.as_bytes(), &salt, &mut output)
        .map_err(io::Error::other)?;
    let mut text = format!("$argon2id$v=19$m={memory_kib},t={passes},p={lanes}");
    for part in [&salt[..], &output] {
        let _ = write!(text, "${}", STANDARD_NO_PAD.encode(part));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_verifies(password: &str, hash: &str, memory: &mut Memory) {
        let entries = htpasswd::parse(&format!("a:{hash}")).expect(hash);
        let hash = &entries[0].hash;
        assert!(verify(password, hash, memory), "{hash:?}");
        for wrong in ["", "x", &password[1..], &format!("{password} ")] {
            assert!(!verify(wrong, hash, memory), "{hash:?} {wrong}");
        }
    }

    #[test]
    fn an_own_hash_verifies() {
        let (one, other) = (
            hash("secret").expect("a hash"),
            hash("secret").expect("a hash"),
        );
        assert_ne!(one, other);
        // What one hash leaves there does not matter to the next.
        let mut memory = Memory::default();
        assert_verifies("secret", &one, &mut memory);
        assert_verifies("secret", &other, &mut memory);
    }

    /// Published by the authors of each algorithm, or made by their programs.
    #[test]
    fn hashes_of_other_programs_verify() {
        for (password, hash) in [
            // The README of the reference implementation of Argon2, with 64 MiB.
            (
                "password",
                "$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG",
            ),
            // `openssl passwd -5 -salt saltstring`, and `-6`.
            (
                "Hello world!",
                "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
            ),
            (
                "Hello world!",
                "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
            ),
            // The tests of crypt_blowfish.
            (
                "U*U",
                "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
            ),
        ] {
            assert_verifies(password, hash, &mut Memory::default());
        }
    }
}
