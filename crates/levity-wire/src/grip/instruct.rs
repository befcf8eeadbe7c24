//! What an application tells the server to do with the client.

use std::time::Duration;

use serde_json::{Map, Value};

use super::filter::{self, Filters};
use super::json::{self, bytes, number, object, take, text};
use super::{CHANNELS_MAX, KEEP_ALIVE_BYTES_MAX, Response, TIMEOUT_DEFAULT, TIMEOUT_MAX};
use crate::Reject;

pub(super) const CHANNELS_TOO_MANY: Reject = Reject::bad("GRIP: more than 64 channels");
pub(super) const BAD_TIMEOUT: Reject =
    Reject::bad("GRIP: the timeout is no number of seconds from 1 to 86400");
pub(super) const BAD_KEEP_ALIVE: Reject =
    Reject::bad("GRIP: the content that keeps alive is empty, malformed or longer than 4 KiB");
pub(super) const BAD_MODE: Reject = Reject::bad("GRIP: `mode` is neither `idle` nor `interval`");
pub(super) const BAD_HOLD: Reject =
    Reject::bad("GRIP: the hold is neither `stream` nor `response`");
const NO_CHANNELS: Reject = Reject::bad("GRIP: a hold without a channel");
const BAD_CHANNELS: Reject = Reject::bad("GRIP: `channels` is no list of objects");

/// How the client is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The response begins now, and the contents of the channels follow it.
    Stream,
    /// The response is the first one that is published; without one in time, that of the application.
    Response,
}

impl Hold {
    pub(super) fn parse(word: &[u8]) -> Result<Self, Reject> {
        match word {
            b"stream" => Ok(Self::Stream),
            b"response" => Ok(Self::Response),
            _ => Err(BAD_HOLD),
        }
    }
}

/// A channel that the client listens to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The name of its box: see [`box_name`](super::box_name).
    pub name: String,
    /// Which of its messages the client does not get.
    pub filters: Filters,
}

/// When a client that has heard nothing gets the content that keeps the connection alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAliveMode {
    /// After a time without content.
    Idle,
    /// Always after a time.
    Interval,
}

/// What keeps the connection of a stream alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepAlive {
    /// What is sent: 1 to [`KEEP_ALIVE_BYTES_MAX`] bytes.
    pub data: Vec<u8>,
    /// After which time.
    pub timeout: Duration,
    /// How the time is measured.
    pub mode: KeepAliveMode,
}

impl KeepAlive {
    pub(super) fn new(
        data: Vec<u8>,
        timeout: Option<Duration>,
        mode: KeepAliveMode,
    ) -> Result<Self, Reject> {
        if !(1..=KEEP_ALIVE_BYTES_MAX).contains(&data.len()) {
            return Err(BAD_KEEP_ALIVE);
        }
        Ok(Self {
            data,
            timeout: timeout.unwrap_or(TIMEOUT_DEFAULT),
            mode,
        })
    }
}

/// The instruction of a response. It has an effect if it holds the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instruct {
    /// How the client is held, if it is.
    pub hold: Option<Hold>,
    /// What it listens to: at least one if it is held, at most [`CHANNELS_MAX`].
    pub channels: Vec<Channel>,
    /// The end of a [`Hold::Response`]; [`TIMEOUT_DEFAULT`] if absent.
    pub timeout: Option<Duration>,
    /// Whose client it is, for [`Filters`]; empty if nobody is named.
    pub user: String,
    /// What keeps a [`Hold::Stream`] alive.
    pub keep_alive: Option<KeepAlive>,
    /// The status of the response in place of that of the application. A 304 cannot have the headers of an instruction
    /// everywhere.
    pub status: Option<u16>,
    /// The only headers of the response that the client gets, if there are any.
    pub exposed: Vec<String>,
}

impl Instruct {
    /// Reads an instruction of the type [`INSTRUCT_TYPE`](super::INSTRUCT_TYPE), and the response of the application, which
    /// is in it.
    ///
    /// # Errors
    /// 502 if it is malformed, exceeds a limit, or demands what is not supported.
    pub fn from_json(content: &[u8]) -> Result<(Self, Response), Reject> {
        read(content).map_err(Reject::by_upstream)
    }

    /// Whether the client gets a header of this name.
    #[must_use]
    pub fn exposes(&self, name: &[u8]) -> bool {
        let is_exposed = |exposed: &String| name.eq_ignore_ascii_case(exposed.as_bytes());
        self.exposed.is_empty() || self.exposed.iter().any(is_exposed)
    }

    /// Checks an instruction after its last header.
    ///
    /// # Errors
    /// 502 if it holds the client without a channel: nothing would ever arrive.
    pub fn check(&self) -> Result<(), Reject> {
        match self.hold.is_some() && self.channels.is_empty() {
            true => Err(NO_CHANNELS.by_upstream()),
            false => Ok(()),
        }
    }

    /// Adds a channel. A repeated name only adds its filters: each message would arrive twice.
    pub(super) fn add(&mut self, channel: Channel) -> Result<(), Reject> {
        let mut channels = self.channels.iter_mut();
        if let Some(known) = channels.find(|one| one.name == channel.name) {
            known.filters.merge(channel.filters);
            return Ok(());
        }
        if self.channels.len() == CHANNELS_MAX {
            return Err(CHANNELS_TOO_MANY);
        }
        self.channels.push(channel);
        Ok(())
    }
}

pub(super) fn timeout(seconds: Option<u64>) -> Result<Duration, Reject> {
    let timeout = seconds.map(Duration::from_secs).ok_or(BAD_TIMEOUT)?;
    match timeout {
        Duration::ZERO => Err(BAD_TIMEOUT),
        timeout if timeout > TIMEOUT_MAX => Err(BAD_TIMEOUT),
        timeout => Ok(timeout),
    }
}

pub(super) fn mode(word: &[u8]) -> Result<KeepAliveMode, Reject> {
    match word {
        b"" | b"idle" => Ok(KeepAliveMode::Idle),
        b"interval" => Ok(KeepAliveMode::Interval),
        _ => Err(BAD_MODE),
    }
}

fn read(content: &[u8]) -> Result<(Instruct, Response), Reject> {
    let mut members = json::parse(content)?;
    let mut instruct = Instruct::default();
    if let Some(hold) = take(&mut members, "hold") {
        instruct = read_hold(object(hold)?)?;
    }
    let response = take(&mut members, "response").map_or(Ok(Map::new()), object)?;
    let response = json::response(response)?;
    instruct.check()?;
    Ok((instruct, response))
}

fn read_hold(mut hold: Map<String, Value>) -> Result<Instruct, Reject> {
    let word = text(&mut hold, "mode", BAD_HOLD.reason)?;
    let mut instruct = Instruct {
        hold: Some(Hold::parse(
            word.as_deref().unwrap_or("response").as_bytes(),
        )?),
        ..Instruct::default()
    };
    let channels = match take(&mut hold, "channels") {
        None => Vec::new(),
        Some(Value::Array(channels)) => channels,
        Some(_) => return Err(BAD_CHANNELS),
    };
    for channel in channels {
        instruct.add(read_channel(channel)?)?;
    }
    if let Some(seconds) = take(&mut hold, "timeout") {
        instruct.timeout = Some(timeout(number(&seconds))?);
    }
    if let Some(meta) = take(&mut hold, "meta") {
        instruct.user = filter::value(&mut object(meta)?, "user")?;
    }
    if let Some(content) = take(&mut hold, "keep-alive") {
        instruct.keep_alive = Some(read_keep_alive(object(content)?)?);
    }
    Ok(instruct)
}

fn read_channel(value: Value) -> Result<Channel, Reject> {
    let mut channel = object(value).map_err(|_| BAD_CHANNELS)?;
    let mut filters = Filters::default();
    if let Some(names) = take(&mut channel, "filters") {
        filters.add_all(names)?;
    }
    Ok(Channel {
        name: json::channel(&mut channel, "name")?,
        filters,
    })
}

fn read_keep_alive(mut content: Map<String, Value>) -> Result<KeepAlive, Reject> {
    let data = bytes(&mut content, "content")?.unwrap_or_default();
    let time = take(&mut content, "timeout");
    let time = time.map(|seconds| timeout(number(&seconds))).transpose()?;
    let word = text(&mut content, "mode", BAD_MODE.reason)?;
    KeepAlive::new(data, time, mode(word.unwrap_or_default().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> (Instruct, Response) {
        Instruct::from_json(content.as_bytes()).expect(content)
    }

    #[test]
    fn an_instruction_of_gripcontrol() {
        // create_hold_response(Channel('a b', prev_id='7'), Response(headers={..}, body='{}\n'), timeout=30)
        let (instruct, response) = read(
            r#"{"hold": {"mode": "response", "channels": [{"name": "a b", "prev-id": "7"}], "timeout": 30},
            "response": {"headers": {"Content-Type": "application/json", "Content-Length": 3}, "body": "{}\n"}}"#,
        );
        let expected = Instruct {
            hold: Some(Hold::Response),
            channels: vec![Channel {
                name: "a=20b".to_owned(),
                filters: Filters::default(),
            }],
            timeout: Some(Duration::from_secs(30)),
            ..Instruct::default()
        };
        assert_eq!(instruct, expected);
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let body = b"{}\n".to_vec();
        assert_eq!(
            response,
            Response {
                status: 200,
                headers,
                body
            }
        );
    }

    #[test]
    fn optional_members() {
        let (instruct, response) = read(
            r#"{"hold": {"channels": [{"name": "a", "prev-id": "", "filters": []}], "timeout": null,
            "keep-alive": {"content-bin": "Cg==", "timeout": 20, "mode": "interval"}, "meta": {"user": "a"}},
            "response": {"code": "304", "reason": "x", "headers": [["A", "b"], ["A", "c"]], "body-bin": "/w=="}}"#,
        );
        assert_eq!(
            (instruct.hold, instruct.timeout),
            (Some(Hold::Response), None)
        );
        assert_eq!(instruct.channels[0].filters, Filters::default());
        assert_eq!(instruct.user, "a");
        let keep_alive = KeepAlive {
            data: b"\n".to_vec(),
            timeout: Duration::from_secs(20),
            mode: KeepAliveMode::Interval,
        };
        assert_eq!(instruct.keep_alive, Some(keep_alive));
        assert_eq!((response.status, response.headers.len()), (304, 2));
        assert_eq!(response.body, b"\xff");
        let (instruct, response) = read("{}");
        assert_eq!((instruct, response.status), (Instruct::default(), 200));
        assert!(response.headers.is_empty() && response.body.is_empty());
        let (instruct, _) = read(
            r#"{"hold":{"mode":"stream","channels":[{"name":"a"}],"keep-alive":{"content":"x"}}}"#,
        );
        let keep_alive = instruct.keep_alive.expect("it has one");
        assert_eq!(
            (keep_alive.timeout, keep_alive.mode),
            (TIMEOUT_DEFAULT, KeepAliveMode::Idle)
        );
    }

    #[test]
    fn a_repeated_channel_adds_its_filters() {
        let (instruct, _) = read(
            r#"{"hold":{"channels":[{"name":"a","filters":["skip-self","require-sub"]},
            {"name":"b"},{"name":"a","filters":["skip-users"]}]}}"#,
        );
        let all = Filters {
            skip_self: true,
            skip_users: true,
            require_sub: true,
        };
        let filters = instruct.channels.iter().map(|channel| channel.filters);
        assert!(filters.eq([all, Filters::default()]));
    }

    #[test]
    fn instructions_that_cannot_be() {
        let channels = (0..=CHANNELS_MAX).map(|number| format!(r#"{{"name":"{number}"}}"#));
        let channels = channels.collect::<Vec<_>>().join(",");
        let many = format!(r#"{{"hold":{{"channels":[{channels}]}}}}"#);
        let deep = "[".repeat(10_000);
        for (content, reason) in [
            ("", "no JSON object"),
            ("[]", "no JSON object"),
            (&deep, "no JSON object"),
            (r#"{"hold":1}"#, "no JSON object"),
            (r#"{"hold":{}}"#, "without a channel"),
            (r#"{"hold":{"channels":[]}}"#, "without a channel"),
            (r#"{"hold":{"channels":{}}}"#, "no list"),
            (r#"{"hold":{"channels":["a"]}}"#, "no list"),
            (r#"{"hold":{"channels":[{}]}}"#, "without a name"),
            (r#"{"hold":{"channels":[{"name":1}]}}"#, "no text"),
            (
                r#"{"hold":{"channels":[{"name":"a","filters":["var-subst"]}]}}"#,
                "`var-subst`",
            ),
            (
                r#"{"hold":{"channels":[{"name":"a"}],"meta":{"user":1}}}"#,
                "meta data",
            ),
            (
                r#"{"hold":{"mode":"x","channels":[{"name":"a"}]}}"#,
                "neither `stream`",
            ),
            (
                r#"{"hold":{"channels":[{"name":"a"}],"timeout":0}}"#,
                "timeout",
            ),
            (
                r#"{"hold":{"channels":[{"name":"a"}],"timeout":86401}}"#,
                "timeout",
            ),
            (
                r#"{"hold":{"channels":[{"name":"a"}],"timeout":1.5}}"#,
                "timeout",
            ),
            (
                r#"{"hold":{"channels":[{"name":"a"}],"keep-alive":{}}}"#,
                "keeps alive",
            ),
            (
                r#"{"hold":{"channels":[{"name":"a"}],"keep-alive":{"content":"a","mode":"x"}}}"#,
                "idle",
            ),
            (r#"{"response":{"code":101}}"#, "status"),
            (r#"{"response":{"code":600}}"#, "status"),
            (r#"{"response":{"code":"2e2"}}"#, "status"),
            (r#"{"response":{"headers":{"a b":"c"}}}"#, "cannot be sent"),
            (
                r#"{"response":{"headers":{"a":"b\r\nc: d"}}}"#,
                "cannot be sent",
            ),
            (r#"{"response":{"headers":{"a":["b"]}}}"#, "`headers`"),
            (r#"{"response":{"headers":[["a"]]}}"#, "`headers`"),
            (r#"{"response":{"headers":"a"}}"#, "`headers`"),
            (r#"{"response":{"body-bin":"b'Cg=='"}}"#, "Base64"),
            (r#"{"response":{"body":1}}"#, "no text"),
            (r#"{"response":{"body-patch":[]}}"#, "body-patch"),
            (&many, "more than 64 channels"),
        ] {
            let reject = Instruct::from_json(content.as_bytes()).expect_err(content);
            assert_eq!(reject.status, 502, "{content}");
            assert!(
                reject.reason.contains(reason),
                "{content}: {}",
                reject.reason
            );
        }
    }

    #[test]
    fn headers_of_a_response_are_limited_and_filtered() {
        use super::super::{HEADER_BYTES_MAX, HEADERS_MAX};
        let response = |headers: &[(&str, String)]| {
            let pairs: Vec<_> = headers
                .iter()
                .map(|(name, value)| serde_json::json!([name, value]))
                .collect();
            let content = serde_json::json!({"response": {"headers": pairs}}).to_string();
            Instruct::from_json(content.as_bytes()).map(|(_, response)| response.headers.len())
        };
        let header = ("a", String::new());
        assert_eq!(
            response(&vec![header.clone(); HEADERS_MAX]),
            Ok(HEADERS_MAX)
        );
        assert!(response(&vec![header; HEADERS_MAX + 1]).is_err());
        assert_eq!(response(&[("a", "b".repeat(HEADER_BYTES_MAX - 1))]), Ok(1));
        assert!(response(&[("a", "b".repeat(HEADER_BYTES_MAX))]).is_err());
        for name in [
            "Connection",
            "Transfer-Encoding",
            "content-length",
            "Grip-Hold",
            "Mailbox-Open",
        ] {
            assert_eq!(response(&[(name, "1".to_owned())]), Ok(0), "{name}");
        }
    }
}
