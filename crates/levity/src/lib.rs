//! Levity, a web server whose event loop never waits for the disk.
//!
//! The binary is thin: [`cli`] turns arguments into a [`cli::Step`], and [`config`] turns a file into
//! the values that the rest of the crate reads.

pub mod address;
pub mod cli;
pub mod config;
