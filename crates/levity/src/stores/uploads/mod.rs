//! What is known of the uploads beneath a root: room, incomplete files, changes. Event loops share
//! it; they take its locks for one look-up, and only for requests that write.
//!
//! Entries, missing names and listings that were looked up before the last change of their folder
//! are not used, and a lookup does not join one that is in flight ([`changes`]). So a client that
//! has its 201 gets the new content from every worker, without a message between them; by way of
//! other roots, too, if these contain that of the uploads or lie in it ([`related`]).
//!
//! An incomplete file is kept as an open file without a name: nothing of it can be left behind, and
//! it does not outlive the server ([`parts`]). What all names count is within the quota at any time
//! ([`room`]): a file that will be replaced lends its room to those that replace it, each byte
//! once, and no more in all than the largest file may have, since until then both are on the disk.
//! The first count is made by a task of its own as well; requests wait for it as long as for the
//! disk.

pub mod changes;
pub mod name_locks;
pub mod parts;
pub mod related;
pub mod room;
pub mod store;
