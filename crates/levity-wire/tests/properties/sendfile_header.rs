//! X-Sendfile and related headers.

use levity_wire::Reject;
use levity_wire::http1::host_name;
use levity_wire::path;
use levity_wire::sendfile_header::{
    Delegation, FilePart, PARTS_MAX, PATH_BYTES_MAX, PRELOAD_TTL_MAX, Preload, URLS_MAX,
    file_parts, file_path, internal_uri, is_reserved, preload, urls,
};

use super::first_line;

/// A parsed value is well-formed and survives being written and parsed again, and its header can be
/// neither forged nor forwarded.
pub fn sendfile_header(bytes: &[u8]) {
    let (name, value) = first_line(bytes);
    name_is_reserved(name);
    file_path_is_sound(value);
    internal_uri_is_sound(value);
    parts_are_sound(value);
    urls_are_sound(value);
    preload_is_valid(value);
    path_survives(value);
}

/// Whether a header is accepted; its name is the first line and its value the rest.
pub fn sendfile_outcome(bytes: &[u8]) -> Result<bool, Reject> {
    let (name, value) = first_line(bytes);
    if name.eq_ignore_ascii_case(b"x-sendfile-preload") {
        return preload(value).map(|_| true);
    }
    let read = match Delegation::of(name) {
        None => return Ok(false),
        Some(Delegation::File | Delegation::TemporaryFile) => file_path(value).map(drop),
        Some(Delegation::FileParts) => file_parts(value).map(drop),
        Some(Delegation::InternalUri) => internal_uri(value, &mut Vec::new()).map(drop),
        Some(Delegation::Urls) => urls(value).map(drop),
    };
    read.map(|()| true)
}

fn name_is_reserved(name: &[u8]) {
    assert!(Delegation::of(name).is_none() || is_reserved(name));
    let variable: Vec<u8> = name
        .iter()
        .map(|byte| match byte {
            b'-' => b'_',
            byte => byte.to_ascii_uppercase(),
        })
        .collect();
    assert_eq!(is_reserved(name), is_reserved(&variable));
}

fn is_path(path: &[u8]) -> bool {
    path.starts_with(b"/") && !path.contains(&0) && path.len() <= PATH_BYTES_MAX
}

fn file_path_is_sound(value: &[u8]) {
    let read = file_path(value);
    assert_eq!(read.is_ok(), is_path(value));
    if let Ok(found) = read {
        assert_eq!(found.raw, value);
        assert!(
            found
                .decoded
                .is_none_or(|path| is_path(&path) && path.len() < value.len())
        );
    }
}

fn internal_uri_is_sound(value: &[u8]) {
    let mut decoded = Vec::new();
    if let Ok(uri) = internal_uri(value, &mut decoded) {
        assert!(is_path(uri.path) && !uri.path.contains(&b'?'));
        assert!(value.starts_with(uri.path));
        let query_bytes = uri.query.map_or(0, |query| query.len() + 1);
        assert_eq!(value.len(), uri.path.len() + query_bytes);
        let mut once = Vec::new();
        assert_eq!(path::decode(uri.path, &mut once), Ok(()));
        assert_eq!(decoded, once);
    }
}

fn parts_are_sound(value: &[u8]) {
    let Ok(parts) = file_parts(value) else {
        return;
    };
    assert!((1..=PARTS_MAX).contains(&parts.len()));
    for part in &parts {
        assert!(is_path(&part.path) && part.last.is_none_or(|last| part.first <= last));
    }
    assert_eq!(file_parts(&written(&parts)), Ok(parts));
}

fn written(parts: &[FilePart<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        if !out.is_empty() {
            out.extend(b", ");
        }
        path::encode(&part.path, &mut out);
        let last = part.last.map(|last| last.to_string()).unwrap_or_default();
        out.extend(format!(" {}-{last}", part.first).bytes());
    }
    out
}

fn urls_are_sound(value: &[u8]) {
    let Ok(found) = urls(value) else {
        return;
    };
    assert!((1..=URLS_MAX).contains(&found.len()));
    for url in &found {
        assert!(host_name(url.host).is_ok() && url.target.starts_with(b"/"));
        assert!(!url.target.iter().any(|byte| b" #\r\n\0".contains(byte)));
    }
    let again: Vec<_> = found
        .iter()
        .map(|url| [&b"http://"[..], url.host, url.target].concat())
        .collect();
    assert_eq!(urls(&again.join(&b' ')), Ok(found));
}

fn preload_is_valid(value: &[u8]) {
    let Ok(found) = preload(value) else {
        return;
    };
    assert!(found.target.starts_with(b"/") && is_path(&found.path));
    assert!(!found.target.contains(&b' '));
    assert!(found.ttl <= PRELOAD_TTL_MAX && found.ttl.as_secs() > 0);
    assert_eq!(preload(&written_preload(&found)), Ok(found));
}

fn written_preload(found: &Preload<'_>) -> Vec<u8> {
    let mut out = [found.target, b" "].concat();
    path::encode(&found.path, &mut out);
    out.extend(format!(" ttl={}", found.ttl.as_secs()).bytes());
    if let Some(named) = found.media_type {
        out.extend([b" type=", named].concat());
    }
    out
}

/// Any path on disk can be written and parsed again, in each grammar that has paths.
fn path_survives(bytes: &[u8]) {
    let name: Vec<u8> = bytes.iter().copied().filter(|&byte| byte != 0).collect();
    let name = &name[..name.len().min(PATH_BYTES_MAX / 3 - 1)];
    let path = [&b"/"[..], name].concat();
    let mut encoded = Vec::new();
    path::encode(&path, &mut encoded);
    let read = file_path(&encoded).expect("an encoded path is one");
    assert_eq!(read.decoded.as_deref().unwrap_or(read.raw), path);
    encoded.extend(b" 0-");
    let parts = file_parts(&encoded).expect("a part");
    assert_eq!(parts[0].path, path);
    encoded.truncate(encoded.len() - b" 0-".len());
    let value = [b"/ ", &encoded[..], b" ttl=1"].concat();
    assert_eq!(preload(&value).expect("a content").path, path);
}
