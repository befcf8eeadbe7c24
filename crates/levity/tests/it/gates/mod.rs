//! Gates: who may use a site or route.

mod access;
mod basic_auth;
mod forward_auth;
mod jwt;
mod signed_url;
