//! The control endpoint of GRIP, to which libraries such as pubcontrol publish.

use levity_config::Secret;
use levity_mailbox::{Draft, Name};
use levity_wire::grip::{Item, items};
use levity_wire::jwt::{self, Algorithm};

use super::super::gate::has_mac;
use super::super::{Handling, without_body};
use super::MailboxEndpoint;
use super::publish::{fill, listed, push_result, reserve};
use super::{grip_item, refused_by_store, rejected};
use crate::http::error::error;
use crate::http::response::Response;
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::message::request::Request;

/// What follows the path of the endpoint. No box has such a name.
const PATH: &[u8] = b"publish/";

/// Whether the request is for the control endpoint.
pub fn is_for(request: &Request, endpoint: &MailboxEndpoint) -> bool {
    endpoint.beneath(&request.path) == PATH
}

impl Handling<'_> {
    /// Publishes the items that the body describes.
    pub(super) async fn publish_items(
        &mut self,
        request: &Request,
        set: &MailboxSet,
    ) -> Result<Response, Response> {
        let has_token = self.has_token(request, set);
        if !has_token {
            // Before the body is read, for no box in particular.
            self.check_publisher(request, set, "")?;
        }
        let bytes_max = self.service.config.limits.body_bytes;
        let (content, mut memory) = self.received_below(set, bytes_max, without_body).await?;
        // The items are read beside the content, so what it has not taken is given back.
        let _ = memory.try_resize(content.len());
        let items = self.parsed(content, items).await?.map_err(rejected)?;
        for item in &items {
            if !has_token {
                self.check_publisher(request, set, &item.name)?;
            }
            self.count_publishes(set, 1)?;
        }
        let mut published = String::new();
        for item in items {
            let name = Name::new(&set.of.name, item.name.as_bytes())
                .ok_or_else(|| error(400, "bad name of a channel"))?;
            let draft = self.draft(set, item)?;
            for (name, result) in self.deliver(set, vec![name], draft).await? {
                let one = result.map_err(|failure| refused_by_store(set, &failure))?;
                push_result(&mut published, &name, &one);
            }
        }
        Ok(listed(200, &published))
    }

    fn draft(&self, set: &MailboxSet, mut item: Item) -> Result<Draft, Response> {
        let key = item.id.take();
        let (media_type, content) = grip_item::kept(item);
        if content.len() > set.of.message_bytes {
            set.shared.refusals.add(Refusal::MessageBytes);
            let reason = format!("an item exceeds {} bytes", set.of.message_bytes);
            return Err(error(413, &reason));
        }
        let reservation = reserve(set, content.len())?;
        let mut draft = Draft {
            key: key.map(Into::into),
            media_type: media_type.into(),
            deadline: set.settings.lifetime.map(|lifetime| self.now() + lifetime),
            ..Draft::default()
        };
        fill(set, &mut draft, content, reservation)?;
        Ok(draft)
    }

    /// Whether the request has a token that a key of the set has signed. The libraries send one instead of the key.
    fn has_token(&self, request: &Request, set: &MailboxSet) -> bool {
        let (Some(token), Some(Secret(key))) =
            (request.bearer().and_then(jwt::parse), &set.of.publish_key)
        else {
            return false;
        };
        let (now_s, claims) = (self.now_s(), &token.claims);
        token.algorithm == Algorithm::Hs256
            && claims.expires.is_some_and(|end| now_s < end)
            && claims.not_before.is_none_or(|start| start <= now_s)
            && !key.is_empty()
            && has_mac(key, &token)
    }
}
