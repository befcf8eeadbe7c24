//! Gates: handlers that come first at a location. Each lets a request through to the next handler, or responds.

mod access;
mod basic_auth;
mod forward_auth;
mod jwt;
mod rate_limits;
mod signed_url;

pub(super) use self::jwt::has_mac;
