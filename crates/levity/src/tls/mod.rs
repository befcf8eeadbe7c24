//! TLS with clients: the certificates of sites, and handshakes.

pub mod acme;
pub mod certificates;
mod changes;
pub mod folder;
pub mod handshake;
pub mod offline;
pub mod sites;
mod source;
pub mod stamp;
pub mod staple;
pub mod trust;
