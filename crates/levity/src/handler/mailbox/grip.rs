//! GRIP: applications hold clients by the headers of Pushpin, and publish to its control endpoint.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use levity_mailbox::{Encoded, Feed, Message, Name, Next, Reservation};
use levity_wire::grip::{self, Instruct, TIMEOUT_DEFAULT};
use levity_wire::{mailbox_header, sendfile_header};

use super::super::Handling;
use super::forms::Form;
use super::grip_item::{self, Filtering, ResponseHead};
use super::in_band::{begin, start_of};
use super::mark_when_sent::MarkWhenSent;
use super::receiver::Hold;
use crate::handler::mailbox::for_mailboxes::ForMailboxes;
use crate::http::response::{Body, OwnedBytes, Response};
use crate::mailboxes::set::{MailboxSet, ReceiverSlot};
use crate::message::fields::lines;

impl Handling<'_> {
    /// Holds the client as the application says.
    pub(super) async fn hold_by_grip(
        &mut self,
        set: &Arc<MailboxSet>,
        answer: &mut ForMailboxes,
    ) -> Result<Response, Response> {
        let (instruct, start, content, memory) = self.instruction(set, answer).await?;
        let Some(hold) = instruct.hold else {
            return Ok(with_content(start, Encoded::counted(content, memory)));
        };
        if hold == grip::Hold::Stream && matches!(start.status, 204 | 205 | 304) {
            let status = start.status;
            return Err(answer.refuse(502, format_args!("a stream has the status {status}")));
        }
        let mut feeds = Vec::new();
        for channel in &instruct.channels {
            let name = Name::new(&set.of.name, channel.name.as_bytes());
            let name = name.ok_or_else(|| answer.refuse(502, "bad name of a channel"))?;
            feeds.push(self.subscribe(set, &name, None)?);
        }
        for (feed, _) in &mut feeds {
            self.opened(set, feed).await?;
        }
        let filtering = Filtering::new(instruct.user, instruct.channels);
        match hold {
            grip::Hold::Stream => {
                let first = feeds.remove(0);
                let mut hold = Hold::default();
                hold.first = Some((content, memory));
                hold.others = feeds;
                hold.keep_alive = instruct.keep_alive;
                hold.filtering = filtering;
                let mut response = self.stream(set, first, Form::Content, hold);
                begin(&mut response, start, true);
                Ok(response)
            }
            grip::Hold::Response => {
                let timeout = instruct.timeout.unwrap_or(TIMEOUT_DEFAULT);
                let published = self.published(feeds, filtering, Instant::now() + timeout);
                let published = published.await;
                Ok(published
                    .unwrap_or_else(|| with_content(start, Encoded::counted(content, memory))))
            }
        }
    }

    async fn instruction(
        &mut self,
        set: &MailboxSet,
        answer: &mut ForMailboxes,
    ) -> Result<(Instruct, Response, Vec<u8>, Reservation), Response> {
        let refused = |answer: &ForMailboxes, reason| answer.refuse(502, reason);
        let (content, mut reservation) = self.content_of(set, answer).await?;
        if answer.head.is_grip_instruct() {
            let read = self.parsed(content, Instruct::from_json).await?;
            let (instruct, response) = read.map_err(|reject| refused(answer, reject.reason))?;
            let _ = reservation.try_resize(response.body.len());
            let start = start_with(response.status, &response.headers);
            return Ok((instruct, start, response.body, reservation));
        }
        let _ = reservation.try_resize(content.len());
        let mut instruct = Instruct::default();
        let read = lines(answer.head.mailbox.as_bytes())
            .try_for_each(|line| instruct.read_header(line.name, line.value))
            .and_then(|()| instruct.check());
        read.map_err(|reject| refused(answer, reject.reason))?;
        let mut start = start_of(&answer.head);
        start.status = instruct.status.unwrap_or(start.status);
        for name in start.fields.names() {
            if !instruct.exposes(name.as_bytes()) {
                start.fields.remove(&name);
            }
        }
        Ok((instruct, start, content, reservation))
    }

    /// The first response that is published to one of the boxes until `end`.
    async fn published(
        &mut self,
        mut feeds: Vec<(Feed, ReceiverSlot)>,
        filtering: Option<Filtering>,
        end: Instant,
    ) -> Option<Response> {
        let published = self.ready_for_client(end, |context| {
            self.poll_published(&mut feeds, filtering.as_ref(), context)
        });
        let (number, head, published) = published.await.flatten()?;
        let (feed, _) = feeds.swap_remove(number);
        self.hooks
            .push(MarkWhenSent::new(feed, published.message.id));
        Some(with_content(
            start_with(head.status, &head.headers),
            published,
        ))
    }

    /// The response, with the number of the feed that has brought it.
    fn poll_published(
        &self,
        feeds: &mut [(Feed, ReceiverSlot)],
        filtering: Option<&Filtering>,
        context: &mut Context<'_>,
    ) -> Poll<Option<(usize, ResponseHead, Published)>> {
        for (number, (feed, _)) in feeds.iter_mut().enumerate() {
            while let Poll::Ready(next) = feed.poll_next(context, self.now()) {
                match next {
                    Next::Message(entry) => {
                        let message = &entry.message;
                        let is_dropped = filtering.is_some_and(|one| one.drops(number, &entry));
                        let response = grip_item::response(&entry).filter(|_| !is_dropped);
                        if !feed.keeps_forms() {
                            entry.forget_forms();
                        }
                        match response {
                            Some((head, range)) => {
                                let message = message.clone();
                                let published = Published { message, range };
                                return Poll::Ready(Some((number, head, published)));
                            }
                            // It has nothing for a client that waits for a response.
                            None => feed.mark_read(message.id),
                        }
                    }
                    Next::Gap(_) => {}
                    Next::Removed | Next::Failed(_) => return Poll::Ready(None),
                }
            }
        }
        Poll::Pending
    }
}

/// The body of a response that was published: a range of the content of the message, of which it needs no copy.
#[derive(Debug)]
struct Published {
    message: Message,
    range: Range<usize>,
}

impl AsRef<[u8]> for Published {
    fn as_ref(&self) -> &[u8] {
        &self.message.draft.content[self.range.clone()]
    }
}

impl OwnedBytes for Published {}

impl OwnedBytes for Encoded {}

/// Headers that applications give in JSON, without those that are for this server.
fn start_with(status: u16, headers: &[(String, String)]) -> Response {
    let mut start = Response::new(status);
    for (name, value) in headers {
        let bytes = name.as_bytes();
        if !mailbox_header::is_reserved(bytes) && !sendfile_header::is_reserved(bytes) {
            start.fields.add(name, value.as_bytes());
        }
    }
    start
}

fn with_content(mut start: Response, content: impl OwnedBytes + 'static) -> Response {
    if !matches!(start.status, 204 | 304) {
        start.body = Body::Page(Box::new(content));
    }
    start
}
