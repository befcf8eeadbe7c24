//! Responses about streams, and refusals with their statuses.

use levity_mailbox::StoreError;
use levity_mailbox::stream::{Appended, Created, Info, Refused, StreamError};
use levity_wire::durable_streams::{Offset, Producer};

use super::super::refused_by_store;
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::message::fields::Fields;

/// A response without content that says so.
pub fn empty(status: u16) -> Response {
    let mut response = Response::new(status);
    response.body = Body::Text(Vec::new());
    response
}

/// The response to one who has made a stream at `location`.
pub fn created(created: &Created, location: &str) -> Response {
    match created.is_new {
        true => {
            let mut response = with_info(empty(201), &created.info);
            response.fields.add("Location", location.as_bytes());
            response
        }
        false => with_info(empty(200), &created.info),
    }
}

/// Adds what is known of a stream.
pub fn with_info(mut response: Response, info: &Info) -> Response {
    let fields = &mut response.fields;
    fields.add("Content-Type", info.content_type.value.as_bytes());
    add_next(fields, info.end, info.is_closed);
    response
}

/// Adds where the stream goes on, or that it does not.
pub fn add_next(fields: &mut Fields, next: Offset, is_closed: bool) {
    fields.add("Stream-Next-Offset", next.to_string().as_bytes());
    if is_closed {
        fields.add("Stream-Closed", b"true");
    }
}

/// The response to one who has appended.
pub fn appended(appended: &Appended, producer: Option<&Producer>, has_content: bool) -> Response {
    let is_new_of_producer = producer.is_some() && has_content && !appended.is_duplicate;
    let mut response = match is_new_of_producer {
        true => empty(200),
        false => Response::new(204),
    };
    let fields = &mut response.fields;
    add_next(fields, appended.end, appended.is_closed);
    if let Some((producer, sequence)) = producer.zip(appended.producer_sequence) {
        add_number(fields, "Producer-Epoch", producer.epoch);
        add_number(fields, "Producer-Seq", sequence);
    }
    response
}

fn add_number(fields: &mut Fields, name: &str, number: u64) {
    fields.add(name, number.to_string().as_bytes());
}

/// The refusal of what was asked of a stream.
pub fn refused(set: &MailboxSet, reason: StreamError) -> Response {
    match reason {
        StreamError::Refused(reason) => refused_by_stream(set, reason),
        StreamError::Closed(end) => {
            let mut refusal = error(409, "the stream is closed");
            add_next(&mut refusal.fields, end, true);
            refusal
        }
        StreamError::Conflict(reason) => error(409, reason),
        StreamError::BadFork(reason) => error(400, reason),
        StreamError::NotJson(reason) => error(400, &reason.0),
        StreamError::NoMessages => error(400, "an empty array appends nothing"),
        StreamError::OtherLife => error(410, "the offset is one of an earlier stream of this name"),
        StreamError::BadOffset => error(400, "no append of the stream ends at the offset"),
        StreamError::Lost(next) => {
            let mut refusal = error(410, "the store has lost content before Stream-Next-Offset");
            add_next(&mut refusal.fields, next, false);
            refusal
        }
        StreamError::TooManyReceivers => {
            set.shared.refusals.add(Refusal::Receivers);
            error(429, "the stream has too many receivers")
        }
        StreamError::Memory => {
            set.shared.refusals.add(Refusal::MailboxMemory);
            error(507, "the memory of mailboxes is used up")
        }
        StreamError::Store(StoreError::TooManyBoxes) => {
            set.shared.refusals.add(Refusal::Boxes);
            error(507, "there are too many streams")
        }
        StreamError::Store(failure) => refused_by_store(set, &failure),
    }
}

/// Clients try again after a status of 500 and above: that helps only if room may come.
fn refused_by_stream(set: &MailboxSet, reason: Refused) -> Response {
    match reason {
        Refused::Unknown => error(404, "there is no such stream"),
        Refused::Removed => error(410, "the stream was removed, but has forks"),
        Refused::NoSource => error(404, "there is no such source of the fork"),
        Refused::Exists | Refused::Closed | Refused::Duplicate(_) => {
            error(409, "another request has changed the stream")
        }
        Refused::OtherType => error(409, "the stream is of another type"),
        Refused::StaleEpoch(epoch) => {
            let mut refusal = error(403, "the producer has a newer epoch");
            add_number(&mut refusal.fields, "Producer-Epoch", epoch);
            refusal
        }
        Refused::Gap { expected, received } => {
            let mut refusal = error(409, "appends of the producer are missing");
            add_number(&mut refusal.fields, "Producer-Expected-Seq", expected);
            add_number(&mut refusal.fields, "Producer-Received-Seq", received);
            refusal
        }
        Refused::EpochWithoutStart => error(400, "a new epoch begins with Producer-Seq 0"),
        Refused::Sequence => error(409, "Stream-Seq is not larger than the last one"),
        Refused::Full => {
            set.shared.refusals.add(Refusal::StoreFull);
            error(413, "the stream would be larger than it may be")
        }
    }
}
