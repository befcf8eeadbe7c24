//! `levity timing` and `levity top`: what access logs and `/status.json` say, for people.
//!
//! The crate links nothing of the server: the keys of the log and of `/status.json` are the interface.
//! The benchmark uses [`histogram`] and [`svg`] too.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

pub mod histogram;
mod printable;
pub mod svg;
pub mod timing;
pub mod top;
