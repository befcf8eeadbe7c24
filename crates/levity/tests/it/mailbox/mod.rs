//! Mailboxes over HTTP.

#[cfg(feature = "tls")]
mod claims;
mod clients;
mod cuts;
mod durable_streams;
mod grip;
mod in_band;
mod publishing;
mod receiving;
mod resume;
mod slow;
mod stores;
mod websocket;

use std::time::Duration;

use serde_json::Value;

use crate::support::{Answer, Client, Launch, Server};

/// The key of publishers in these tests.
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// A server with a set of mailboxes at `/m/`, with further keys of the set.
fn launch(keys: &str) -> Launch {
    Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"unix:{{own}}/ordinary\"\n\
         [[listen]]\naddress = \"unix:{{own}}/socket\"\npublish = true\n\
         [[mailbox]]\nname = \"m\"\n{keys}\n\
         [[site]]\nrespond = {{}}\n[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n"
    ))
}

fn start(keys: &str) -> Server {
    launch(keys).start()
}

/// A client at the listener for publishers.
fn publisher(server: &Server) -> Client {
    Client::unix(&server.own("socket"))
}

/// Publishes `body` to the box `name`.
fn post(client: &mut Client, name: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    headers.push(("Content-Length", &length));
    client.send(crate::support::head(
        "POST",
        &format!("/m/{name}"),
        &headers,
    ));
    client.send(body);
    client.receive()
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// Text of the field `name`.
fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} in {value}"))
}

/// A receiver of server-sent events.
struct Events(Client);

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    id: String,
    event: String,
    data: String,
}

impl Events {
    /// Subscribes to the box `name`.
    fn new(server: &Server, name: &str, headers: &[(&str, &str)]) -> Self {
        let mut client = server.client();
        let mut all = vec![("Accept", "text/event-stream")];
        all.extend(headers);
        client.send(crate::support::head("GET", &format!("/m/{name}"), &all));
        let head = client.receive_head().expect("a header");
        head.assert_status(200);
        assert_eq!(head.field("content-type"), "text/event-stream");
        Self(client)
    }

    /// The next event; comments, times and ids alone are skipped. `None` at the end of the stream.
    fn next(&mut self) -> Option<Event> {
        loop {
            let line = self.0.read_through(b"\r\n");
            let size = String::from_utf8(line).expect("a size of a chunk");
            let size = usize::from_str_radix(size.trim(), 16).expect("a size of a chunk");
            let chunk = self.0.read_exactly(size);
            self.0.read_exactly(2);
            if size == 0 {
                return None;
            }
            let (mut event, mut is_event) = (Event::default(), false);
            for line in String::from_utf8(chunk).expect("text").lines() {
                is_event |= line.starts_with("data") || line.starts_with("event");
                match line.split_once(": ") {
                    Some(("id", value)) => value.clone_into(&mut event.id),
                    Some(("event", value)) => value.clone_into(&mut event.event),
                    Some(("data", value)) => event.data.push_str(value),
                    _ => {}
                }
            }
            if is_event {
                return Some(event);
            }
        }
    }

    /// The data of the next event.
    fn data(&mut self) -> String {
        self.next().expect("an event").data
    }
}

/// Waits until a box has `count` receivers.
fn wait_for_receivers(client: &mut Client, name: &str, count: u64) {
    crate::support::wait_until("the receivers are there", || {
        let answer = client.get(&format!("/m/{name}?info"));
        answer.status == 200 && json(&answer)["receivers_here"] == count
    });
}

/// Longer than anything takes that is due at once.
const SOON: Duration = Duration::from_secs(5);
