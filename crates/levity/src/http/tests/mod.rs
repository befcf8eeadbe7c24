//! Another version of HTTP on the same exchange: a front for HTTP/2 that only tests have. Its frames are those of the
//! `h2` crate, so what is tested is what the rest of the server asks of a version.

mod h2_front;
mod over_h2;
