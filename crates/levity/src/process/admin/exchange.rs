//! One request and one response on each connection of a listener.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_net::{Listener, Peer, Transport};
use levity_wire::http1::{Limits, Method, RequestHead, parse_request, reason};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at once; more wait in the listener's backlog.
pub(super) const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's header section.
pub(super) const HEAD_BYTES_MAX: usize = 4096;
/// From accept to the end of the header section.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed accept, such as one without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// What is at a listener.
pub(super) trait Pages: Send + Sync + 'static {
    /// From the end of the request's header section to close.
    fn response_time_max(&self) -> Duration;

    /// From accept to the end of the request's header section.
    fn head_time_max(&self) -> Duration {
        HEAD_TIME_MAX
    }

    /// Answers a request. The host is `None` if the request has none.
    fn respond(&self, asked: Asked<'_>, peer: &Peer) -> impl Future<Output = Reply> + Send;
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub method: Method,
    pub path: &'a [u8],
    pub query: Option<&'a [u8]>,
    pub host: Option<&'a [u8]>,
}

/// Handles requests until the other end of `stop` is dropped; those that have come by then get their response. For the control thread's
/// runtime, which must have I/O and time enabled.
pub(super) async fn serve<P: Pages>(
    listener: Listener,
    pages: Arc<P>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let is_full = connections.len() == CONNECTIONS_MAX;
        let accepted = tokio::select! {
            _ = connections.join_next(), if is_full => continue,
            accepted = listener.accept(), if !is_full => accepted,
            _ = &mut stop => break,
        };
        match accepted {
            Ok((transport, peer)) => {
                let pages = pages.clone();
                connections.spawn(async move { exchange(transport, &peer, &*pages).await });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    connections.join_all().await;
}

/// One request and its response. An error means that the client closed early or was too slow; it is ignored.
async fn exchange(mut transport: Transport, peer: &Peer, pages: &impl Pages) -> io::Result<()> {
    let mut bytes = [0; HEAD_BYTES_MAX];
    let mut head = RequestHead::default();
    let reading = read_head(&mut transport, &mut bytes, &mut head);
    let read = timeout(pages.head_time_max(), reading).await??;
    let responding = async {
        let answer = match read {
            Head::Closed => return Ok(()),
            Head::Refused(answer) => answer,
            Head::Complete => pages.respond(asked(&head, &bytes), peer).await,
        };
        transport
            .write_all(&answer.bytes(head.method == Method::Head))
            .await?;
        transport.end_output();
        // Closing with unread bytes would reset the connection and may lose the response.
        while transport.read(&mut bytes).await? > 0 {}
        Ok(())
    };
    timeout(pages.response_time_max(), responding).await?
}

fn asked<'a>(head: &RequestHead, bytes: &'a [u8]) -> Asked<'a> {
    Asked {
        method: head.method,
        path: head.path.of(bytes),
        query: head.query.map(|query| query.of(bytes)),
        host: head.host.map(|host| host.of(bytes)),
    }
}

/// The outcome of reading a request's header section.
enum Head {
    /// The client closed first.
    Closed,
    Refused(Reply),
    Complete,
}

async fn read_head(
    transport: &mut Transport,
    bytes: &mut [u8; HEAD_BYTES_MAX],
    head: &mut RequestHead,
) -> io::Result<Head> {
    let limits = Limits {
        head_bytes_max: HEAD_BYTES_MAX,
        ..Limits::default()
    };
    let mut filled = 0;
    loop {
        // A full buffer is never incomplete, by the contract of the limits.
        let more = transport.read(&mut bytes[filled..]).await?;
        if more == 0 {
            return Ok(Head::Closed);
        }
        filled += more;
        match parse_request(&bytes[..filled], head, &limits) {
            Ok(true) => return Ok(Head::Complete),
            Ok(false) => {}
            Err(reject) => return Ok(Head::Refused(Reply::refused(reject.status, reject.reason))),
        }
    }
}

/// A response that is not serialized yet.
pub(super) struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    /// `Content-Security-Policy`.
    pub policy: Cow<'static, str>,
    /// `Allow`, which a 405 must have (RFC 9110, 15.5.6).
    pub allow: Option<&'static str>,
    pub body: String,
}

impl Reply {
    pub fn ok(content_type: &'static str, body: String) -> Self {
        Self {
            status: 200,
            content_type,
            policy: "default-src 'none'; frame-ancestors 'none'".into(),
            allow: None,
            body,
        }
    }

    /// A status and why, in words.
    pub fn refused(status: u16, reason: &str) -> Self {
        Self {
            status,
            ..Self::ok(TEXT, format!("{status} {reason}\n"))
        }
    }

    /// Another method than those that are `allowed`.
    pub fn not_allowed(allowed: &'static str) -> Self {
        Self {
            allow: Some(allowed),
            ..Self::refused(405, reason(405))
        }
    }

    /// Nothing is there.
    pub fn not_found() -> Self {
        Self::refused(404, reason(404))
    }

    fn bytes(&self, head_only: bool) -> Vec<u8> {
        let allow = self.allow.map(|methods| format!("Allow: {methods}\r\n"));
        let allow = allow.unwrap_or_default();
        let mut out = format!(
            "HTTP/1.1 {} {}\r\nDate: {}\r\n{allow}Content-Type: {}\r\nContent-Length: {}\r\n\
             Content-Security-Policy: {}\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            reason(self.status),
            httpdate::fmt_http_date(SystemTime::now()),
            self.content_type,
            self.body.len(),
            self.policy,
        );
        if !head_only {
            out.push_str(&self.body);
        }
        out.into_bytes()
    }
}
