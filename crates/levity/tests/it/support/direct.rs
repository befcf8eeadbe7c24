//! Requests to backends without a server between, by the codecs that the server uses.

use levity_wire::ajp13::{self, Message, Reader, SendHeaders, Upload};
use levity_wire::cgi::{Environment, Request, ResponseHead, Split, parse_response, split_script};
use levity_wire::fastcgi::{self, Event};
use levity_wire::http1::{Limits, Version};
use levity_wire::scgi;

use super::{App, Client, Tree};

/// A request to an application of CGI: a script of `root`, or an application mounted there.
pub fn cgi<'a>(root: &'a Tree, split: Split<'a>, method: &'a str, target: &'a str) -> Request<'a> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (target, None),
    };
    Request {
        method: method.as_bytes(),
        path: path.as_bytes(),
        query,
        version: Version::Http11,
        host: Some(b"localhost"),
        server_name: b"localhost",
        server_port: 80,
        server_software: b"levity",
        server_addr: None,
        remote_addr: Some([192, 0, 2, 1].into()),
        remote_port: Some(4321),
        https: false,
        content_length: None,
        document_root: root.path().as_os_str().as_encoded_bytes(),
        script: split_script(&path.as_bytes()[1..], split).expect("a script"),
    }
}

pub fn filled(request: &Request, fields: &[(&[u8], &[u8])]) -> Environment {
    let mut environment = Environment::default();
    let fields = fields.iter().copied();
    environment.fill(request, fields).expect("variables");
    environment
}

/// An answer of an application of CGI.
pub struct Answered {
    pub head: ResponseHead,
    pub bytes: Vec<u8>,
    pub stderr: String,
    pub reusable: bool,
}

impl Answered {
    #[track_caller]
    pub fn new(bytes: Vec<u8>) -> Self {
        let mut head = ResponseHead::default();
        let complete = parse_response(&bytes, &mut head, &Limits::default());
        assert_eq!(complete, Ok(true), "{}", bytes.escape_ascii());
        Self {
            head,
            bytes,
            stderr: String::new(),
            reusable: false,
        }
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[self.head.bytes..]
    }

    pub fn header(&self, name: &str) -> &str {
        let value = self.head.headers.first(&self.bytes, name);
        std::str::from_utf8(value.unwrap_or_default()).expect("a header in UTF-8")
    }
}

/// One request by FastCGI on a connection that may have carried others.
#[track_caller]
pub fn fastcgi(client: &mut Client, environment: &Environment, body: &[u8]) -> Answered {
    let mut head = Vec::new();
    fastcgi::write_head(environment, true, &mut head);
    client.send(head);
    for record in fastcgi::stdin(body) {
        client.send([&record.header, record.content, record.padding].concat());
    }
    client.send(fastcgi::STDIN_END);
    fastcgi_answer(client)
}

#[track_caller]
pub fn fastcgi_answer(client: &mut Client) -> Answered {
    let mut answer = fastcgi::ResponseDecoder::new(true);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        let arrived = client.read_some();
        let decoded = answer.decode(&arrived, |event| match event {
            Event::Stdout(bytes) => stdout.extend_from_slice(bytes),
            Event::Stderr(bytes) => stderr.extend_from_slice(bytes),
            Event::End { app_status, .. } => assert_eq!(app_status, 0),
        });
        if decoded.expect("records of FastCGI").done {
            let mut answered = Answered::new(stdout);
            answered.stderr = String::from_utf8(stderr).expect("messages in UTF-8");
            answered.reusable = answer.is_reusable();
            return answered;
        }
    }
}

/// One request by SCGI.
#[track_caller]
pub fn scgi(mut client: Client, environment: &Environment, body: &[u8]) -> Answered {
    let mut sent = Vec::new();
    scgi::write_head(environment, body.len() as u64, &mut sent);
    sent.extend_from_slice(body);
    client.send(sent);
    Answered::new(client.read_to_end().body())
}

/// A connection by AJP13 and what was read of it too early.
pub struct Ajp {
    client: Client,
    ahead: Vec<u8>,
}

/// An answer of a servlet container.
#[derive(Default)]
pub struct Contained {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub reuse: bool,
}

impl Ajp {
    pub fn new(client: Client) -> Self {
        let ahead = Vec::new();
        Self { client, ahead }
    }

    pub fn ping(&mut self) {
        self.client.send(ajp13::PING);
        let mut pong = false;
        self.read(Reader::pong(), |_, message| {
            pong = message == Message::CPong;
        });
        assert!(pong);
    }

    /// With a body whose length is said, or that is chunked.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        body: &[u8],
        says_length: bool,
    ) -> Contained {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let head = ajp13::Head {
            method: method.as_bytes(),
            version: Version::Http11,
            path: path.as_bytes(),
            query: (!query.is_empty()).then_some(query.as_bytes()),
            remote_address: b"192.0.2.1",
            remote_port: Some(4321),
            server_name: b"localhost",
            server_port: 80,
            secure: false,
            secret: Some(App::TOMCAT_SECRET.as_bytes()),
        };
        let length = body.len().to_string();
        let framing: (&[u8], &[u8]) = match says_length {
            true => (b"content-length", length.as_bytes()),
            false => (b"transfer-encoding", b"chunked"),
        };
        let headers: [(&[u8], &[u8]); 3] = [(b"host", b"localhost"), (b"x-asked", b"yes"), framing];
        let mut out = Vec::new();
        ajp13::write_head(&head, headers, &mut out).expect("a head that fits");
        let mut upload = Upload::new(says_length.then_some(body.len() as u64));
        let mut left = body;
        left = &left[upload.write(left, &mut out)..];
        self.client.send(&out);
        let mut contained = Contained::default();
        self.read(Reader::response(), |client, message| match message {
            Message::SendHeaders(head) => contained.head(&head),
            Message::SendBodyChunk(bytes) => contained.body.extend_from_slice(bytes),
            Message::GetBodyChunk { requested } => {
                upload.grant(requested).expect("it waits for nothing else");
                let mut out = Vec::new();
                left = &left[upload.write(left, &mut out)..];
                upload.write_end(&mut out);
                client.send(out);
            }
            Message::EndResponse { reuse } => contained.reuse = reuse,
            Message::CPong => panic!("a CPong"),
        });
        contained
    }

    /// Hands over one message after the other until the answer ends.
    fn read(&mut self, mut reader: Reader, mut take: impl FnMut(&mut Client, Message)) {
        loop {
            let decoded = reader.decode(&self.ahead).expect("packets of AJP13");
            let ends = matches!(
                decoded.message,
                Some(Message::EndResponse { .. } | Message::CPong)
            );
            let waits = decoded.message.is_none();
            if let Some(message) = decoded.message {
                take(&mut self.client, message);
            }
            let consumed = decoded.consumed;
            self.ahead.drain(..consumed);
            if ends {
                return;
            }
            if waits {
                self.ahead.extend(self.client.read_some());
            }
        }
    }
}

impl Contained {
    fn head(&mut self, head: &SendHeaders) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.status = head.status;
        let headers = head.headers();
        self.headers = headers
            .map(|(name, value)| (text(name), text(value)))
            .collect();
    }
}
