//! The gate that decides by the address of the client.

use levity_config::AddressSet;
use levity_telemetry::stats::GateKind;

use super::super::chain::{Decision, Gate};
use super::super::{Handling, Outcome};
use crate::http::error::error;
use crate::message::client::Client;
use crate::message::request::Request;

/// The clients that a location lets in.
pub struct Access {
    /// All of them; `None` stands for everyone.
    pub allow: Option<AddressSet>,
    /// Those that are refused nevertheless.
    pub deny: AddressSet,
}

impl Gate for Access {
    const KIND: Option<GateKind> = Some(GateKind::Access);

    /// Proxies that are trusted name the client.
    fn ask<'s>(&'s self, cx: &mut Handling<'s>, _: &Request) -> Decision<'s> {
        let ip = cx.client.ip;
        let is_allowed = self.allow.as_ref().is_none_or(|set| set.contains(ip));
        let reason = match is_allowed {
            true if !self.deny.contains(ip) => return Decision::Now(Outcome::Next),
            true => "the address of the client is in `deny`",
            false => "the address of the client is not in `allow`",
        };
        cx.explain_refusal(reason);
        error(403, "").into()
    }

    fn name(&self, client: &Client) -> String {
        let ip = client.ip.map(|ip| ip.to_string());
        let ip = ip.unwrap_or_else(|| "of a Unix socket".to_owned());
        format!("`allow` and `deny`, client {ip}")
    }
}
