//! TLS with clients: the certificates of sites, and handshakes.

pub mod acme;
pub mod certificates;
pub mod handshake;
pub mod offline;
mod reports;
pub mod sites;
pub mod staple;

pub use self::reports::Reports;
