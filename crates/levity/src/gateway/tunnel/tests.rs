//! Tunnels in which a side is slow, silent, ends or disconnects.

use std::task::Waker;

use super::*;
use crate::rig::{Backend, Client, End, Rig, settle, with_proxy};

/// A flow between two transports. The test has the other end of each.
struct FlowRig {
    flow: Flow,
    from: Transport,
    to: Transport,
    source: Transport,
    sink: Transport,
    moved: u64,
}

impl FlowRig {
    fn new(sink_bytes_max: usize) -> Self {
        let (from, source) = Transport::memory(TURN_BYTES_MAX * 2);
        let (to, sink) = Transport::memory(sink_bytes_max);
        let (flow, moved) = (Flow::default(), 0);
        Self {
            flow,
            from,
            to,
            source,
            sink,
            moved,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let context = &mut Context::from_waker(Waker::noop());
        let written = self.source.poll_write(context, bytes);
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == bytes.len()));
    }

    fn poll(&mut self) -> Poll<Result<(), Broken>> {
        let context = &mut Context::from_waker(Waker::noop());
        let mut scratch = [0; 4096];
        let (from, to) = (&mut self.from, &mut self.to);
        self.flow
            .poll(from, to, &mut scratch, context, &mut self.moved)
    }

    /// What has arrived at the sink; `None` for nothing.
    fn arrived(&mut self) -> Option<Vec<u8>> {
        let mut bytes = [0; 4096];
        let read = self.sink.try_read(&mut bytes).ok();
        read.map(|count| bytes[..count].to_vec())
    }
}

#[test]
fn a_flow_waits_for_a_full_destination() {
    let mut rig = FlowRig::new(3);
    rig.write(b"abcdefg");
    assert!(rig.poll().is_pending());
    assert_eq!(rig.arrived().as_deref(), Some(&b"abc"[..]));
    rig.source.end_output();
    assert!(rig.poll().is_pending());
    assert_eq!(rig.arrived().as_deref(), Some(&b"def"[..]));
    assert!(matches!(rig.poll(), Poll::Ready(Ok(()))));
    assert_eq!(rig.arrived().as_deref(), Some(&b"g"[..]));
    assert_eq!(rig.arrived().as_deref(), Some(&b""[..]));
    assert_eq!(rig.moved, 7);
}

#[test]
fn an_idle_flow_keeps_no_memory() {
    let mut rig = FlowRig::new(64);
    rig.write(b"event");
    assert!(rig.poll().is_pending());
    assert_eq!(rig.arrived().as_deref(), Some(&b"event"[..]));
    assert_eq!(rig.flow.bytes.capacity(), 0);
    assert_eq!(rig.arrived(), None);
}

#[test]
fn a_flow_gives_others_a_turn() {
    let mut rig = FlowRig::new(TURN_BYTES_MAX * 2);
    rig.write(&vec![0; TURN_BYTES_MAX * 2]);
    assert!(rig.poll().is_pending());
    assert_eq!(rig.moved, TURN_BYTES_MAX as u64);
    assert!(rig.poll().is_pending());
    assert_eq!(rig.moved, TURN_BYTES_MAX as u64 * 2);
}

#[test]
fn an_error_names_the_side_that_failed() {
    let mut rig = FlowRig::new(64);
    rig.write(b"lost");
    drop(std::mem::replace(&mut rig.sink, Transport::memory(1).0));
    assert!(matches!(
        rig.poll(),
        Poll::Ready(Err(Broken::Destination(_)))
    ));
    let mut rig = FlowRig::new(64);
    rig.source.reset_on_close();
    drop(std::mem::replace(&mut rig.source, Transport::memory(1).0));
    assert!(matches!(rig.poll(), Poll::Ready(Err(Broken::Source(_)))));
}

const UPGRADE: &str =
    "GET /app HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n";

/// Both ends of a tunnel. `bytes_max` is the size of the buffers.
async fn tunnel(rig: &Rig, app: &Backend, bytes_max: usize) -> (Client, End) {
    let mut client = rig.client(bytes_max);
    client.send(UPGRADE).await;
    let mut backend = app.accept(bytes_max).await;
    let head = backend.until("\r\n\r\n").await;
    assert!(head.contains("Upgrade: chat\r\n"), "{head}");
    backend.send(SWITCHED).await;
    let head = client.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("\r\nUpgrade: chat\r\n"), "{head}");
    (client, backend)
}

#[test]
fn bytes_are_copied_in_both_directions() {
    with_proxy("", async |rig, app| {
        for bytes_max in [1, 7, 4096] {
            let (mut client, mut backend) = tunnel(rig, app, bytes_max).await;
            for _ in 0..3 {
                tokio::join!(client.send("question"), backend.until("question"));
                tokio::join!(backend.send("answer"), client.until("answer"));
            }
            assert!(!client.is_served());
            drop(backend);
            client.close().await;
        }
    });
}

/// Bytes that arrive together with the header of a side belong to the tunnel.
#[test]
fn headers_may_be_split_at_any_byte() {
    let (request, response) = (format!("{UPGRADE}early"), format!("{SWITCHED}prompt"));
    with_proxy("", async |rig, app| {
        for cut in 1..=request.len() {
            let mut client = rig.client(4096);
            client.send(&request[..cut]).await;
            settle().await;
            client.send(&request[cut..]).await;
            let (mut backend, _) = app.asked().await;
            let cut = cut.min(response.len());
            backend.send(&response[..cut]).await;
            settle().await;
            backend.send(&response[cut..]).await;
            assert_eq!(backend.until("early").await, "early", "cut at byte {cut}");
            assert!(client.until("prompt").await.ends_with("\r\n\r\nprompt"));
            drop(backend);
            client.close().await;
        }
    });
}

async fn end_in_turn(first: &mut End, second: &mut End) {
    first.send("last words").await;
    first.end_output();
    assert_eq!(second.rest().await, "last words");
    second.send("good").await;
    assert_eq!(first.arrived().await, "good");
    second.send("bye").await;
    second.end_output();
    assert_eq!(first.rest().await, "bye");
}

#[test]
fn either_side_may_end_first() {
    with_proxy("", async |rig, app| {
        for is_client_first in [true, false] {
            let (mut client, mut backend) = tunnel(rig, app, 16).await;
            match is_client_first {
                true => end_in_turn(&mut client, &mut backend).await,
                false => end_in_turn(&mut backend, &mut client).await,
            }
            client.served().await;
        }
    });
}

/// When one side fails, the connection to the other is closed.
#[test]
fn either_side_may_disconnect() {
    with_proxy("", async |rig, app| {
        for bytes in ["", "in transit"] {
            let (client, mut backend) = tunnel(rig, app, 4096).await;
            backend.send(bytes).await;
            client.break_off().await;
            backend.all().await;
            let (mut client, backend) = tunnel(rig, app, 4096).await;
            client.send(bytes).await;
            backend.break_off();
            client.reset().await;
            client.served().await;
        }
    });
}

/// A tunnel may be silent for `tunnel_timeout`, and after the end of one side for `idle_timeout`.
#[test]
fn a_silent_tunnel_is_closed() {
    let keys = "tunnel_timeout = \"500s\"\nidle_timeout = \"50s\"\n";
    with_proxy(keys, async |rig, app| {
        for (ends, still, over) in [(false, 499, 501), (true, 49, 51)] {
            let (mut client, mut backend) = tunnel(rig, app, 4096).await;
            backend.send("a").await;
            client.until("a").await;
            if ends {
                backend.end_output();
            }
            rig.pass_seconds(still).await;
            assert!(!client.is_served());
            rig.pass_seconds(over).await;
            client.reset().await;
            client.served().await;
            backend.all().await;
        }
    });
}

/// A side that does not read counts as silent.
#[test]
fn a_tunnel_whose_side_does_not_read_is_closed() {
    with_proxy("tunnel_timeout = \"500s\"\n", async |rig, app| {
        let (client, mut backend) = tunnel(rig, app, 4).await;
        backend.send("12345678").await;
        rig.pass_seconds(499).await;
        assert!(!client.is_served());
        rig.pass_seconds(501).await;
        client.served().await;
    });
}

/// The response to a HEAD ends with its header, so a tunnel could not follow it.
#[test]
fn no_upgrade_is_offered_for_head() {
    with_proxy("", async |rig, app| {
        let mut client = rig.client(4096);
        client.send(UPGRADE.replace("GET", "HEAD")).await;
        let (mut backend, head) = app.asked().await;
        assert!(!head.contains("Upgrade"), "{head}");
        backend.send(SWITCHED).await;
        assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 502 "));
        client.close().await;
    });
}
