//! Digests of files (RFC 9530), kept by version of the file.
//!
//! A digest takes a read of all of the file, which may be minutes. So a response waits only for
//! that of content that is in memory: a millisecond or two of a computing thread. Any other file is
//! read and hashed after the response, as idle work, and later responses have its digest. A client
//! that needs one may ask again with HEAD.
//!
//! Digests of content in memory are jobs of the class for responses, unless they would wait for
//! more than 25 ms. Each read of another file is compared with the version of the entry. The digest
//! is kept under that version, so one of an outdated version is never found. With
//! `etag = "content"` it also becomes the ETag of a worker's reference to the entry (`EntryRef`),
//! beside that of the version: a response has the one that the request names (`respond/file.rs`).
//!
//! Clients decide which files are read. What they can cause is bounded: two files at a time in all,
//! each at most once per version while its digest is kept, through the queue of its device like any
//! other read.

mod make;
pub mod store;
