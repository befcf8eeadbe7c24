//! Responses: from a resolved entry to status, headers and body. Files that a body reads are read
//! by jobs of the disk, or by calls that cannot block.
//!
//! Listings ([`listing`]) and archives ([`archive`]) are written by async functions, 16 KiB per
//! turn of the loop, as the client takes them ([`generated`]). For an archive folders are read in
//! pieces, one file is open at a time, a small one that is in memory is opened and read on the loop
//! as for a request, and each path is routed as a request for it would be. An error after the first
//! byte cuts the body short.
//!
//! All listings and archives together take at most 64 MiB, of which 40 MiB are counted: snapshots
//! up to 30 MiB, 24 KiB for each client of one, 112 KiB for each client that reads the directory
//! itself, 256 KiB for each archive. Clients have shares of it, and of the descriptors that readers
//! and archives hold: a snapshot counts to the client that has it made. A client for whom there is
//! no memory waits for up to 6 s, then gets 503.

pub mod archive;
pub mod error_page;
pub mod file;
pub mod generated;
pub mod grpc;
pub mod listing;
pub mod redirect;

use crate::http::error::ALLOW;
use crate::http::response::Response;

/// The response to OPTIONS.
pub fn options() -> Response {
    let mut response = Response::new(204);
    response.fields.add("Allow", ALLOW);
    response
}
