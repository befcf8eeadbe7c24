//! Gates: handlers that come first at a location. Each lets a request through to the next handler, or responds.

pub mod access;
pub mod basic_auth;
pub mod closed;
pub mod forward_auth;
mod jwt;
pub mod rate_limits;
mod signed_url;

pub(super) use self::jwt::has_mac;
