//! TLS with clients: the certificates of sites, and handshakes.

pub mod acme;
pub mod handshake;
mod reports;
pub mod sites;
pub mod staple;

pub use self::reports::Reports;
