//! The mailboxes of the process: their owners, and the sets that the configuration describes.

pub mod figures;
pub mod local;
pub mod set;
pub mod start;
