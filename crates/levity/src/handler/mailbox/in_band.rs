//! What applications say about mailboxes in the headers of their responses: `Mailbox-Deliver` sends the content to boxes, and
//! `Mailbox-Open` has the client receive from one.

use std::io;
use std::mem;
use std::sync::Arc;

use levity_disk::Class;
use levity_mailbox::{Name, Reservation};
use levity_wire::{Reject, grip, mailbox_header};

use super::super::Handling;
use super::forms::Form;
use super::publish::{described, fill, listed_boxes, reserve, summary};
use super::reason_of;
use super::receive::{Query, cursor, preferred};
use super::receiver::Hold;
use crate::http::fields::{Fields, lines};
use crate::http::request::Request;
use crate::http::response::{Body, Response};
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::upstream::codec::head::Head;
use crate::upstream::for_mailboxes::ForMailboxes;
use crate::upstream::sendfile::Delegated;

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

/// What the headers of a response say.
struct Instruction {
    /// The box that the client opens.
    open: Option<Name>,
    /// The boxes that get the content.
    deliver: Vec<Name>,
}

impl Instruction {
    fn read(fields: &Fields, set: &MailboxSet) -> Result<Self, Reject> {
        let mut open = boxes(fields, mailbox_header::OPEN, set)?;
        if open.len() > 1 {
            return Err(Reject::bad_gateway(
                "Mailbox-Open names more than one mailbox, whose ids would be mixed",
            ));
        }
        Ok(Self {
            open: open.pop(),
            deliver: boxes(fields, mailbox_header::DELIVER, set)?,
        })
    }
}

/// The boxes that the headers `name` list.
fn boxes(fields: &Fields, name: &str, set: &MailboxSet) -> Result<Vec<Name>, Reject> {
    let is_called = |line: &[u8]| line.eq_ignore_ascii_case(name.as_bytes());
    let all = lines(fields.as_bytes());
    let mut values = all
        .filter(|line| is_called(line.name))
        .map(|line| line.value)
        .peekable();
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
        let instruction = Instruction::read(&answer.head.mailbox, set)
            .map_err(|reject| answer.refuse(502, reject.reason))?;
        let Instruction { open, deliver } = instruction;
        let is_message = !deliver.is_empty();
        if is_message {
            self.count_publishes(set, deliver.len())
                .map_err(|mut refusal| {
                    answer.log(503, "more messages than `publishes_per_second`");
                    refusal.status = 503;
                    refusal
                })?;
        }
        let (content, mut reservation) = self.content_of(set, answer).await?;
        let mut hold = Hold::default();
        let form = form(
            request,
            &answer.head.fields,
            is_message || content.is_empty(),
        );
        let mut opened = None;
        if let Some(name) = &open {
            let cursor = cursor(request, &Query::of(request))?;
            let (mut feed, slot) = self.subscribe(set, name, cursor)?;
            // It gets what is delivered, if it is to the same box.
            self.opened(set, &mut feed).await?;
            opened = Some((feed, slot));
        }
        let mut delivered = None;
        if is_message {
            let content = (content, reservation);
            let summary = self.deliver_content(set, deliver, content, answer);
            delivered = Some(summary.await?);
        } else {
            let _ = reservation.try_resize(content.len());
            hold.first = Some((content, reservation));
        }
        let start = Start::of(&answer.head);
        match (opened, delivered) {
            (Some(opened), _) => {
                let mut response = self.stream(set, opened, form, hold);
                start.begin(&mut response, form == Form::Content);
                Ok(response)
            }
            (None, Some(mut summary)) => {
                start.add_to(&mut summary, false);
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
        let reservation = reserved.inspect_err(|refusal| {
            answer.log(refusal.status, "the memory of mailboxes is used up");
        })?;
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
        let reservation = reserve(set, bytes as usize).inspect_err(|refusal| {
            answer.log(refusal.status, "the memory of mailboxes is used up");
        })?;
        self.disk.read_into_memory();
        let mut content = Vec::with_capacity(bytes as usize);
        while (content.len() as u64) < bytes {
            let rest = bytes as usize - content.len();
            let offset = content.len() as u64;
            let read = self
                .disk
                .read(&file, offset, rest.min(READ_BYTES), Class::First);
            let read = read.await.and_then(|read| {
                let piece = read.ready.into_bytes(self.worker.disk.budget())?;
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
        fill(set, &mut draft, content, reservation).inspect_err(|refusal| {
            answer.log(refusal.status, "the memory of mailboxes is used up");
        })?;
        let is_list = boxes.len() > 1;
        let deliveries = self
            .deliver(set, boxes, draft)
            .await
            .inspect_err(|refusal| {
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

/// In which form the client gets messages. What the application says goes before what the client prefers, which counts only
/// where the content of the application is not the beginning.
fn form(request: &Request, fields: &Fields, is_free: bool) -> Form {
    let media_type = fields.value("content-type").unwrap_or_default();
    let essence = media_type.split(|&byte| byte == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    let is = |form: &Form| essence.eq_ignore_ascii_case(form.media_type().as_bytes());
    match [Form::Events, Form::Lines].into_iter().find(is) {
        Some(form) => form,
        None if is_free => preferred(request).unwrap_or(Form::Content),
        None => Form::Content,
    }
}

/// What the client gets of the head of an application's response.
#[derive(Default)]
pub struct Start {
    pub status: u16,
    pub reason: Box<[u8]>,
    pub fields: Fields,
    pub has_date: bool,
    pub has_server: bool,
}

impl Start {
    pub fn of(head: &Head) -> Self {
        let mut fields = Fields::default();
        fields.extend_except(&head.fields, &OF_CONTENT);
        Self {
            status: head.status,
            reason: head.reason.as_slice().into(),
            fields,
            has_date: head.has_date,
            has_server: head.has_server,
        }
    }

    /// Begins `response` with this status, and with these headers in place of its own.
    pub fn begin(mut self, response: &mut Response, keeps_type: bool) {
        // Without content nobody is held.
        if !matches!(
            (self.status, &response.body),
            (204 | 205 | 304, Body::Held { .. })
        ) {
            response.status = self.status;
            response.reason = mem::take(&mut self.reason);
        }
        self.add_to(response, keeps_type);
    }

    /// Replaces the headers of `response` by these; `Content-Type` only if the content is the application's.
    pub fn add_to(mut self, response: &mut Response, keeps_type: bool) {
        if !keeps_type {
            self.fields.remove("content-type");
        }
        for name in self.fields.names() {
            response.fields.remove(&name);
        }
        response.fields.extend(&self.fields);
        response.has_date = self.has_date;
        response.has_server = self.has_server;
    }
}
