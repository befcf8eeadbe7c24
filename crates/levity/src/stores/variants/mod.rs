//! The store of variants: popular files, compressed at a high level while processors are idle.
//!
//! A file that a worker compresses for the fourth time within a minute is compressed once more, as
//! idle work at the highest level. The result is written to a file without a name, synced and
//! linked, then its folder is synced. The name is a hash of the version of the original (device,
//! inode, size, modification and change time) and of the coding: another version has another name,
//! so an outdated variant is never found. The name appears when the content is on the disk, so a
//! crash leaves no torn variant.
//!
//! A variant is served like a precompressed file: with a strong ETag, its length and ranges. A
//! range without If-Range is one of the original, whose first part the client may have.
//!
//! Event loops look files up in an immutable index, which is replaced when a file comes or goes.
//!
//! # Dictionaries
//!
//! RFC 9842, with `compress_dictionaries`. They are files of the same store: the content of a
//! popular version as it is, found by the path and its SHA-256. `Use-As-Dictionary` is sent from
//! the moment on when the copy exists, and to every client: a browser accepts `dcz` and `dcb` only
//! in a request for which it has a dictionary. A client that names one in `Available-Dictionary`
//! for the same path gets the delta, a further file of the store, once several such requests have
//! had it made. The digest is compared when a dictionary is read: from other bytes a client would
//! make wrong content, because Brotli has no checksum. The ETag of a delta is the weak one of its
//! original, with the coding and the start of the digest as a suffix. It is removed from conditions
//! if the request names no dictionary, as when a browser revalidates, or the same; otherwise a
//! shared cache, which asks with the tags of what it holds for others, would give a client the
//! delta from a dictionary that it lacks. Copies are bounded by half of the store, by 64 MiB per
//! minute, and by the age of the file.

pub mod candidates;
mod find;
mod index;
mod make;
mod name;
mod storage;
pub mod store;

pub use self::make::{DICTIONARY_BYTES_MAX, Wanted};
pub use self::name::{Kind, Name, Resource, Stored};

#[cfg(test)]
mod tests;
