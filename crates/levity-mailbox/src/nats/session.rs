//! The connection to the server, and its stream.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::name::Name;

/// The name of the stream.
pub(super) const STREAM: &str = "LEVITY";

/// The first word of the subjects of the stream.
const SUBJECTS: &str = "levity";

/// The first word of the subjects on which the server repeats what is in the stream.
const FEEDS: &str = "levity-feed";

/// The subject on which a process says that it has set a new base.
const NOTICES: &str = "levity-feed.base";

/// What the description of the stream begins with. The base follows.
const DESCRIPTION: &str = "Mailboxes of Levity, with epochs since ";

/// How long an answer may take. Calls that make or delete something wait for the disk of the server.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// The pause between two checks whether the connection lives.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum of messages in each queue of the client. Beyond it the connection ends.
const QUEUE_MAX: usize = 1 << 16;

/// The code of the error that there is a stream of the name.
const STREAM_EXISTS: u64 = 10058;

/// The code of the error that there is no stream of the name.
const NO_STREAM: u64 = 10059;

/// The code of the error that a stream has the subjects.
const SUBJECTS_OVERLAP: u64 = 10065;

/// A connection.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    /// Answers to calls.
    pub(super) answers: Subscriber,
    /// What consumers deliver.
    pub(super) deliveries: Subscriber,
    /// New bases, which other processes have set.
    pub(super) notices: Subscriber,
    /// Added to the number of the record with which an epoch begins, this is the epoch. It is the time at which it was set, in
    /// nanoseconds since 1970, so that no epoch of before is as large.
    pub(super) base: u64,
    /// The number of the last record of the stream.
    pub(super) last: u64,
    /// What the stream is made with.
    config: Value,
}

impl Session {
    pub(super) async fn new(server: &ServerAddr, inbox: &str) -> Result<Self, String> {
        let (sender, events) = mpsc::unbounded_channel();
        let connecting = ConnectOptions::new()
            .name("levity")
            .connection_timeout(ANSWER_TIME_MAX)
            .request_timeout(Some(ANSWER_TIME_MAX))
            .ping_interval(PING_INTERVAL)
            // The task makes a new connection itself.
            .max_reconnects(1)
            .client_capacity(QUEUE_MAX)
            .subscription_capacity(QUEUE_MAX)
            .event_callback(move |event| {
                let _ = sender.send(event);
                async {}
            })
            .connect(server);
        let client = connecting.await.map_err(|error| failed(&error))?;
        let answers = subscribe(&client, format!("{inbox}.call.*")).await?;
        // A consumer of version 2.9 takes no notice of a subscription with a wildcard.
        let deliveries = subscribe(&client, delivery_of(inbox)).await?;
        let notices = subscribe(&client, NOTICES.to_owned()).await?;
        let info = make_stream(&client).await.map_err(|failure| failure.text)?;
        let config = info["config"].clone();
        let description = config["description"].as_str().unwrap_or_default();
        let base = description.strip_prefix(DESCRIPTION);
        let base = base.and_then(|base| base.parse().ok());
        let repeats = config["republish"]["dest"] == format!("{FEEDS}.>");
        let (Some(base), true) = (base, repeats) else {
            return Err(format!(
                "the stream {STREAM} of the NATS server is not one of Levity"
            ));
        };
        let last = info["state"]["last_seq"].as_u64().unwrap_or(0);
        Ok(Self {
            client,
            events,
            answers,
            deliveries,
            notices,
            base,
            last,
            config,
        })
    }

    /// Gives the stream a new base, and tells the other processes.
    pub(super) async fn renew(&mut self) -> Result<(), String> {
        self.base = now().max(self.base + 1);
        self.config["description"] = json!(format!("{DESCRIPTION}{}", self.base));
        let update = format!("STREAM.UPDATE.{STREAM}");
        let updated = call(&self.client, &update, &self.config).await;
        updated.map_err(|failure| failure.text)?;
        let base = self.base.to_string();
        let told = self.client.publish(NOTICES, base.into()).await;
        told.map_err(|error| failed(&error))
    }

    /// Ends the connection if another process has set a new base: all that is known is out of date then.
    pub(super) fn check_notice(&self, notice: Option<Message>) -> Result<(), String> {
        match notice {
            Some(notice) if notice.payload == self.base.to_string() => Ok(()),
            _ => Err("the NATS server has lost records".to_owned()),
        }
    }
}

fn failed(error: &dyn Display) -> String {
    format!("the NATS server fails: {error}")
}

async fn subscribe(client: &Client, subject: String) -> Result<Subscriber, String> {
    let subscribed = client.subscribe(subject).await;
    subscribed.map_err(|error| failed(&error))
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

/// Where consumers deliver to the process that has this inbox.
pub(super) fn delivery_of(inbox: &str) -> String {
    format!("{inbox}.load")
}

/// Makes the stream if there is none; what the server says of it.
async fn make_stream(client: &Client) -> Result<Value, Failure> {
    let config = json!({
        "name": STREAM,
        "description": format!("{DESCRIPTION}{}", now()),
        "subjects": [format!("{SUBJECTS}.*.*")],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "allow_direct": true,
        "republish": {"src": format!("{SUBJECTS}.>"), "dest": format!("{FEEDS}.>")},
        "num_replicas": 1,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
    });
    match call(client, &format!("STREAM.CREATE.{STREAM}"), &config).await {
        // Of two processes that make the stream at the same moment, one can get the second error. So it does not say that the
        // stream is another one.
        Err(failure) if matches!(failure.code, STREAM_EXISTS | SUBJECTS_OVERLAP) => {
            match call(client, &format!("STREAM.INFO.{STREAM}"), &json!({})).await {
                Err(Failure {
                    code: NO_STREAM, ..
                }) => Err(failure),
                info => info,
            }
        }
        made => made,
    }
}

/// Why a call of JetStream fails.
pub(super) struct Failure {
    pub(super) code: u64,
    pub(super) text: String,
}

async fn call(client: &Client, name: &str, parameters: &Value) -> Result<Value, Failure> {
    let failed = |error: &dyn Display| Failure {
        code: 0,
        text: format!("JetStream of the NATS server fails: {error}"),
    };
    let asking = client.request(format!("$JS.API.{name}"), parameters.to_string().into());
    let answer = asking.await.map_err(|error| failed(&error))?;
    parse(&answer.payload)
}

/// An answer of JetStream.
pub(super) fn parse(answer: &[u8]) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(answer).map_err(|error| Failure {
        code: 0,
        text: format!("an answer of the NATS server is wrong: {error}"),
    })?;
    match value.get("error") {
        Some(error) => Err(Failure {
            code: error["err_code"].as_u64().unwrap_or(0),
            text: format!("the NATS server refuses: {}", error["description"]),
        }),
        None => Ok(value),
    }
}

/// The subject of a box. Words of a subject cannot have a dot, and no name has a percent sign.
pub(super) fn subject_of(name: &Name) -> String {
    format!(
        "{SUBJECTS}.{}.{}",
        name.set(),
        name.in_set().replace('.', "%")
    )
}

/// The subject on which the server repeats the records of a box.
pub(super) fn feed_of(name: &Name) -> String {
    format!("{FEEDS}{}", &subject_of(name)[SUBJECTS.len()..])
}

/// The subjects of all boxes of a set.
pub(super) fn subjects_of(set: &str) -> String {
    format!("{SUBJECTS}.{set}.*")
}

/// The box of a subject or of its feed.
pub(super) fn box_of(subject: &str) -> Option<Name> {
    let mut words = subject.splitn(3, '.').skip(1);
    let (set, name) = (words.next()?, words.next()?);
    Name::new(set, name.replace('%', ".").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_leads_back_to_its_box() {
        for text in ["a", "a.b", "a..b", "-._~:@+=/0", "x/.y"] {
            let name = Name::new("set-1", text.as_bytes()).expect("a name");
            let (subject, feed) = (subject_of(&name), feed_of(&name));
            assert_eq!(subject.split('.').count(), 3);
            assert_eq!(box_of(&subject), Some(name.clone()));
            assert_eq!(box_of(&feed), Some(name));
            assert_eq!(feed.split_once('.').map(|parts| parts.0), Some(FEEDS));
        }
    }
}
