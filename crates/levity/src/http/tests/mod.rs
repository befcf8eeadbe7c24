//! What is to come, as far as only tests have it: a front for HTTP/2 on the same exchange, and responses that outlive
//! theirs.
//!
//! The frames of the front are those of the `h2` crate: what is tested is what the rest of the server asks of a version.

mod h2_front;
mod held;
mod over_h2;
