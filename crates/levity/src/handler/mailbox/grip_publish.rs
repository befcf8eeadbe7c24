//! The control endpoint of GRIP, to which libraries such as pubcontrol publish.

use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use levity_config::Secret;
use levity_mailbox::{Draft, Name, Reservation};
use levity_wire::grip::{Item, items};
use levity_wire::jwt::{self, Algorithm};
use sha2::Sha256;

use super::super::{Handling, refused_body, without_body};
use super::publish::{fill, listed, push_result, reserve};
use super::{grip_item, refused_by_store};
use crate::http::error::error;
use crate::http::gathered::Gathered;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::route::MailboxEndpoint;

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
        endpoint: &MailboxEndpoint,
    ) -> Response {
        match Box::pin(self.try_publish_items(request, &endpoint.set)).await {
            Ok(response) | Err(response) => response,
        }
    }

    async fn try_publish_items(
        &mut self,
        request: &Request,
        set: &Arc<MailboxSet>,
    ) -> Result<Response, Response> {
        let has_token = self.has_token(request, set);
        if !has_token {
            // Before the body is read, for no box in particular.
            self.check_publisher(request, set, "")?;
        }
        let (content, _memory) = self.received_items(set).await?;
        let items = items(&content).map_err(|reject| error(reject.status, reject.reason))?;
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

    /// Reads the body, at most `limits.body_bytes`; its memory counts as that of messages.
    async fn received_items(
        &mut self,
        set: &MailboxSet,
    ) -> Result<(Vec<u8>, Reservation), Response> {
        let bytes_max = self.service.config.limits.body_bytes as u64;
        self.body.limit(bytes_max).map_err(refused_body)?;
        let announced = self.body.remaining().unwrap_or(bytes_max) as usize;
        let mut reservation = reserve(set, announced)?;
        let mut content = Gathered::default();
        self.body.send_continue().await;
        while !self.body.is_complete() {
            let received = self.body.receive(&mut content).await;
            received.map_err(without_body)?;
        }
        self.body.timer().clear();
        let (mut content, _) = content.into_parts();
        content.shrink_to_fit();
        let _ = reservation.try_resize(content.len().min(announced));
        Ok((content, reservation))
    }

    /// Whether the request has a token that a key of the set has signed. The libraries send one instead of the key.
    fn has_token(&self, request: &Request, set: &MailboxSet) -> bool {
        let given = request.header("authorization");
        let given = given.and_then(|value| value.split_at_checked(7));
        let Some((_, token)) = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
        else {
            return false;
        };
        let Some(token) = jwt::parse(token.trim_ascii()) else {
            return false;
        };
        let is_signed = |Secret(key): &Secret| {
            !key.is_empty()
                && Hmac::<Sha256>::new_from_slice(key).is_ok_and(|mut mac| {
                    mac.update(token.signed);
                    mac.verify_slice(&token.signature).is_ok()
                })
        };
        let now = self.worker.wall_time(Instant::now());
        let now = now.duration_since(UNIX_EPOCH);
        let now_s = now.unwrap_or_default().as_secs_f64();
        let claims = &token.claims;
        token.algorithm == Algorithm::Hs256
            && claims.expires.is_some_and(|end| now_s < end)
            && claims.not_before.is_none_or(|start| start <= now_s)
            && set.of.publish_key.as_ref().is_some_and(is_signed)
    }
}
