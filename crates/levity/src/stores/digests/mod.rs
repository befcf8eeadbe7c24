//! Digests of files (RFC 9530), kept by version of the file.
//!
//! A digest takes a read of all of the file, which may be minutes. So a response waits only for that of content that is
//! in memory: a millisecond or two of a computing thread. Any other file is read and hashed after the response, as idle
//! work, and later responses have its digest. A client that needs one may ask again with HEAD.
//!
//! Clients decide which files are read. What they can cause is bounded: two files at a time in all, each at most once per
//! version while its digest is kept, through the queue of its device like any other read.

mod make;
pub mod store;
