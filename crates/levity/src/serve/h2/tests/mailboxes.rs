//! Receivers of mailboxes.

use levity_mailbox::{Command, Name};
use levity_wire::http2::PREFACE;
use tokio::sync::oneshot;

use super::*;
use crate::rig::settle;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let header = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    [&header, payload].concat()
}

/// A GET with literal header fields.
fn raw_get(stream: u8, path: &str, accept: &str) -> Vec<u8> {
    const HEADERS: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 5;
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("accept", accept),
    ];
    let literal = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let field = |(name, value)| [vec![0], literal(name), literal(value)].concat();
    let block: Vec<u8> = fields.into_iter().flat_map(field).collect();
    frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)
}

const BOXES: &str = "[[site.route]]\npath = \"/box/*\"\nmailbox = \"box\"\n\
                     [[mailbox]]\nname = \"box\"\nheartbeat = \"1h\"\n";

/// Removes the box `a`, which ends its receivers.
async fn remove_box(rig: &Rig) {
    let name = Name::new("box", b"a").expect("a name");
    let (reply, answer) = oneshot::channel();
    let command = Command::Remove {
        epoch: None,
        name: name.clone(),
        reply,
    };
    let copies = &rig.worker.mailboxes;
    copies.send(copies.owner_of(&name), command);
    assert!(matches!(answer.await, Ok(Ok(true))));
}

/// What a client takes of a download counts for its socket, whose Close frame waits for the same window.
#[test]
fn a_socket_of_a_mailbox_is_not_slow_while_its_client_takes_other_bodies() {
    let rig = Rig::with_files(BOXES, &[("large", &large())]);
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20);
    for takes in [true, false] {
        run(&rig, &builder, async |client| {
            let (reply, _ours) = websockets::connect(client, "/box/a").await;
            let mut socket = reply.await.expect("a response").into_body();
            let mut download = large_body(client, "u=1").await;
            settle().await;
            remove_box(&rig).await;
            settle().await;
            if takes {
                let mut taken = 0;
                while taken < 60_000 {
                    let piece = receive(&mut download).await.expect("bytes");
                    taken += piece.expect("bytes").len();
                }
            }
            rig.pass_seconds(61).await;
            drop(download);
            match takes {
                true => {
                    let close = receive(&mut socket).await.expect("bytes").expect("bytes");
                    assert_eq!(close[0], 0x88);
                }
                false => assert_eq!(reset_code(&mut socket).await, Some(Reason::INTERNAL_ERROR)),
            }
        });
    }
}

/// It takes nothing any more, and the body of another stream fills the output.
#[test]
fn a_receiver_that_has_to_end_waits_for_its_client_as_long_as_others() {
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    let rig = Rig::with_files(BOXES, &[("large", &large())]);
    rig.run(async {
        let mut client = rig.client(16 * 1024);
        let begin = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]),
            raw_get(1, "/box/a", "text/event-stream"),
            raw_get(3, "/large", "*/*"),
        ];
        client.send(begin.concat()).await;
        until(|| rig.worker.core.timers.len() == 3).await;
        settle().await;
        remove_box(&rig).await;
        rig.pass_seconds(100).await;
        until(|| rig.worker.core.timers.len() <= 1).await;
        client.break_off().await;
    });
    rig.assert_idle();
}
