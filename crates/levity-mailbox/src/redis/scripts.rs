//! The scripts that run in the server. Each is atomic, so that a box is consistent whatever process uses it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_wire::mailbox::MessageId;
use redis::{Cmd, Value};

use super::boxes::{Known, Notice};
use crate::budget::Budget;
use crate::clock::since_1970;
use crate::encoding;
use crate::message::{Draft, Message};
use crate::name::Name;
use crate::store::{Append, Limit, Opened, StoreError, Summary, new_epoch};
use crate::stream_state::{Refused, StreamState};

/// The minimum of ids of publishers that a box remembers.
const KEYS_MIN: usize = 256;

macro_rules! scripts {
    ($($script:ident $file:literal),* $(,)?) => {
        /// A script.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Script { $($script),* }

        /// Their texts.
        pub(super) const TEXTS: &[&str] = &[$(concat!(
            include_str!("scripts/prelude.lua"),
            include_str!(concat!("scripts/", $file)),
        )),*];
    };
}

scripts! {
    Begin "begin.lua",
    Check "check.lua",
    Append "append.lua",
    Open "open.lua",
    Summary "summary.lua",
    ReadAfter "read_after.lua",
    Resume "resume.lua",
    Remove "remove.lua",
    Read "read.lua",
    Touch "touch.lua",
    Expire "expire.lua",
    Prune "prune.lua",
    List "list.lua",
}

/// Makes calls of scripts for one connection.
pub(super) struct Calls {
    /// The digests of the [`TEXTS`].
    pub(super) digests: Vec<String>,
    /// The number of the database. Channels, unlike keys, are common to all databases of a server.
    pub(super) database: i64,
    /// Distinguishes this process from others.
    pub(super) process: String,
}

/// What a script is told of a box.
pub(super) struct Subject<'a> {
    pub(super) name: &'a Name,
    pub(super) known: Option<Known>,
    pub(super) idle: Duration,
    pub(super) boxes_max: usize,
}

impl Calls {
    /// The channel of a box.
    pub(super) fn channel(&self, name: &Name) -> String {
        format!("levity:{}:{name}", self.database)
    }

    /// The box of a channel.
    pub(super) fn box_of(&self, channel: &[u8]) -> Option<Name> {
        let channel = std::str::from_utf8(channel).ok()?;
        let (database, name) = channel.strip_prefix("levity:")?.split_once(':')?;
        Name::parse(name).filter(|_| database.parse() == Ok(self.database))
    }

    /// A call without the arguments that only this script has.
    pub(super) fn call(&self, script: Script, subject: &Subject<'_>) -> Cmd {
        let &Subject { name, known, .. } = subject;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.digests[script as usize]).arg(9);
        for kind in ["box", "log", "keys", "due"] {
            call.arg(format!("levity:{kind}:{name}"));
        }
        for kind in ["names", "idle", "unused"] {
            call.arg(format!("levity:{kind}:{}", name.set()));
        }
        call.arg("levity:epoch").arg("levity:runs");
        call.arg(self.channel(name));
        call.arg(name.in_set()).arg(new_epoch(SystemTime::now()));
        match known {
            Some(known) => call.arg(known.epoch).arg(known.next),
            None => call.arg(0).arg(0),
        };
        let idle = milliseconds(subject.idle).max(1);
        call.arg(idle).arg(subject.boxes_max).arg(&self.process);
        call
    }

    /// A call that begins a history of the server, or continues it; `last_seen` is the last one that this process has seen. A
    /// patient one may get an empty text in place of the history.
    pub(super) fn begin(&self, last_seen: &str, is_patient: bool) -> Cmd {
        let subject = Subject {
            name: &Name::first_of(""),
            known: None,
            idle: Duration::ZERO,
            boxes_max: 0,
        };
        let mut call = self.call(Script::Begin, &subject);
        call.arg(last_seen).arg(u8::from(is_patient));
        call
    }
}

/// The arguments that only `append.lua` has.
pub(super) fn add_append(call: &mut Cmd, append: &Append, now: SystemTime) {
    let Append {
        draft, settings, ..
    } = append;
    // Not before its time: rounded up.
    let deadline = draft.deadline.map(|deadline| {
        milliseconds(since_1970(deadline) + Duration::from_nanos(999_999)).to_string()
    });
    call.arg(encoding::encode(draft)).arg(draft.bytes());
    call.arg(deadline.unwrap_or_default());
    call.arg(draft.key.as_deref().unwrap_or_default());
    call.arg(settings.messages_max.max(1))
        .arg(settings.bytes_max);
    call.arg(milliseconds_of(now)).arg(KEYS_MIN);
}

/// What was read of a stream for an update.
#[derive(Debug, Clone, Default)]
pub(super) struct Version {
    /// The epoch of the box; empty if it is not known.
    pub(super) epoch: String,
    pub(super) next: u64,
    pub(super) state: Option<StreamState>,
}

/// The further arguments of `append.lua` for a stream that is as `version` says: what becomes of it, and the number of the message.
pub(super) fn add_update(
    call: &mut Cmd,
    append: &Append,
    version: &Version,
    (state, number): &(StreamState, u64),
    now: SystemTime,
) {
    let source = append.source();
    call.arg("write").arg(&version.epoch).arg(version.next);
    call.arg(state.to_json()).arg(*number);
    call.arg(source.map_or("", |source| source.name.in_set()));
    call.arg(milliseconds(state.idle(now)).max(1));
    call.arg(state.id.to_string());
    call.arg(source.map_or(0, |source| source.id).to_string());
}

/// A reply of `append.lua` that says how a stream is; `None` for another one.
pub(super) fn version(reply: &Value) -> Option<Version> {
    let [kind, epoch, next, state, is_removed] = array(reply)? else {
        return None;
    };
    text(kind).filter(|&kind| kind == "moved")?;
    Some(Version {
        epoch: text(epoch)?.to_owned(),
        next: number(next)?,
        state: stream_state(state, is_removed),
    })
}

/// Whether a reply of `append.lua` says that another process waits to change the stream.
pub(super) fn gives_way(reply: &Value) -> bool {
    let last = array(reply).and_then(<[Value]>::last);
    last.and_then(number) == Some(1)
}

fn stream_state(state: &Value, is_removed: &Value) -> Option<StreamState> {
    let mut state = StreamState::from_json(text(state)?)?;
    state.is_removed = text(is_removed) == Some("1");
    Some(state)
}

/// The arguments that only `list.lua` has.
pub(super) fn add_list(call: &mut Cmd, after: Option<&Name>, count_max: usize) {
    let after = after.map_or("-".to_owned(), |after| format!("({}", after.in_set()));
    call.arg(after).arg(count_max);
}

/// The arguments that only `read_after.lua` has.
pub(super) fn add_read_after(call: &mut Cmd, after: Option<MessageId>, limit: Limit) {
    let (epoch, sequence) = after.map_or((0, 0), |after| (after.epoch, after.sequence));
    // No box has as many messages, nor does the server compute with larger numbers.
    let messages = limit.messages.min(1 << 30);
    call.arg(epoch).arg(sequence).arg(messages);
    call.arg(limit.bytes.min(1 << 52));
}

fn milliseconds(duration: Duration) -> u64 {
    // The server computes with doubles.
    duration.as_millis().min(1 << 52) as u64
}

/// Milliseconds since 1970, rounded down.
pub(super) fn milliseconds_of(time: SystemTime) -> u64 {
    milliseconds(since_1970(time))
}

/// The text of a reply.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// The number of a reply.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => (*number).try_into().ok(),
        other => text(other)?.parse().ok(),
    }
}

/// The elements of a reply.
pub(super) fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// Why a reply says that nothing was done, if it does.
pub(super) fn refusal(reply: &Value) -> Option<StoreError> {
    let [only] = array(reply)? else {
        return None;
    };
    match text(only)? {
        "too many" => Some(StoreError::TooManyBoxes),
        "no source" => Some(StoreError::Refused(Refused::NoSource)),
        _ => None,
    }
}

/// Whether a reply says that the box has to be compared before it is read.
pub(super) fn has_to_check(reply: &Value) -> bool {
    text(reply) == Some("lags")
}

/// A reply of `read_after.lua`, which may be that the box is not known.
pub(super) fn opened_if_known(reply: &Value) -> Option<Option<Opened>> {
    match reply {
        Value::Nil => Some(None),
        reply => opened(reply).map(Some),
    }
}

/// A reply of `open.lua` and its like, without memory for the messages.
pub(super) fn opened(reply: &Value) -> Option<Opened> {
    let [epoch, next, lost, read, entries, state, is_removed] = array(reply)? else {
        return None;
    };
    let epoch = number(epoch)?;
    let message = |entry: &Value| {
        let [id, fields] = array(entry)? else {
            return None;
        };
        let decoded = match array(fields)? {
            [_, Value::BulkString(encoded), ..] => encoding::decode(encoded),
            _ => None,
        };
        let draft = decoded.unwrap_or_else(Draft::damaged).into();
        let id = MessageId {
            epoch,
            ..text(id)?.parse().ok()?
        };
        Some(Message { id, draft })
    };
    Some(Opened {
        epoch,
        next: number(next)?,
        first: number(next)?,
        lost: number(lost)?,
        read: number(read)?,
        messages: array(entries)?.iter().filter_map(message).collect(),
        state: stream_state(state, is_removed).map(Arc::new),
    })
}

/// A reply of `summary.lua`, which may be that the box is not known.
pub(super) fn summed(reply: &Value, name: &Name) -> Option<Option<Summary>> {
    match reply {
        Value::Nil => Some(None),
        reply => summary(name.clone(), array(reply)?).map(Some),
    }
}

fn summary(name: Name, values: &[Value]) -> Option<Summary> {
    let [epoch, next, lost, read, messages, bytes, of_stream @ ..] = values else {
        return None;
    };
    Some(Summary {
        name,
        epoch: number(epoch)?,
        next: number(next)?,
        lost: number(lost)?,
        read: number(read)?,
        messages: number(messages)? as usize,
        bytes: number(bytes)? as usize,
        state: match of_stream {
            [state, is_removed] => stream_state(state, is_removed).map(Arc::new),
            _ => None,
        },
    })
}

/// A reply of `list.lua`.
pub(super) fn listed(reply: &Value, set: &str) -> Option<Vec<Summary>> {
    let listed = |one: &Value| {
        let (name, values) = array(one)?.split_first()?;
        summary(Name::new(set, text(name)?.as_bytes())?, values)
    };
    Some(array(reply)?.iter().filter_map(listed).collect())
}

/// What a channel of a box says; `None` for what this process has done itself, and for anything else.
pub(super) fn notice(payload: &[u8], process: &str, budget: &Arc<Budget>) -> Option<Notice> {
    if let Some(epoch) = payload.strip_prefix(b"outdated ") {
        let epoch = std::str::from_utf8(epoch).ok()?.parse().ok()?;
        return Some(Notice::Outdated(epoch));
    }
    if let Some(remover) = payload.strip_prefix(b"removed ") {
        return (remover != process.as_bytes()).then_some(Notice::Removed);
    }
    let message = payload.strip_prefix(b"message ")?;
    let end = message.iter().position(|&byte| byte == b'\n')?;
    let mut words = std::str::from_utf8(&message[..end]).ok()?.split(' ');
    let mut number = || words.next()?.parse().ok();
    let (epoch, sequence, lost) = (number()?, number()?, number()?);
    let mut draft = encoding::decode(&message[end + 1..])?;
    draft.reservation = Some(budget.reserve(draft.bytes()));
    let message = Message {
        id: MessageId { epoch, sequence },
        draft: draft.into(),
    };
    Some(Notice::Message(message, lost))
}
