//! Publishing by request: the body is the message.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use levity_mailbox::{Append, Command, Delivery, Draft, Name, Published, Reservation, steady_time};
use levity_wire::{Reject, mailbox_header};
use serde_json::json;

use super::super::{Handling, without_body};
use super::MailboxEndpoint;
use super::{grip_item, json_text, reason_of, rejected};
use crate::http::error::error;
use crate::http::gathered::Gathered;
use crate::http::response::Response;
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::message::request::{Request, RequestError};

/// The header that names several boxes.
const DELIVER: &str = "mailbox-deliver";

/// The refusal of a message for no box.
const NO_NAME: &str = "no mailbox is named: name it in the path, or send `Mailbox-Deliver`";

/// The media type of a message whose publisher names none.
const DEFAULT_TYPE: &str = "application/octet-stream";

/// The memory of a message beside its content, about, while it is read.
const OVERHEAD_BYTES: usize = 1024;

/// The result for one box in JSON, in bytes, about.
const RESULT_BYTES: usize = 160;

impl Handling<'_> {
    /// Publishes the body to the box that the path names, or to those that `Mailbox-Deliver` names.
    pub(super) async fn publish(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
    ) -> Result<Response, Response> {
        let set = &endpoint.set;
        let is_list = request.header(DELIVER).is_some();
        let names = match is_list {
            true => listed_boxes(request.headers_named(DELIVER), set).map_err(rejected)?,
            false if endpoint.beneath(&request.path).is_empty() => {
                return Err(error(400, NO_NAME));
            }
            false => vec![self.named_box(request, endpoint)?],
        };
        for name in &names {
            self.check_publisher(request, set, name.in_set())?;
        }
        self.count_publishes(set, names.len())?;
        let draft = described(|name| request.header(name), set, self.now());
        let mut draft = draft.map_err(rejected)?;
        let (content, reservation) = self.received(set).await?;
        fill(set, &mut draft, content, reservation)?;
        let deliveries = self.deliver(set, names, draft).await?;
        Ok(summary(set, &deliveries, is_list))
    }

    /// The present time of mailboxes.
    pub(super) fn now(&self) -> SystemTime {
        steady_time(Instant::now())
    }

    /// Takes `count` of the publishes of this second: a message counts for each box that gets it.
    pub(super) fn count_publishes(&self, set: &MailboxSet, count: usize) -> Result<(), Response> {
        set.take_publishes(count, Instant::now()).map_err(|wait| {
            set.shared.refusals.add(Refusal::PublishesPerSecond);
            let mut refusal = error(429, "too many messages per second");
            let seconds = wait.as_secs() + 1;
            refusal
                .fields
                .add("Retry-After", seconds.to_string().as_bytes());
            refusal
        })
    }

    /// Reads the body of the request, which is a message.
    pub(super) async fn received(
        &mut self,
        set: &MailboxSet,
    ) -> Result<(Vec<u8>, Reservation), Response> {
        let refused = |failure| match failure {
            RequestError::Refused(reject) if reject.status == 413 => too_long(set),
            failure => without_body(failure),
        };
        self.received_below(set, set.of.message_bytes, refused)
            .await
    }

    /// Reads the body of the request, at most `bytes_max`. Its memory is reserved before.
    pub(super) async fn received_below(
        &mut self,
        set: &MailboxSet,
        bytes_max: usize,
        refused: impl Fn(RequestError) -> Response,
    ) -> Result<(Vec<u8>, Reservation), Response> {
        let limited = self.body.limit(bytes_max as u64);
        limited.map_err(|reject| refused(reject.into()))?;
        let announced = self.body.remaining().unwrap_or(bytes_max as u64) as usize;
        let reservation = reserve(set, announced)?;
        let mut content = Gathered::default();
        self.body.send_continue().await;
        while !self.body.is_complete() {
            let received = self.body.receive(&mut content).await;
            received.map_err(&refused)?;
        }
        self.body.timer().clear();
        let (mut content, _) = content.into_parts();
        content.shrink_to_fit();
        Ok((content, reservation))
    }

    /// Has all boxes of `names` get the message. The results are in the same order.
    pub(super) async fn deliver(
        &self,
        set: &MailboxSet,
        names: Vec<Name>,
        draft: Draft,
    ) -> Result<Vec<Delivery>, Response> {
        let (copies, draft) = (&self.worker.mailboxes, Arc::new(draft));
        let mut by_owner: BTreeMap<usize, Vec<Append>> = BTreeMap::new();
        for name in &names {
            let owner = copies.owner_of(name);
            let append = Append {
                name: name.clone(),
                settings: set.settings.clone(),
                draft: draft.clone(),
                update: None,
            };
            by_owner.entry(owner).or_default().push(append);
        }
        let publish =
            |(owner, appends)| copies.ask(owner, |reply| Command::Publish { appends, reply });
        let answers: Vec<_> = by_owner.into_iter().map(publish).collect();
        let mut deliveries = Vec::with_capacity(names.len());
        for answer in answers {
            deliveries.extend(self.answer_of_owner(answer).await?);
        }
        deliveries.sort_by_key(|(name, _)| names.iter().position(|one| one == name));
        Ok(deliveries)
    }
}

fn too_long(set: &MailboxSet) -> Response {
    set.shared.refusals.add(Refusal::MessageBytes);
    let mut refusal = error(413, "the message is longer than `message_bytes` allows");
    refusal.close = true;
    refusal
}

/// The boxes that the lines of `Mailbox-Deliver` or `Mailbox-Open` name.
///
/// # Errors
/// What is wrong with them.
pub(super) fn listed_boxes<'v>(
    lines: impl Iterator<Item = &'v [u8]>,
    set: &MailboxSet,
) -> Result<Vec<Name>, Reject> {
    let mut names = Vec::new();
    for line in lines {
        mailbox_header::add_names(&mut names, line)?;
    }
    if names.is_empty() {
        return Err(Reject::bad("no mailbox is named"));
    }
    let names = names
        .iter()
        .filter_map(|name| Name::new(&set.of.name, name.as_bytes()));
    Ok(names.collect())
}

/// A message without its content, as headers describe it.
///
/// # Errors
/// What is wrong with them.
pub(super) fn described<'v>(
    header: impl Fn(&'static str) -> Option<&'v [u8]>,
    set: &MailboxSet,
    now: SystemTime,
) -> Result<Draft, Reject> {
    let event = header("mailbox-event").map(mailbox_header::event);
    let key = header("mailbox-id").map(mailbox_header::key);
    let lifetime = header("mailbox-ttl").map(mailbox_header::ttl);
    let lifetime = lifetime.transpose()?.or(set.settings.lifetime);
    let media_type = header("content-type").map(str::from_utf8);
    let media_type = media_type
        .transpose()
        .map_err(|_| Reject::bad("Content-Type is no UTF-8"))?;
    if media_type.is_some_and(grip_item::is_media_type) {
        return Err(Reject::bad(
            "messages of this type are published as items of GRIP",
        ));
    }
    Ok(Draft {
        key: key.transpose()?.map(Into::into),
        event: event.transpose()?.unwrap_or_default().into(),
        media_type: media_type.unwrap_or(DEFAULT_TYPE).into(),
        deadline: lifetime.map(|lifetime| now + lifetime),
        ..Draft::default()
    })
}

/// Memory to read content of that length.
pub(super) fn reserve(set: &MailboxSet, bytes: usize) -> Result<Reservation, Response> {
    let reservation = set.shared.budget.try_reserve(bytes + OVERHEAD_BYTES);
    reservation.ok_or_else(|| without_memory(set))
}

/// Gives a message its content, and no more memory than it takes: its length may not have been known, and its headers may be
/// long.
pub(super) fn fill(
    set: &MailboxSet,
    draft: &mut Draft,
    content: Vec<u8>,
    mut reservation: Reservation,
) -> Result<(), Response> {
    draft.content = content.into();
    if !reservation.try_resize(draft.bytes()) {
        return Err(without_memory(set));
    }
    draft.reservation = Some(reservation);
    Ok(())
}

fn without_memory(set: &MailboxSet) -> Response {
    set.shared.refusals.add(Refusal::MailboxMemory);
    error(507, "the memory of mailboxes is used up")
}

/// What became of a message, for its publisher. Receivers are those of this server: others that share the store may have more.
pub(super) fn summary(set: &MailboxSet, deliveries: &[Delivery], is_list: bool) -> Response {
    let mut failed = None;
    let mut receivers = 0;
    let mut results = String::with_capacity(RESULT_BYTES * deliveries.len());
    for (name, result) in deliveries {
        match result {
            Ok(published) => {
                receivers += published.receivers;
                push_result(&mut results, name, published);
            }
            Err(failure) => {
                let (refusal, status) = reason_of(failure);
                let reason = failure.to_string();
                set.shared.refusals.add(refusal);
                failed.get_or_insert((status, reason.clone()));
                let result = json!({"mailbox": name.in_set(), "error": reason});
                separate(&mut results);
                results.push_str(&result.to_string());
            }
        }
    }
    let all_failed = deliveries.iter().all(|(_, result)| result.is_err());
    let status = match &failed {
        Some((status, reason)) if all_failed => return error(*status, reason),
        Some(_) => 207,
        None if receivers > 0 => 201,
        None => 202,
    };
    match is_list {
        true => listed(status, &results),
        false => json_text(status, results),
    }
}

/// A response with the results of several boxes.
pub(super) fn listed(status: u16, results: &str) -> Response {
    json_text(status, format!("{{\"mailboxes\":[{results}]}}"))
}

fn separate(results: &mut String) {
    if !results.is_empty() {
        results.push(',');
    }
}

/// Appends an object of JSON to those that are there. Names have no characters that JSON escapes.
pub(super) fn push_result(out: &mut String, name: &Name, published: &Published) {
    separate(out);
    let (name, id, receivers) = (name.in_set(), published.id, published.receivers);
    let is_duplicate = published.is_duplicate;
    let written = write!(
        out,
        r#"{{"duplicate":{is_duplicate},"id":"{id}","mailbox":"{name}","receivers_here":{receivers}}}"#
    );
    written.expect("a string takes everything");
}
