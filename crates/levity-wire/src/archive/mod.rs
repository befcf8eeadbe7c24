//! Archives that are written as a stream: the bytes around the content of their members.

pub mod tar;
pub mod zip;

/// A file or folder in an archive.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// The path in the archive: relative, without a slash at the end. Not necessarily UTF-8.
    pub path: &'a [u8],
    /// It is a folder, which has no content.
    pub is_folder: bool,
    /// The length of the content in bytes.
    pub size: u64,
    /// The last change: seconds since 1970, negative before.
    pub mtime_s: i64,
}
