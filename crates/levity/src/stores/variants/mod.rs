//! The store of variants: popular files, compressed at a high level while processors are idle.
//!
//! A variant is a file in the folder of the store. Its name is a hash of the version of the original: another version
//! has another name, so an outdated variant is never found. The name appears when the content is on the disk, so a
//! crash leaves no torn variant.
//!
//! Dictionaries are kept in the same way: the content of versions that clients may still have, from which deltas
//! of later versions are made.
//!
//! Event loops look files up in an immutable index, which is replaced when a file comes or goes.

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
