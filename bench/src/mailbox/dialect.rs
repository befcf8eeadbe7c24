//! How the servers spell subscriptions, publishes and messages.

/// The requests and events of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// Levity's mailboxes below `/box/`.
    Levity,
    /// nchan with `/sub/NAME` and `/pub/NAME`.
    Nchan,
    /// Centrifugo: its unidirectional event stream and HTTP API. Messages are JSON strings.
    Centrifugo,
    /// The writer, which has one box.
    Writer,
}

impl Dialect {
    /// The word on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Levity => "levity",
            Self::Nchan => "nchan",
            Self::Centrifugo => "centrifugo",
            Self::Writer => "writer",
        }
    }

    /// The request that opens the event stream of a box.
    #[must_use]
    pub fn subscription(self, host: &str, index: usize) -> Vec<u8> {
        let target = match self {
            Self::Levity => format!("/box/b{index}"),
            Self::Nchan => format!("/sub/b{index}"),
            // {"subs":{"bN":{}}}
            Self::Centrifugo => format!(
                "/connection/uni_sse?cf_connect=%7B%22subs%22%3A%7B%22b{index}%22%3A%7B%7D%7D%7D"
            ),
            Self::Writer => "/".into(),
        };
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n")
            .into_bytes()
    }

    /// Appends the request that publishes a message.
    pub fn publish(self, host: &str, index: usize, key: &str, message: &[u8], out: &mut Vec<u8>) {
        let (before, after) = match self {
            Self::Centrifugo => (format!("{{\"channel\":\"b{index}\",\"data\":\""), "\"}"),
            _ => (String::new(), ""),
        };
        let (target, kind) = match self {
            Self::Levity => (format!("/box/b{index}"), "text/plain"),
            Self::Nchan => (format!("/pub/b{index}"), "text/plain"),
            Self::Centrifugo => ("/api/publish".into(), "application/json"),
            Self::Writer => ("/".into(), "text/plain"),
        };
        let authorization = match self {
            Self::Levity => format!("Authorization: Bearer {key}\r\n"),
            _ => String::new(),
        };
        let length = before.len() + message.len() + after.len();
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\n{authorization}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        for part in [
            head.as_bytes(),
            before.as_bytes(),
            message,
            after.as_bytes(),
        ] {
            out.extend_from_slice(part);
        }
    }

    /// The message in the data of an event; None for an event without one, such as the first of Centrifugo, which names
    /// the client.
    #[must_use]
    pub fn message(self, data: &[u8]) -> Option<&[u8]> {
        if self != Self::Centrifugo {
            return Some(data);
        }
        // {"channel":"bN","pub":{"data":"MESSAGE",...}}: the message has no quotes in it.
        const BEFORE: &[u8] = b"\"data\":\"";
        let start = memchr::memmem::find(data, BEFORE)? + BEFORE.len();
        let length = memchr::memchr(b'"', &data[start..])?;
        Some(&data[start..start + length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(dialect: Dialect) -> String {
        let mut request = Vec::new();
        dialect.publish("h:1", 7, "secret", b"text", &mut request);
        String::from_utf8(request).unwrap()
    }

    #[test]
    fn requests_name_the_box_and_the_length() {
        for dialect in [Dialect::Levity, Dialect::Nchan, Dialect::Centrifugo] {
            let subscription = String::from_utf8(dialect.subscription("h:1", 7)).unwrap();
            assert!(subscription.contains("b7") && subscription.ends_with("\r\n\r\n"));
            let request = published(dialect);
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())));
            assert!(request.contains("b7") && body.contains("text"));
        }
        assert!(published(Dialect::Levity).contains("Authorization: Bearer secret\r\n"));
        assert!(!published(Dialect::Nchan).contains("secret"));
    }

    #[test]
    fn centrifugo_wraps_messages_in_json() {
        let event = br#"{"channel":"b7","pub":{"data":"text","offset":1}}"#;
        assert_eq!(Dialect::Centrifugo.message(event), Some(&b"text"[..]));
        let connected = br#"{"connect":{"client":"1","version":"6"}}"#;
        assert_eq!(Dialect::Centrifugo.message(connected), None);
        assert_eq!(Dialect::Nchan.message(event), Some(&event[..]));
    }
}
