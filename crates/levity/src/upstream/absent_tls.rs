//! What stands for TLS with backends in a build without it. The configuration refuses upstreams that need it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use levity_config::upstream::{Protocol, UpstreamTls};
use levity_net::Transport;

use super::backend::Backend;

/// How connections would be encrypted.
pub struct BackendTls(Infallible);

impl BackendTls {
    /// As settings say, which the configuration has refused.
    pub fn new(_: &UpstreamTls, _: Protocol) -> Self {
        unreachable!("the configuration refuses TLS")
    }

    /// Why no file is used.
    pub fn failure(&self) -> Option<Arc<String>> {
        match self.0 {}
    }

    /// Whether there may be something to read.
    pub fn is_to_be_followed(&self) -> bool {
        match self.0 {}
    }

    /// Reads the files.
    pub fn refresh(&self) -> Option<String> {
        match self.0 {}
    }

    /// Makes the handshake.
    ///
    /// # Errors
    /// None.
    pub async fn encrypt(&self, _: Transport, _: &Backend) -> io::Result<Transport> {
        match self.0 {}
    }
}

/// No error is one of TLS.
pub fn error_type(_: &io::Error) -> Option<&'static str> {
    None
}

/// No error is a handshake that has failed.
pub fn copy(_: &io::Error) -> Option<io::Error> {
    None
}
