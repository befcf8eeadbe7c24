//! The store of variants: popular files, compressed at a high level while processors are idle.
//!
//! A variant is a file in the folder of the store. Its name is a hash of the version of the original: another version
//! has another name, so an outdated variant is never found. The name appears when the content is on the disk, so a
//! crash leaves no torn variant.
//!
//! Event loops look variants up in an immutable index, which is replaced when a variant comes or goes.

pub mod candidates;
mod find;
mod index;
mod make;
mod name;
pub mod store;
#[cfg(test)]
mod tests;
