//! The server as its users meet it: a process, its sockets and the files that it serves. One module
//! per feature; a test that touches files runs once per disk engine.

// Tests of features that are left out use it.
#![cfg_attr(not(feature = "default"), allow(dead_code, unused_imports))]

#[cfg(feature = "mailbox")]
#[path = "../../../levity-mailbox/tests/faults/mod.rs"]
mod faults;
#[path = "../../../levity-mailbox/tests/servers/mod.rs"]
#[allow(dead_code, reason = "the suites of stores use more of it")]
mod servers;
mod support;

mod absent;
#[cfg(feature = "acme")]
mod acme;
#[cfg(feature = "ajp")]
mod ajp13;
#[cfg(feature = "ajp")]
mod ambiguous;
mod apps;
mod archives;
#[cfg(feature = "default")]
mod browser;
mod byteranges;
#[cfg(feature = "tls")]
mod certs;
mod checks;
mod chunks;
mod cli;
mod client;
mod clients;
mod closing;
#[cfg(feature = "compress")]
mod compress;
mod conditional;
mod config;
mod confinement;
mod content_etag;
mod control;
#[cfg(feature = "compress")]
mod dictionaries;
mod digests;
#[cfg(feature = "default")]
mod docs;
#[cfg(feature = "tls")]
mod early_data;
mod engines;
mod error_pages;
mod explain;
mod fastcgi;
#[cfg(feature = "tls")]
mod file_server;
mod files;
#[cfg(feature = "default")]
mod found;
mod fresh;
#[cfg(feature = "default")]
mod from_nginx;
mod gates;
#[cfg(all(feature = "http2", feature = "tls"))]
mod grpc;
mod headers;
mod http1;
#[cfg(all(feature = "http2", feature = "tls"))]
mod http2;
mod idle;
mod include;
mod listing;
mod log;
#[cfg(feature = "mailbox")]
mod mailbox;
mod matching;
mod names;
#[cfg(feature = "default")]
mod packages;
mod piped;
#[cfg(feature = "compress")]
mod precompress;
mod precompressed;
mod processor;
mod proxy;
mod proxy_protocol;
mod range;
mod rate_limits;
mod redirect;
mod refused;
#[cfg(feature = "default")]
mod release;
mod reroute;
mod rewrite;
mod root;
mod scgi;
mod scripted;
mod secrets;
mod sendfile;
#[cfg(feature = "http2")]
mod shares;
mod signals;
mod silent_files;
mod site_logs;
mod spool;
mod static_host;
mod status;
mod substitute;
mod timeouts;
#[cfg(feature = "inspect")]
mod timing;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_broken;
#[cfg(feature = "tls")]
mod tls_clients;
#[cfg(feature = "tls")]
mod tls_missing;
#[cfg(feature = "tls")]
mod tls_pem;
#[cfg(feature = "tls")]
mod tls_reload;
#[cfg(feature = "acme")]
mod tls_staple;
#[cfg(feature = "tls")]
mod tls_unusual;
mod try_steps;
#[cfg(all(feature = "http2", feature = "tls"))]
mod turns;
#[cfg(feature = "upload")]
mod uploads;
#[cfg(feature = "compress")]
mod variants;
mod watch;
#[cfg(feature = "default")]
mod wordpress;
