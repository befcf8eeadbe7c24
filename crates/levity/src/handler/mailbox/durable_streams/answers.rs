//! Responses about streams, and refusals with their statuses.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use levity_mailbox::stream::{
    Answer, AppendError, Appended, CreateError, Created, Full, Info, Missing, ReadError,
};
use levity_wire::durable_streams::{Offset, Producer};

use crate::http::error::error;
use crate::http::fields::Fields;
use crate::http::response::{Body, Response};
use crate::mailboxes::set::{MailboxSet, Refusal};

/// Ready with `None` if the owner has ended.
pub fn poll_answer<T>(
    answer: &mut Answer<T, ReadError>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<T, ReadError>>> {
    Pin::new(answer).poll(context).map(Result::ok)
}

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

/// The refusal of a request for a stream that is not there.
pub fn missing(reason: Missing) -> Response {
    match reason {
        Missing::Unknown => error(404, "there is no such stream"),
        Missing::Removed => error(410, "the stream was removed, but has forks"),
    }
}

/// The refusal to make a stream.
pub fn not_created(set: &MailboxSet, reason: CreateError) -> Response {
    match reason {
        CreateError::Conflict(reason) => error(409, reason),
        CreateError::NoSource => error(404, "there is no such source of the fork"),
        CreateError::BadFork(reason) => error(400, reason),
        CreateError::NotJson(reason) => error(400, &reason.0),
        CreateError::TooManyStreams => {
            set.shared.refusals.add(Refusal::Boxes);
            error(507, "there are too many streams")
        }
        CreateError::Full(reason) => full(set, reason),
    }
}

/// The refusal to append, whose number its producer gave as `sequence`.
pub fn not_appended(set: &MailboxSet, reason: AppendError, sequence: Option<u64>) -> Response {
    match reason {
        AppendError::Missing(reason) => missing(reason),
        AppendError::Closed(end) => {
            let mut refusal = error(409, "the stream is closed");
            add_next(&mut refusal.fields, end, true);
            refusal
        }
        AppendError::OtherType => error(409, "the stream is of another type"),
        AppendError::NotJson(reason) => error(400, &reason.0),
        AppendError::NoMessages => error(400, "an empty array appends nothing"),
        AppendError::StaleEpoch(epoch) => {
            let mut refusal = error(403, "the producer has a newer epoch");
            add_number(&mut refusal.fields, "Producer-Epoch", epoch);
            refusal
        }
        AppendError::Gap { expected } => {
            let mut refusal = error(409, "appends of the producer are missing");
            add_number(&mut refusal.fields, "Producer-Expected-Seq", expected);
            let received = sequence.unwrap_or_default();
            add_number(&mut refusal.fields, "Producer-Received-Seq", received);
            refusal
        }
        AppendError::EpochWithoutStart => error(400, "a new epoch begins with Producer-Seq 0"),
        AppendError::Sequence => error(409, "Stream-Seq is not larger than the last one"),
        AppendError::Full(reason) => full(set, reason),
    }
}

/// The refusal of content for which there is no room. Clients try again after a status of 500 and above: that helps only if
/// room may come.
fn full(set: &MailboxSet, reason: Full) -> Response {
    let (refusal, response) = match reason {
        Full::Stream => (
            Refusal::StoreFull,
            error(413, "the stream would be larger than it may be"),
        ),
        Full::Memory => (
            Refusal::Memory,
            error(507, "the memory of mailboxes is used up"),
        ),
    };
    set.shared.refusals.add(refusal);
    response
}

/// The refusal of a read.
pub fn not_read(set: &MailboxSet, reason: ReadError) -> Response {
    match reason {
        ReadError::Missing(reason) => missing(reason),
        ReadError::OtherLife => error(410, "the offset is one of an earlier stream of this name"),
        ReadError::BadOffset => error(400, "no append of the stream ends at the offset"),
        ReadError::TooManyReceivers => {
            set.shared.refusals.add(Refusal::Receivers);
            error(429, "the stream has too many receivers")
        }
    }
}
