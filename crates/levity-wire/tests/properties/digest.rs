//! Headers that request digests.

use levity_wire::digest;

/// The algorithm is that of the member with the highest valid preference. It does not depend on lines, nor on members of
/// other algorithms.
pub fn want_digest(bytes: &[u8]) {
    let wanted = digest::wanted(bytes.split(|&byte| byte == b'\n'));
    let members = bytes.split(|byte| b",\n".contains(byte));
    let named = |member: &&[u8]| member.trim_ascii().starts_with(b"sha-");
    let members: Vec<&[u8]> = members.filter(named).collect();
    assert_eq!(
        digest::wanted([&members.join(&b',')[..]].into_iter()),
        wanted
    );
    assert_eq!(digest::wanted(members.iter().copied()), wanted);
    if let Some(algorithm) = wanted {
        let key = algorithm.key().as_bytes();
        assert!(
            members
                .iter()
                .any(|member| member.trim_ascii().starts_with(key))
        );
        let none = [bytes, b",", key, b"=0"].concat();
        assert_ne!(digest::wanted(none.split(|&byte| byte == b'\n')), wanted);
    }
}
