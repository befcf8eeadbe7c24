//! What applications say about mailboxes in the headers of their responses: `Mailbox-Deliver` sends the content to boxes, and
//! `Mailbox-Open` has the client receive from one.

use std::io;
use std::mem;
use std::sync::Arc;

use levity_disk::Class;
use levity_mailbox::{Name, Reservation};
use levity_wire::{Reject, grip, mailbox_header, mime};

use super::super::Handling;
use super::forms::Form;
use super::publish::{described, fill, listed_boxes, reserve, summary};
use super::reason_of;
use super::receive::{Query, cursor, preferred};
use super::receiver::Hold;
use crate::handler::mailbox::for_mailboxes::ForMailboxes;
use crate::handler::sendfile::Delegated;
use crate::http::response::{Body, Response};
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::message::fields::{Fields, lines};
use crate::message::request::Request;
use crate::upstream::codec::head::Head;

/// Headers of an application's response that do not describe what the client gets in place of its content.
const OF_CONTENT: [&str; 6] = [
    "Content-Range",
    "Accept-Ranges",
    "ETag",
    "Last-Modified",
    "Content-Digest",
    "Repr-Digest",
];

/// The size of a read of a file.
const READ_BYTES: usize = 1 << 20;

/// The boxes that the headers `name` list.
fn boxes(fields: &Fields, name: &str, set: &MailboxSet) -> Result<Vec<Name>, Reject> {
    let all = lines(fields.as_bytes());
    let named = all.filter(|line| line.name.eq_ignore_ascii_case(name.as_bytes()));
    let mut values = named.map(|line| line.value).peekable();
    match values.peek() {
        None => Ok(Vec::new()),
        Some(_) => listed_boxes(values, set),
    }
}

impl Handling<'_> {
    /// Does what the response of an application says about the boxes of `set`.
    pub(in crate::handler) async fn use_mailboxes(
        &mut self,
        request: &Request,
        set: &Arc<MailboxSet>,
        mut answer: Box<ForMailboxes>,
    ) -> Response {
        let head = &answer.head;
        let is_grip = head.mailbox.value(grip::HOLD).is_some() || head.is_grip_instruct();
        let used = match is_grip {
            true => self.hold_by_grip(set, &mut answer).await,
            false => self.use_headers(request, set, &mut answer).await,
        };
        let (Ok(mut response) | Err(mut response)) = used;
        response.close |= !answer.end_request();
        response
    }

    async fn use_headers(
        &mut self,
        request: &Request,
        set: &Arc<MailboxSet>,
        answer: &mut ForMailboxes,
    ) -> Result<Response, Response> {
        let boxes = |name| {
            let boxes = boxes(&answer.head.mailbox, name, set);
            boxes.map_err(|reject| answer.refuse(502, reject.reason))
        };
        let (open, deliver) = (
            boxes(mailbox_header::OPEN)?,
            boxes(mailbox_header::DELIVER)?,
        );
        if open.len() > 1 {
            let reason = "Mailbox-Open names more than one mailbox, whose ids would be mixed";
            return Err(answer.refuse(502, reason));
        }
        let is_message = !deliver.is_empty();
        if is_message {
            let counted = self.count_publishes(set, deliver.len());
            counted.map_err(|mut refusal| {
                answer.log(503, "more messages than `publishes_per_second`");
                refusal.status = 503;
                refusal
            })?;
        }
        let (content, mut reservation) = self.content_of(set, answer).await?;
        let mut hold = Hold::default();
        let is_free = is_message || content.is_empty();
        let form = form(request, &answer.head.fields, is_free);
        // It gets what is delivered, if it is to the same box.
        let opened = match open.first() {
            Some(name) => {
                let cursor = cursor(request, &Query::of(request))?;
                Some(self.open(set, name, cursor).await?)
            }
            None => None,
        };
        let mut delivered = None;
        if is_message {
            let content = (content, reservation);
            let summary = self.deliver_content(set, deliver, content, answer);
            delivered = Some(summary.await?);
        } else {
            let _ = reservation.try_resize(content.len());
            hold.first = Some((content, reservation));
        }
        let start = start_of(&answer.head);
        match (opened, delivered) {
            (Some(opened), _) => {
                let mut response = self.stream(set, opened, form, hold);
                begin(&mut response, start, form == Form::Content);
                Ok(response)
            }
            (None, Some(mut summary)) => {
                add_to(&mut summary, start, false);
                Ok(summary)
            }
            (None, None) => Err(answer.refuse(502, "the headers name no mailbox")),
        }
    }

    /// Reads the content of the response, for which memory is reserved before.
    pub(super) async fn content_of(
        &mut self,
        set: &MailboxSet,
        answer: &mut ForMailboxes,
    ) -> Result<(Vec<u8>, Reservation), Response> {
        let bytes_max = set.of.message_bytes;
        if let Some(delegated) = answer.delegated(self.service.config.server.etag) {
            return self.file_of(set, answer, &delegated).await;
        }
        let length = answer.length().unwrap_or(bytes_max as u64);
        let reserved = reserve(set, length.min(bytes_max as u64) as usize);
        let reservation = reserved.inspect_err(|refusal| log_memory(answer, refusal))?;
        let content = answer.content(bytes_max, self.disk.trace).await;
        let mut content = content.inspect_err(|refusal| {
            if refusal.status == 502 {
                set.shared.refusals.add(Refusal::MessageBytes);
            }
        })?;
        content.shrink_to_fit();
        Ok((content, reservation))
    }

    /// Reads the file that is the content, as far as the engines have to: receivers do not wait for it any more.
    async fn file_of(
        &mut self,
        set: &MailboxSet,
        answer: &ForMailboxes,
        delegated: &Delegated,
    ) -> Result<(Vec<u8>, Reservation), Response> {
        let file = delegated.open_for_message(&mut self.disk).await?;
        let bytes = file.meta().size;
        let bytes_max = set.of.message_bytes;
        if bytes > bytes_max as u64 {
            set.shared.refusals.add(Refusal::MessageBytes);
            return Err(answer.refuse_long(bytes_max));
        }
        let reserved = reserve(set, bytes as usize);
        let reservation = reserved.inspect_err(|refusal| log_memory(answer, refusal))?;
        self.disk.read_into_memory();
        let mut content = Vec::with_capacity(bytes as usize);
        while (content.len() as u64) < bytes {
            let rest = bytes as usize - content.len();
            let offset = content.len() as u64;
            let read = self
                .disk
                .read(&file, offset, rest.min(READ_BYTES), Class::First);
            let read = read.await.and_then(|read| {
                let piece = read.ready.into_bytes(self.worker.core.disk.budget())?;
                match piece.is_empty() {
                    true => Err(io::ErrorKind::UnexpectedEof.into()),
                    false => Ok(piece),
                }
            });
            let piece = read.map_err(|error| delegated.refuse(502, error))?;
            content.extend_from_slice(&piece);
        }
        Ok((content, reservation))
    }

    /// Sends the content to `boxes`. Returns the summary for the client.
    async fn deliver_content(
        &self,
        set: &MailboxSet,
        boxes: Vec<Name>,
        (content, reservation): (Vec<u8>, Reservation),
        answer: &ForMailboxes,
    ) -> Result<Response, Response> {
        let head = &answer.head;
        let header = |name| head.mailbox.value(name).or_else(|| head.fields.value(name));
        let draft = described(header, set, self.now());
        let mut draft = draft.map_err(|reject| answer.refuse(502, reject.reason))?;
        let filled = fill(set, &mut draft, content, reservation);
        filled.inspect_err(|refusal| log_memory(answer, refusal))?;
        let is_list = boxes.len() > 1;
        let delivered = self.deliver(set, boxes, draft).await;
        let deliveries = delivered.inspect_err(|refusal| {
            answer.log(refusal.status, "the mailboxes do not answer");
        })?;
        for (name, result) in &deliveries {
            if let Err(failure) = result {
                let (_, status) = reason_of(failure);
                answer.log(status, format_args!("{}: {failure}", name.in_set()));
            }
        }
        let summary = summary(set, &deliveries, is_list);
        match summary.status {
            400.. => Err(summary),
            _ => Ok(summary),
        }
    }
}

fn log_memory(answer: &ForMailboxes, refusal: &Response) {
    answer.log(refusal.status, "the memory of mailboxes is used up");
}

/// In which form the client gets messages. What the application says goes before what the client prefers, which counts only
/// where the content of the application is not the beginning.
fn form(request: &Request, fields: &Fields, is_free: bool) -> Form {
    let media_type = fields.value("content-type").unwrap_or_default();
    let essence = mime::essence(media_type);
    let is = |form: &Form| essence.eq_ignore_ascii_case(form.media_type().as_bytes());
    match [Form::Events, Form::Lines].into_iter().find(is) {
        Some(form) => form,
        None if is_free => preferred(request).unwrap_or(Form::Content),
        None => Form::Content,
    }
}

/// What the client gets of the head of an application's response.
pub(super) fn start_of(head: &Head) -> Response {
    let mut start = Response::new(head.status);
    start.reason = head.reason.as_slice().into();
    start.fields.extend_except(&head.fields, &OF_CONTENT);
    (start.has_date, start.has_server) = (head.has_date, head.has_server);
    start
}

/// Begins `response` with the status of `start`, and with its headers in place of its own.
pub fn begin(response: &mut Response, mut start: Response, keeps_type: bool) {
    let is_held = matches!(response.body, Body::Held { .. });
    // Without content nobody is held.
    if !(is_held && matches!(start.status, 204 | 205 | 304)) {
        response.status = start.status;
        response.reason = mem::take(&mut start.reason);
    }
    add_to(response, start, keeps_type);
}

/// Replaces the headers of `response` by those of `start`; `Content-Type` only if the content is the application's.
fn add_to(response: &mut Response, mut start: Response, keeps_type: bool) {
    if !keeps_type {
        start.fields.remove("content-type");
    }
    for name in start.fields.names() {
        response.fields.remove(&name);
    }
    response.fields.extend(&start.fields);
    (response.has_date, response.has_server) = (start.has_date, start.has_server);
}
