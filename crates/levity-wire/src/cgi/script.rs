//! Which part of a path names the script, and which part the script is to read.

use memchr::memchr_iter;

/// A path divided in two. Neither part has a leading slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script<'a> {
    /// What becomes SCRIPT_NAME. Empty for an application mounted at the root.
    pub name: &'a [u8],
    /// What follows the slash behind the name: PATH_INFO. `None` when there is no such slash.
    pub info: Option<&'a [u8]>,
    /// Whether the name is that of a file below the document root, which becomes SCRIPT_FILENAME.
    pub is_file: bool,
}

/// How a path is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split<'a> {
    /// The first segment that ends in these bytes (`.php`) and is longer than they are is the
    /// script: `a/b.php/c` is `a/b.php` and `c`.
    Suffix(&'a [u8]),
    /// Every path is answered by this script (`index.php`), a front controller. It finds the path
    /// in REQUEST_URI; PATH_INFO is empty, as with other servers.
    Index(&'a [u8]),
    /// An application without files, mounted at this path (`app`, or nothing for the root): the
    /// script is the mount point and the rest is PATH_INFO. It gets no SCRIPT_FILENAME.
    Mount(&'a [u8]),
}

/// Divides a path, or finds that it names no script.
///
/// `path` is as [`path::decode`](crate::path::decode) gives it: decoded, without dot segments and
/// without a leading slash. It is compared byte by byte, so `.PHP` is not `.php`, and a line feed
/// in it is a byte like others (CVE-2019-11043 came from a regular expression that stopped there).
///
/// **The caller must check that the script is a regular file below the document root before it asks
/// an application for it.** Only names are compared here: `upload.jpg/x.php` is a script by its
/// name, and where `upload.jpg` is a file, PHP with `cgi.fix_pathinfo=1` (its default) looks for a
/// parent that exists and runs the picture. When the script itself exists, PHP takes it as it is.
/// What this function promises is that the whole of `name` ends in the suffix, and that nothing of
/// PATH_INFO is ever in it.
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
