//! Paths of requests.

use levity_wire::path;

use super::gateway;

/// A decoded path stays beneath its root, is the same when it is encoded again, and any name
/// survives being encoded.
pub fn path(raw: &[u8]) {
    let mut decoded = Vec::new();
    if path::decode(raw, &mut decoded).is_ok() {
        let names = decoded.strip_suffix(b"/").unwrap_or(&decoded);
        let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
        assert!(decoded.is_empty() || names.split(|&byte| byte == b'/').all(is_name));
        assert!(!decoded.contains(&0) && decoded.len() <= raw.len());
        there_and_back(&decoded);
        gateway::script(&decoded);
    }
    if let (Ok(_), Ok(sent)) = (
        path::decode_keeping_slashes(raw, &mut decoded),
        path::forwarded(raw),
    ) {
        passed_on(&decoded, &sent);
    }
    let name: Vec<u8> = raw
        .iter()
        .copied()
        .filter(|byte| !b"\0/".contains(byte))
        .collect();
    if !matches!(&name[..], b"." | b"..") {
        there_and_back(&name);
    }
}

/// The forwarded form of a path has the same meaning, is a valid URI, has no dot segment for any
/// application, and no host.
fn passed_on(path: &[u8], sent: &[u8]) {
    let mut again = Vec::new();
    path::decode_keeping_slashes(sent, &mut again).expect("a path that was sent can be decoded");
    assert_eq!(again, path);
    assert!(sent.starts_with(b"/") && !sent.starts_with(b"//") && sent.is_ascii());
    assert!(!sent.contains(&b'\\'));
    assert_eq!(path::forwarded(sent).as_deref(), Ok(sent));
    for reading in path::other_readings(sent) {
        assert!(reading.starts_with(b"/") && reading.len() <= sent.len());
        let mut names = reading.split(|&byte| byte == b'/');
        assert!(!names.any(|name| matches!(name, b"." | b"..")));
    }
}

fn there_and_back(path: &[u8]) {
    let mut encoded = b"/".to_vec();
    path::encode(path, &mut encoded);
    assert!(
        encoded
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !b"\"<>&'?#\\".contains(byte))
    );
    let mut decoded = Vec::new();
    path::decode(&encoded, &mut decoded).expect("an encoded path can be decoded");
    assert_eq!(decoded, path);
}
