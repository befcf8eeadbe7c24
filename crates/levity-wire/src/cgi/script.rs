//! The split of a path into script name and path info.

use memchr::memchr_iter;

/// A split path. Neither part has a leading slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script<'a> {
    /// SCRIPT_NAME. Empty for an application mounted at the root.
    pub name: &'a [u8],
    /// PATH_INFO: the part after the slash that follows the name. `None` if there is no such slash.
    pub info: Option<&'a [u8]>,
    /// Whether the name is a file beneath the document root, which becomes SCRIPT_FILENAME.
    pub is_file: bool,
}

/// The rule by which a path is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split<'a> {
    /// The script is the first segment that ends in these bytes (`.php`) and is longer than they
    /// are: `a/b.php/c` is `a/b.php` and `c`.
    Suffix(&'a [u8]),
    /// This script (`index.php`), a front controller, handles every path. It finds the path in
    /// REQUEST_URI; PATH_INFO is empty, as with other servers.
    Index(&'a [u8]),
    /// An application without files, mounted at this path (`app`, or empty for the root): the
    /// script is the mount point and the rest is PATH_INFO. It gets no SCRIPT_FILENAME.
    Mount(&'a [u8]),
}

/// Splits a path. `None` if it names no script.
///
/// `path` is the result of [`path::decode`](crate::path::decode): decoded, without dot segments and
/// without a leading slash. The comparison is byte by byte, so `.PHP` is not `.php`, and a line
/// feed is an ordinary byte (CVE-2019-11043 came from a regular expression that stopped there).
///
/// **The caller must check that the script is a regular file beneath the document root before it
/// passes it to an application.** This function only compares names: `upload.jpg/x.php` is a script
/// by its name, and if `upload.jpg` is a file, PHP with `cgi.fix_pathinfo=1` (its default) looks
/// for an existing parent and runs the picture. If the script itself exists, PHP runs it as it is.
/// This function guarantees that `name` as a whole ends in the suffix, and that no part of
/// PATH_INFO is in it.
pub fn split_script<'a>(path: &'a [u8], split: Split<'a>) -> Option<Script<'a>> {
    match split {
        Split::Suffix(suffix) => by_suffix(path, suffix),
        Split::Index(script) => Some(Script {
            name: script,
            info: None,
            is_file: true,
        }),
        Split::Mount(prefix) => below(path, prefix),
    }
}

fn by_suffix<'a>(path: &'a [u8], suffix: &[u8]) -> Option<Script<'a>> {
    let is_script = |end: &usize| {
        let stem = path[..*end].strip_suffix(suffix);
        stem.is_some_and(|stem| !stem.is_empty() && !stem.ends_with(b"/"))
    };
    let end = memchr_iter(b'/', path)
        .chain([path.len()])
        .find(is_script)?;
    Some(Script {
        name: &path[..end],
        info: path.get(end + 1..),
        is_file: true,
    })
}

fn below<'a>(path: &'a [u8], prefix: &'a [u8]) -> Option<Script<'a>> {
    let info = match path.strip_prefix(prefix)? {
        rest if prefix.is_empty() => Some(rest),
        [] => None,
        [b'/', rest @ ..] => Some(rest),
        _ => return None,
    };
    Some(Script {
        name: prefix,
        info,
        is_file: false,
    })
}
