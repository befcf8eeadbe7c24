//! The origin of a request.

use super::client::Client;
use super::request::Request;

/// The origin that an application was requested under (RFC 6454, 4). It may know itself by no other name, and may
/// redirect requests that come by another scheme.
#[derive(Debug, Clone)]
pub struct Origin {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// With the port.
    pub host: Vec<u8>,
}

impl Origin {
    /// That of `request` of `client`.
    pub fn of(request: &Request, client: &Client) -> Self {
        Self {
            scheme: client.scheme,
            host: request.host().to_vec(),
        }
    }
}
