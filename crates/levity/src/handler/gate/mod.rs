//! Gates: handlers that come first at a location. Each lets a request through to the next handler,
//! or responds.
//!
//! They come before files, scripts, the upstream, redirects and fixed responses. Nothing that
//! depends on the requested path happens before them, so the time and the content of a refusal do
//! not tell what exists. Each gate is inherited by itself (`gates/` of `levity-config`), so that no
//! key of a route other than that of the gate opens it. They do not apply to internal locations:
//! the application that names one has decided about the client, and often knows more than the gate.
//!
//! - *Decisions of an application* (`forward_auth.rs`) are requests through the gateway, with the
//!   client but without its body, so that time-outs, retries and the end of the client's connection
//!   mean what they mean for any request. They have a trace of their own, which nobody logs: that
//!   of the request is about the application that answers it. The path in `X-Forwarded-Uri` is the
//!   one that was routed, because rules for another spelling of it might be more lenient. Headers
//!   that applications take from the decision are removed from all requests of clients to the
//!   applications of a site, also at locations without the gate.
//! - *Tokens and signed URLs* (`jwt.rs`, `signed_url.rs`) are checked on the loop, except for tokens
//!   where a key is public. At most four keys are tried for a token that names none. The key decides
//!   about the algorithm.
//! - *Rate limits* (`rate_limits.rs`) come after `allow` and `deny`, and before all gates that
//!   compute or ask somebody. They are no gates in the sense above: they say nothing about who may
//!   have a file.

pub mod access;
pub mod basic_auth;
pub mod closed;
pub mod forward_auth;
mod jwt;
pub mod rate_limits;
mod signed_url;

#[cfg(feature = "mailbox")]
pub(super) use self::jwt::has_mac;
