//! Certificates from authorities that speak ACME (RFC 8555). Knows no sites.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

pub mod http;
pub mod responder;
