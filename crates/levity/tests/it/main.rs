//! The server as its users meet it: a process, its sockets and the files that it serves. One module
//! per feature; a test that touches files runs once per disk engine.

mod support;

mod absent;
mod ajp13;
mod ambiguous;
mod apps;
mod checks;
mod chunks;
mod cli;
mod client;
mod clients;
mod compress;
mod conditional;
mod config;
mod dictionaries;
mod docs;
mod engines;
mod fastcgi;
mod files;
mod fresh;
mod http1;
mod idle;
mod listing;
mod log;
mod names;
mod precompress;
mod precompressed;
mod processor;
mod proxy;
mod proxy_protocol;
mod range;
mod refused;
mod rewrite;
mod root;
mod scgi;
mod scripted;
mod sendfile;
mod signals;
mod spool;
mod status;
mod substitute;
mod timeouts;
mod timing;
mod variants;
mod watch;
