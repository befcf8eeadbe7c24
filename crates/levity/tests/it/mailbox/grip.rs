//! GRIP: applications that were written for Pushpin.

use std::path::Path;

use super::in_band::{ask, chunk, held, launch, obedient, start};
use super::{KEY, json, post, publisher, text, wait_for_receivers};

use crate::support::scripted::Scripted;
use crate::support::{App, Client, Server, Tree, WebSocket, head};

/// Keys of a set whose publishers and applications have the key of the tests.
fn keys(tree: &Tree) -> String {
    let key = tree.file("key", KEY);
    let key = key.display();
    format!("publish_key_file = \"{key}\"\ngrip_key_file = \"{key}\"")
}

fn publish(client: &mut Client, items: &str) {
    let body = format!(r#"{{"items":[{items}]}}"#);
    let answer = post(
        client,
        "publish/",
        &[("Content-Type", "application/json")],
        &body,
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_stream_is_held() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let mut control = publisher(&server);
    let lines = [
        "Grip-Hold: stream",
        "Grip-Channel: a room, b; prev-id=4",
        "Grip-Keep-Alive: :\\n\\n; format=cstring; timeout=1",
        "Content-Type: text/event-stream",
        "X-Own: 1",
    ];
    let (answer, mut client) = held(&server, &lines, "event: open\\n\\n", &[]);
    answer.assert_status(200);
    assert_eq!(answer.field("content-type"), "text/event-stream");
    assert_eq!(answer.field("x-own"), "1");
    assert_eq!(answer.header("grip-hold"), None);
    assert_eq!(chunk(&mut client), "event: open\n\n");
    wait_for_receivers(&mut server.client(), "b", 1);
    publish(
        &mut control,
        r#"{"channel":"a room","formats":{"http-stream":{"content":"data: a\n\n"}}}"#,
    );
    client.read_through(b"data: a\n\n\r\n");
    publish(
        &mut control,
        r#"{"channel":"b","id":"5","http-stream":{"content":"data: b\n\n"},"http-response":{"body":"r"}}"#,
    );
    client.read_through(b"data: b\n\n\r\n");
    client.read_through(b":\n\n\r\n");
    let kept = json(&server.get("/m/a=20room"));
    assert_eq!(text(&kept["messages"][0], "data"), "data: a\n\n");
    publish(
        &mut control,
        r#"{"channel":"b","formats":{"http-stream":{"action":"close"}}}"#,
    );
    client.read_through(b"0\r\n\r\n");
}

#[test]
fn a_response_is_held() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let mut control = publisher(&server);
    let lines = "Grip-Hold: response; ;Grip-Channel: a; ;Grip-Channel: b; ;Grip-Timeout: 30";
    let ask_for = |lines| {
        let mut client = server.client();
        client.send(head("GET", "/", &[("X-Say", lines), ("X-Body", "nothing")]));
        client
    };
    let mut client = ask_for(lines);
    wait_for_receivers(&mut server.client(), "b", 1);
    publish(
        &mut control,
        r#"{"channel":"b","formats":{"http-stream":{"content":"x"},"http-response":{"code":201,
        "headers":{"X-Own":"1","Mailbox-Open":"z"},"body":"new"}}}"#,
    );
    let answer = client.receive();
    assert_eq!((answer.status, answer.text()), (201, "new".to_owned()));
    assert_eq!(answer.field("x-own"), "1");
    assert_eq!(answer.header("mailbox-open"), None);
    // The connection goes on.
    client.get("/").assert_status(200);
    let mut waiting = ask_for("Grip-Hold: response; ;Grip-Channel: c; ;Grip-Timeout: 1");
    let answer = waiting.receive();
    assert_eq!((answer.status, answer.text()), (200, "nothing".to_owned()));
    let mut waiting = ask_for(
        "Grip-Hold: response; ;Grip-Channel: c; ;Grip-Timeout: 1; ;Grip-Status: 304; ;X-Own: 2",
    );
    let answer = waiting.receive();
    assert_eq!((answer.status, answer.field("x-own")), (304, "2"));
    let mut plain = ask_for(lines);
    wait_for_receivers(&mut server.client(), "a", 1);
    post(&mut control, "a", &[("Content-Type", "a/b")], "by request").assert_status(201);
    let answer = plain.receive();
    assert_eq!(
        (answer.field("content-type"), answer.text()),
        ("a/b", "by request".to_owned())
    );
}

#[test]
fn an_instruction_in_json_holds_too() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let lines = ["Content-Type: application/grip-instruct"];
    let instruct = r#"{"hold":{"mode":"stream","channels":[{"name":"a"}]},
        "response":{"headers":{"Content-Type":"text/plain"},"body":"first"}}"#;
    let instruct = instruct.replace('\n', " ");
    let (answer, mut client) = held(&server, &lines, &instruct, &[]);
    assert_eq!(answer.field("content-type"), "text/plain");
    assert_eq!(chunk(&mut client), "first");
    let only = r#"{"response":{"code":404,"body":"none"}}"#;
    let answer = ask(&server, &lines, only);
    assert_eq!((answer.status, answer.text()), (404, "none".to_owned()));
    ask(&server, &lines, "{").assert_status(502);
}

#[test]
fn what_is_not_supported_is_said() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let long = format!("Grip-Channel: {}", "c".repeat(201));
    for lines in [
        &["Grip-Hold: stream", "Grip-Channel: a; filter=no"][..],
        &["Grip-Hold: stream"],
        &["Grip-Hold: forever", "Grip-Channel: a"],
        &["Grip-Hold: stream", &long],
        &["Grip-Hold: stream", "Grip-Channel: a", "Grip-Status: 304"],
    ] {
        ask(&server, lines, "").assert_status(502);
        server.says("mailboxes: ");
    }
    let mut control = publisher(&server);
    let body = r#"{"items":[{"channel":"a","http-stream":{"action":"hint"}}]}"#;
    post(&mut control, "publish/", &[], body).assert_status(400);
    post(&mut server.client(), "publish/", &[], body).assert_status(403);
}

#[test]
fn other_filters_are_refused_by_name() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    for filter in ["build-id", "var-subst", "http-check", "http-modify"] {
        let channel = format!("Grip-Channel: a; filter={filter}");
        ask(&server, &["Grip-Hold: stream", &channel], "").assert_status(502);
        server.says(&format!("the filter `{filter}` is not supported"));
    }
}

/// Has clients with these headers hear `a`, publishes an item to it that has `meta` and then one that has none, and says which
/// of the clients have got the first one.
fn have_got(clients: &[&[&str]], meta: &str) -> Vec<bool> {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let mut clients: Vec<_> = clients
        .iter()
        .map(|lines| held(&server, &[&["Grip-Hold: stream"], *lines].concat(), "", &[]).1)
        .collect();
    let mut control = publisher(&server);
    let item = |meta: &str, content: &str| {
        format!(r#"{{"channel":"a","meta":{{{meta}}},"http-stream":{{"content":"{content}"}}}}"#)
    };
    publish(&mut control, &item(meta, "first"));
    publish(&mut control, &item("", "second"));
    let first = clients.iter_mut().map(|client| {
        let first = chunk(client);
        if first == "first" {
            assert_eq!(chunk(client), "second");
        }
        first == "first"
    });
    first.collect()
}

#[test]
fn skip_self_keeps_back_what_the_user_has_sent() {
    let filter = "Grip-Channel: a; filter=skip-self";
    let got = have_got(
        &[
            &[filter, "Grip-Set-Meta: user=\"alice\""],
            &[filter, "Grip-Set-Meta: user=bob"],
            &[filter],
            &["Grip-Channel: a", "Grip-Set-Meta: user=alice"],
        ],
        r#""sender":"alice""#,
    );
    assert_eq!(got, [false, true, true, true]);
}

#[test]
fn skip_users_keeps_back_what_is_not_for_the_user() {
    let filter = "Grip-Channel: b, a; filter=skip-users";
    let got = have_got(
        &[
            &[filter, "Grip-Set-Meta: user=alice"],
            &[filter, "Grip-Set-Meta: user=bob"],
            &[filter, "Grip-Set-Meta: user=carol"],
            &["Grip-Channel: a", "Grip-Set-Meta: user=alice"],
        ],
        r#""skip_users":"alice, bob""#,
    );
    assert_eq!(got, [false, false, true, true]);
}

#[test]
fn require_sub_keeps_back_what_is_for_those_who_listen_to_another_channel() {
    let got = have_got(
        &[
            &["Grip-Channel: a; filter=require-sub"],
            &["Grip-Channel: a; filter=require-sub, b c"],
            &["Grip-Channel: b c; filter=require-sub, a"],
            &["Grip-Channel: a"],
        ],
        r#""require_sub":"b c""#,
    );
    assert_eq!(got, [false, true, true, true]);
}

#[test]
fn filters_count_for_responses_and_for_the_end_of_streams() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let mut control = publisher(&server);
    let mut waiting = server.client();
    let lines =
        "Grip-Hold: response; ;Grip-Channel: a; filter=skip-self; ;Grip-Set-Meta: user=alice";
    waiting.send(head("GET", "/", &[("X-Say", lines)]));
    let instruct = r#"{"hold":{"mode":"stream","channels":[{"name":"a","filters":["skip-self"]}],"meta":{"user":"alice"}}}"#;
    let lines = ["Content-Type: application/grip-instruct"];
    let (_, mut stream) = held(&server, &lines, instruct, &[]);
    wait_for_receivers(&mut server.client(), "a", 2);
    for sender in ["alice", "bob"] {
        publish(
            &mut control,
            &format!(
                r#"{{"channel":"a","meta":{{"sender":"{sender}"}},"http-response":{{"body":"by {sender}"}},
                "http-stream":{{"action":"close"}}}}"#
            ),
        );
        if sender == "alice" {
            publish(
                &mut control,
                r#"{"channel":"a","http-stream":{"content":"goes on"}}"#,
            );
        }
    }
    assert_eq!(chunk(&mut stream), "goes on");
    stream.read_through(b"0\r\n\r\n");
    // What was said without meta data is for everybody.
    assert_eq!(waiting.receive().text(), "goes on");
}

#[test]
fn a_stream_without_content_is_refused() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let lines = ["Content-Type: application/grip-instruct"];
    for code in [204, 205, 304] {
        let instruct = format!(
            r#"{{"hold":{{"mode":"stream","channels":[{{"name":"a"}}]}},"response":{{"code":{code}}}}}"#
        );
        ask(&server, &lines, &instruct).assert_status(502);
    }
}

#[test]
fn a_repeated_channel_is_one() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let lines = [
        "Grip-Hold: stream",
        "Grip-Channel: a, b, a",
        "Grip-Channel: a",
    ];
    let (_, mut client) = held(&server, &lines, "", &[]);
    wait_for_receivers(&mut server.client(), "a", 1);
    let mut publisher = publisher(&server);
    post(&mut publisher, "a", &[], "once").assert_status(201);
    assert_eq!(chunk(&mut client), "once");
    post(&mut publisher, "a", &[], "again").assert_status(201);
    assert_eq!(chunk(&mut client), "again");
}

#[test]
fn a_message_closes_a_websocket() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let mut control = publisher(&server);
    for (close, expected) in [
        (r#""code":4000,"reason":"moved""#, &b"\x0f\xa0moved"[..]),
        (r#""id":"x""#, b"\x03\xe8"),
    ] {
        let mut socket = WebSocket::open(server.client(), "/m/a");
        publish(
            &mut control,
            &format!(
                r#"{{"channel":"a","formats":{{"ws-message":{{"action":"close",{close}}}}}}}"#
            ),
        );
        assert_eq!(socket.receive_frame(), (0x88, expected.to_vec()));
        socket.send_close(1000);
        socket.assert_closed();
    }
}

#[test]
fn only_the_control_endpoint_publishes_items() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let mut control = publisher(&server);
    let item = r#"{"items":[{"channel":"-","http-response":{"code":500}}]}"#;
    for media_type in ["application/grip-item", "Application/GRIP-item ; a=b"] {
        let headers = [("Content-Type", media_type)];
        post(&mut control, "a", &headers, item).assert_status(400);
        let line = format!("Content-Type: {media_type}");
        ask(&server, &["Mailbox-Deliver: a", &line], item).assert_status(502);
    }
}

#[test]
fn applications_get_a_signature() {
    let (backend, tree) = (Scripted::tcp(obedient), Tree::new());
    let server = start(&backend, &keys(&tree));
    server
        .get_with("/", &[("Grip-Sig", "evil")])
        .assert_status(200);
    let request = backend.request();
    let token = request.field("grip-sig").expect("a signature").to_owned();
    assert_eq!(token.split('.').count(), 3);
    let unused = launch(&backend, "http", &keys(&tree), "").start();
    unused.get("/").assert_status(200);
    assert_eq!(backend.requests()[1].field("grip-sig"), None);
}

fn publish_by(server: &Server, to: &str, channel: &str, body: &str) {
    let mut client = server.client();
    let control = format!("http://{}/m", server.address());
    let target = format!("/grip?control={control}&to={to}&channel={channel}");
    let length = body.len().to_string();
    client.send(head("POST", &target, &[("Content-Length", &length)]) + body);
    let answer = client.receive();
    assert_eq!(
        (answer.status, answer.text()),
        (200, "published".to_owned())
    );
}

/// An application whose library of GRIP is as its authors have made it.
fn holds_and_publishes(app: &App) {
    let tree = Tree::new();
    let used = super::in_band::USED;
    let server = super::in_band::launch_at(app.address(), "http", &keys(&tree), used).start();
    let mut stream = server.client();
    stream.send(head(
        "GET",
        "/grip?hold=stream&channel=one&channel=t%20w",
        &[],
    ));
    stream.receive_head().expect("a header").assert_status(200);
    assert_eq!(chunk(&mut stream), "held\n");
    wait_for_receivers(&mut server.client(), "t=20w", 1);
    publish_by(&server, "stream", "t%20w", "hello\n");
    stream.read_through(b"hello\n\r\n");
    stream.read_through(b"alive\n\r\n");
    let mut poll = server.client();
    poll.send(head("GET", "/grip?hold=response&channel=r&timeout=30", &[]));
    wait_for_receivers(&mut server.client(), "r", 1);
    publish_by(&server, "response", "r", "new");
    assert_eq!(poll.receive().text(), "new");
    let over = server.get("/grip?hold=response&channel=r&timeout=1");
    assert_eq!((over.status, over.text()), (200, "nothing new".to_owned()));
    // Without the server before it, the application does not hold.
    app.client()
        .get("/grip?hold=stream&channel=one")
        .assert_status(501);
}

/// django-grip, gripcontrol and pubcontrol.
#[test]
fn django_grip_holds_and_publishes() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python");
    assert!(packages.is_dir(), "`cargo xtask test` installs packages");
    holds_and_publishes(&App::gunicorn());
}

/// Its `Channel.filters`, `meta` of an instruction and of an item.
#[test]
fn django_grip_filters() {
    let app = App::gunicorn();
    let tree = Tree::new();
    let used = super::in_band::USED;
    let server = super::in_band::launch_at(app.address(), "http", &keys(&tree), used).start();
    let mut streams = ["alice", "bob"].map(|user| {
        let mut client = server.client();
        let target = format!("/grip?hold=stream&channel=a&filter=skip-self&user={user}");
        client.send(head("GET", &target, &[]));
        client.receive_head().expect("a header").assert_status(200);
        assert_eq!(chunk(&mut client), "held\n");
        client
    });
    publish_by(&server, "stream", "a&sender=alice", "by alice\n");
    publish_by(&server, "stream", "a&sender=bob", "by bob\n");
    streams[0].read_through(b"by bob\n\r\n");
    streams[1].read_through(b"by alice\n\r\n");
}

/// serve-grip, which has followed express-grip.
#[test]
fn express_with_serve_grip_holds_and_publishes() {
    holds_and_publishes(&App::express());
}
