//! What is known of the uploads beneath a root: room, incomplete files, changes. Event loops share it; they take its locks
//! for one look-up, and only for requests that write.

pub mod changes;
pub mod name_locks;
pub mod parts;
pub mod related;
pub mod room;
pub mod store;
