//! Prototypes of later features: a front for HTTP/2 on the same exchange, and responses that outlive their exchange.
//!
//! They test that the interfaces of the server suffice. The framing of HTTP/2 is that of the `h2` crate.

mod h2_front;
mod held;
mod over_h2;
