//! Bytes both ways, until both sides have ended.

use std::task::Waker;

use tokio::task::JoinHandle;

use super::*;
use crate::rig::{Backend, End as Peer, Rig, settle};

/// A flow between two transports, with the far end of each in the hands of the test.
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

    fn poll(&mut self) -> Poll<Result<(), End>> {
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
fn a_full_side_is_waited_for() {
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
fn the_side_that_breaks_is_named() {
    let mut rig = FlowRig::new(64);
    rig.write(b"lost");
    drop(std::mem::replace(&mut rig.sink, Transport::memory(1).0));
    assert!(matches!(rig.poll(), Poll::Ready(Err(End::To(_)))));
    let mut rig = FlowRig::new(64);
    rig.source.reset_on_close();
    drop(std::mem::replace(&mut rig.source, Transport::memory(1).0));
    assert!(matches!(rig.poll(), Poll::Ready(Err(End::From(_)))));
}

const UPGRADE: &str =
    "GET /app HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n";

/// Both ends of a tunnel, whose buffers hold so many bytes.
async fn tunnel(rig: &Rig, app: &Backend, bytes_max: usize) -> (Peer, Peer, JoinHandle<()>) {
    let (mut client, serving) = rig.connect(bytes_max);
    client.send(UPGRADE).await;
    let mut backend = app.accept(bytes_max).await;
    let head = backend.until("\r\n\r\n").await;
    assert!(head.contains("Upgrade: chat\r\n"), "{head}");
    backend.send(SWITCHED).await;
    let head = client.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("\r\nUpgrade: chat\r\n"), "{head}");
    (client, backend, serving)
}

#[test]
fn bytes_go_both_ways() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for bytes_max in [1, 7, 4096] {
            let (mut client, mut backend, serving) = tunnel(&rig, &app, bytes_max).await;
            for _ in 0..3 {
                tokio::join!(client.send("question"), backend.until("question"));
                tokio::join!(backend.send("answer"), client.until("answer"));
            }
            assert!(!serving.is_finished());
            drop((client, backend));
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

/// What comes at once with the header of a side belongs to the tunnel.
#[test]
fn headers_may_be_cut_anywhere_or_not_at_all() {
    let (rig, app) = Rig::proxy("");
    let (request, answer) = (format!("{UPGRADE}early"), format!("{SWITCHED}prompt"));
    rig.run(async {
        for cut in 1..=request.len() {
            let (mut client, serving) = rig.connect(4096);
            client.send(&request[..cut]).await;
            settle().await;
            client.send(&request[cut..]).await;
            let (mut backend, _) = app.asked().await;
            let cut = cut.min(answer.len());
            backend.send(&answer[..cut]).await;
            settle().await;
            backend.send(&answer[cut..]).await;
            assert_eq!(backend.until("early").await, "early", "cut at byte {cut}");
            assert!(client.until("prompt").await.ends_with("\r\n\r\nprompt"));
            drop((client, backend));
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

#[test]
fn either_side_may_end_first() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for is_client_first in [true, false] {
            let (client, backend, serving) = tunnel(&rig, &app, 16).await;
            let (mut first, mut second) = match is_client_first {
                true => (client, backend),
                false => (backend, client),
            };
            first.send("last words").await;
            first.end_output();
            assert_eq!(second.rest().await, "last words");
            assert!(!serving.is_finished());
            second.send("good").await;
            assert_eq!(first.arrived().await, "good");
            second.send("bye").await;
            second.end_output();
            assert_eq!(first.rest().await, "bye");
            drop((first, second));
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

/// A side that breaks takes the other with it.
#[test]
fn either_side_may_leave() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for bytes in ["", "on its way"] {
            let (client, mut backend, serving) = tunnel(&rig, &app, 4096).await;
            backend.send(bytes).await;
            client.break_off();
            serving.await.expect("served");
            backend.all().await;
            let (mut client, backend, serving) = tunnel(&rig, &app, 4096).await;
            client.send(bytes).await;
            backend.break_off();
            client.reset().await;
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

/// A tunnel may be silent for `tunnel_timeout`; one that has ended in one direction for `idle_timeout`.
#[test]
fn a_silent_tunnel_is_closed() {
    let (rig, app) = Rig::proxy("tunnel_timeout = \"500s\"\nidle_timeout = \"50s\"\n");
    rig.run(async {
        for (ends, still, over) in [(false, 499, 501), (true, 49, 51)] {
            let (mut client, mut backend, serving) = tunnel(&rig, &app, 4096).await;
            backend.send("a").await;
            client.until("a").await;
            if ends {
                backend.end_output();
            }
            rig.pass_seconds(still).await;
            assert!(!serving.is_finished());
            rig.pass_seconds(over).await;
            serving.await.expect("served");
            client.reset().await;
            backend.all().await;
        }
    });
    rig.assert_idle();
}

/// Who takes nothing holds up the other side, and is not waited for any longer than silence is.
#[test]
fn a_side_that_takes_nothing_is_closed() {
    let (rig, app) = Rig::proxy("tunnel_timeout = \"500s\"\n");
    rig.run(async {
        let (client, mut backend, serving) = tunnel(&rig, &app, 4).await;
        backend.send("12345678").await;
        rig.pass_seconds(499).await;
        assert!(!serving.is_finished());
        rig.pass_seconds(501).await;
        serving.await.expect("served");
        drop(client);
    });
    rig.assert_idle();
}

/// The response to a HEAD ends with its header, so a tunnel could not follow it.
#[test]
fn no_upgrade_is_offered_for_head() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let (mut client, serving) = rig.connect(4096);
        client.send(UPGRADE.replace("GET", "HEAD")).await;
        let (mut backend, head) = app.asked().await;
        assert!(!head.contains("Upgrade"), "{head}");
        backend.send(SWITCHED).await;
        assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 502 "));
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}
