//! TLS with clients: the certificates of sites, and handshakes.
//!
//! ```text
//!    accept -> PROXY header -> hello -> policy by name -> answer -> rest of it -> requests
//! ```
//!
//! The hello is read on the loop. The answer to it is made there, or in the pool for keys of RSA;
//! the rest of the handshake on the loop, or in the pool for client certificates.
//!
//! - [`TlsSites`](sites::TlsSites) belongs to a `Service` and is built with it. A thread beside the
//!   control thread looks at the files every 2 s and swaps the policies; an event loop loads them
//!   without a lock, once per handshake.
//! - A site keeps what it had: a `Source` (`source.rs`) reads the files of one site. If they cannot
//!   be used, this site goes on with the certificates of before, and others get their new ones.
//!   Certificates and authorities of clients are read apart. `changes.rs` logs a line for each kind
//!   of change. At the start there is nothing of before: the handshakes of this site are refused
//!   until its files can be used. A reload is refused for a site that it changes.
//! - No descriptor: `Transport::socket` is `None`, so nothing uses `sendfile` or pipes. Engines
//!   that leave bytes in the page cache are asked to read into memory (`http/send/file.rs`),
//!   because a copy on the loop may wait for the disk.
//! - Client certificates: the rules of the handshake are noted at the peer. `handler/https.rs`, the
//!   first handler of each location of such a site, compares them with those of the site at
//!   present: 421 for others, 403 without TLS.
//! - Early data: a request is early if the handshake is not complete when its header has been read.
//!   `route` of `exchange/` refuses with 425 what may change something, and what is for a site
//!   without `early_data` (RFC 8470).
//! - Responses of OCSP ([`staple`]): the control thread asks responders, at half of a response's
//!   life and 1 min to 1 h after failures. `TlsSites::refresh` takes what has come, so that
//!   certificates and responses are stored in one place. No event loop takes the lock of
//!   [`Staples`](staple::Staples), and nobody holds it while a file is read.
//! - What a reload does not change is one value, [`TlsParts`](parts::TlsParts). In a build without
//!   the feature `tls`, `absent.rs` stands for this room.
//! - What operators see of certificates is a
//!   [`CertificateReport`](certificates::CertificateReport). A server makes it from the policies in
//!   use (`TlsSites::reports`, without a lock on files), `levity certs` from the files
//!   (`offline.rs`, which makes nothing).

pub mod acme;
pub mod arriving;
#[cfg_attr(not(feature = "acme"), path = "authorities/absent.rs")]
pub mod authorities;
pub mod certificates;
mod changes;
pub mod folder;
pub mod handshake;
pub mod offline;
pub mod parts;
pub mod signature;
pub mod sites;
mod source;
pub mod stamp;
pub mod staple;
pub mod trust;
