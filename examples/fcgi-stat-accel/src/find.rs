//! Maps the path of a request to a file and reads its start into memory.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bytes read from each file by one call, the default readahead of the kernel: with a shorter read
/// it would start with less and wait for the disk repeatedly.
const FIRST_BYTES: usize = 128 * 1024;

/// The headers of the response. Blocks while the disk reads directory, inode and first pages.
pub fn fields(root: &Path, uri: &[u8]) -> Vec<u8> {
    let Some(path) = path(root, uri) else {
        return b"Status: 400\r\n\r\n".to_vec();
    };
    match bring(&path) {
        Ok(true) => {
            let mut fields = b"X-Sendfile: ".to_vec();
            fields.extend_from_slice(path.as_os_str().as_bytes());
            fields.extend_from_slice(b"\r\n\r\n");
            fields
        }
        Ok(false) => b"Status: 404\r\n\r\n".to_vec(),
        Err(error) if error.kind() == ErrorKind::NotFound => b"Status: 404\r\n\r\n".to_vec(),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            b"Status: 403\r\n\r\n".to_vec()
        }
        Err(error) => {
            eprintln!("fcgi-stat-accel: {}: {error}", path.display());
            b"Status: 500\r\n\r\n".to_vec()
        }
    }
}

/// Whether it is a regular file. Nothing else is opened: opening a pipe would block.
fn bring(path: &Path) -> std::io::Result<bool> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    // The data and its length are not needed.
    let _ = File::open(path)?.read(&mut vec![0; FIRST_BYTES])?;
    Ok(true)
}

/// `None` for a path that leaves the root, or is invalid in a header.
fn path(root: &Path, uri: &[u8]) -> Option<PathBuf> {
    let raw = uri.split(|byte| *byte == b'?').next()?;
    let decoded = decode(raw)?;
    let is_bad = decoded.iter().any(|byte| byte.is_ascii_control());
    if is_bad || !decoded.starts_with(b"/") {
        return None;
    }
    let segments = decoded.split(|byte| *byte == b'/');
    let mut path = root.to_owned();
    for segment in segments.filter(|segment| !segment.is_empty()) {
        if segment == b"." || segment == b".." {
            return None;
        }
        path.push(OsString::from_vec(segment.to_vec()));
    }
    Some(path)
}

fn decode(raw: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            decoded.push(byte);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        let value = |digit: u8| char::from(digit).to_digit(16);
        decoded.push((value(digits[0])? * 16 + value(digits[1])?) as u8);
        rest = after;
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        let root = Path::new("/r");
        let found = |uri: &str| path(root, uri.as_bytes());
        assert_eq!(found("/a%20b/c?d=/../e"), Some("/r/a b/c".into()));
        assert_eq!(found("//a"), Some("/r/a".into()));
        let elsewhere = ["/../a", "/%2e%2e/a", "/a%0d%0aX: y", "/a%00", "/a%4", "a"];
        assert!(elsewhere.iter().all(|uri| found(uri).is_none()));
    }

    #[test]
    fn the_answer_names_the_file_or_says_why_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let said = |uri: &str| String::from_utf8(fields(root, uri.as_bytes())).unwrap();
        let name = format!("X-Sendfile: {}/Cargo.toml\r\n\r\n", root.display());
        assert_eq!(said("/Cargo.toml"), name);
        assert_eq!(said("/absent"), "Status: 404\r\n\r\n");
        assert_eq!(said("/src"), "Status: 404\r\n\r\n");
        assert_eq!(said("/.."), "Status: 400\r\n\r\n");
    }
}
