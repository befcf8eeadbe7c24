//! Fragmented, pipelined and slow requests.

use std::rc::Rc;

use super::exchange;
use crate::message::request::Request;
use crate::rig::Rig;

const FILE: &str = "GET /file HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\n\r\n";
const LAST: &str = "GET /other HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn rig() -> Rig {
    Rig::with_files("", &[("file", "content"), ("other", "something else")])
}

/// The response to `request` on a connection of its own, which the client closes.
async fn single_response(rig: &Rig, request: &str) -> String {
    let mut client = rig.client(4096);
    client.send(request).await;
    let response = client.until("content").await;
    client.close().await;
    response
}

/// Sends `requests` in two parts, cut at each byte from `from` on. The responses must not differ.
fn cut_anywhere(rig: &Rig, requests: &str, from: usize) {
    rig.run(async {
        let whole = rig.ask(requests).await;
        for cut in from..requests.len() {
            let mut client = rig.client(4096);
            client.send(&requests[..cut]).await;
            let mut responses = client.arrived().await;
            client.send(&requests[cut..]).await;
            responses += &client.rest().await;
            assert_eq!(responses, whole, "cut at byte {cut}");
            client.close().await;
        }
    });
    rig.assert_idle();
}

#[test]
fn a_request_may_be_cut_anywhere() {
    let rig = rig();
    cut_anywhere(&rig, LAST, 1);
    let whole = rig.run(rig.ask(LAST));
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with("something else"));
}

#[test]
fn a_header_may_arrive_byte_by_byte() {
    let rig = rig();
    rig.run(async {
        let whole = rig.ask(LAST).await;
        let mut client = rig.client(4096);
        for byte in LAST.as_bytes() {
            assert_eq!(client.arrived().await, "");
            client.send([*byte]).await;
        }
        assert_eq!(client.rest().await, whole);
        client.close().await;
    });
    rig.assert_idle();
}

#[test]
fn a_pipelined_request_may_be_cut_anywhere() {
    let rig = rig();
    let both = format!("{FILE}{LAST}");
    cut_anywhere(&rig, &both, FILE.len());
    rig.run(async {
        let (first, second) = (single_response(&rig, FILE).await, rig.ask(LAST).await);
        assert_eq!(rig.ask(&both).await, first + &second);
    });
}

#[test]
fn an_empty_line_between_requests_is_ignored() {
    let rig = rig();
    rig.run(async {
        let whole = rig.ask(format!("{FILE}{LAST}")).await;
        assert_eq!(rig.ask(format!("{FILE}\r\n{LAST}")).await, whole);
        let mut client = rig.client(4096);
        client.send("\r\n").await;
        rig.pass_seconds(5).await;
        client.end_output();
        assert_eq!(client.rest().await, "");
        client.served().await;
    });
    rig.assert_idle();
}

/// A body that no handler reads is dropped, with any framing, and cut anywhere.
#[test]
fn a_body_for_a_file_is_dropped() {
    let rig = rig();
    let get = "GET /file HTTP/1.1\r\nHost: a\r\n";
    let length = format!("{get}Content-Length: 5\r\n\r\nGET /");
    let chunks = format!("{get}Transfer-Encoding: chunked\r\n\r\n3\r\nGET\r\n2\r\n /\r\n0\r\n\r\n");
    for request in [length, chunks] {
        let both = format!("{request}{LAST}");
        cut_anywhere(&rig, &both, get.len());
        rig.run(async {
            let (first, second) = (single_response(&rig, FILE).await, rig.ask(LAST).await);
            assert_eq!(rig.ask(&both).await, first + &second);
        });
    }
}

#[test]
fn a_body_that_is_refused_is_dropped_too() {
    let rig = rig();
    let request = "PUT /file HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /";
    let both = format!("{request}{LAST}");
    cut_anywhere(&rig, &both, request.len() - 5);
    let responses = rig.run(rig.ask(&both));
    assert!(responses.starts_with("HTTP/1.1 405 "), "{responses}");
    assert!(responses.ends_with("something else"), "{responses}");
}

#[test]
fn a_body_that_is_too_large_ends_the_connection() {
    let rig = Rig::new("[limits]\nbody_bytes = \"4B\"\n");
    let length = "GET /file HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let chunks = "GET /file HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345";
    for request in [length, chunks] {
        let response = rig.run(async {
            let mut client = rig.client(4096);
            client.send(request).await;
            let response = client.rest().await;
            client.close().await;
            response
        });
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
        assert!(response.contains("Connection: close\r\n"), "{response}");
    }
    rig.assert_idle();
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let rig = rig();
    rig.run(async {
        let plain = single_response(&rig, FILE).await;
        let mut client = rig.client(4096);
        let head =
            "GET /file HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        client.send(head).await;
        let interim = client.arrived().await;
        assert_eq!(interim, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("body").await;
        assert_eq!(client.until("content").await, plain);
        client.close().await;
    });
    rig.assert_idle();
}

/// Without 100 (Continue), the bytes after the header may be body or request. The connection closes, and they are not
/// parsed.
#[test]
fn a_refused_request_gets_no_100_continue() {
    let rig = rig();
    rig.run(async {
        let mut client = rig.client(4096);
        let head =
            "PUT /file HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        client.send(head).await;
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
        assert!(response.contains("Connection: close\r\n"), "{response}");
        client.send(LAST).await;
        client.end_output();
        assert_eq!(client.rest().await, "");
        client.served().await;
    });
    rig.assert_idle();
}

#[test]
fn http_1_0_keeps_a_connection_only_if_asked_to() {
    let rig = rig();
    rig.run(async {
        let response = rig.ask("GET /file HTTP/1.0\r\n\r\n").await;
        assert!(response.contains("Connection: close\r\n"), "{response}");
        let mut client = rig.client(4096);
        client
            .send("GET /file HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            .await;
        let kept = client.until("content").await;
        assert!(kept.contains("Connection: keep-alive\r\n"), "{kept}");
        client.send("GET /file HTTP/1.0\r\n\r\n").await;
        assert_eq!(client.rest().await, response);
        client.close().await;
    });
    rig.assert_idle();
}

#[test]
fn a_header_has_a_time_out() {
    let rig = rig();
    rig.run(async {
        for cut in [1, FILE.len() / 2, FILE.len() - 1] {
            let mut client = rig.client(4096);
            client.send(&FILE[..cut]).await;
            rig.pass_seconds(9).await;
            assert_eq!(client.arrived().await, "");
            rig.pass_seconds(11).await;
            let response = client.rest().await;
            assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
            client.served().await;
        }
    });
    rig.assert_idle();
}

#[test]
fn a_body_has_a_time_out() {
    let rig = rig();
    rig.run(async {
        let mut client = rig.client(4096);
        client
            .send("GET /file HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbod")
            .await;
        rig.pass_seconds(29).await;
        assert_eq!(client.arrived().await, "");
        rig.pass_seconds(31).await;
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
        client.close().await;
    });
    rig.assert_idle();
}

/// An idle connection is closed without a response: `header_timeout` after it was accepted, `idle_timeout` after the
/// last response.
#[test]
fn an_idle_connection_is_closed() {
    let rig = rig();
    rig.run(async {
        for (first, before, after) in [("", 9, 11), (FILE, 74, 76)] {
            let mut client = rig.client(4096);
            client.send(first).await;
            if !first.is_empty() {
                client.until("content").await;
            }
            rig.pass_seconds(before).await;
            assert!(!client.is_served());
            rig.pass_seconds(after).await;
            assert_eq!(client.rest().await, "");
            client.served().await;
        }
    });
    rig.assert_idle();
}

/// A client may close or half-close the connection after any byte of its request. All resources are released.
#[test]
fn a_client_may_disconnect_within_a_request() {
    let rig = rig();
    let body = "GET /file HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n1234";
    rig.run(async {
        for request in [FILE, body] {
            for cut in 0..request.len() {
                for is_half_closed in [true, false] {
                    let mut client = rig.client(4096);
                    client.send(&request[..cut]).await;
                    client.arrived().await;
                    if is_half_closed {
                        client.end_output();
                        client.served().await;
                    } else {
                        client.close().await;
                    }
                }
            }
        }
    });
    rig.assert_idle();
}

/// Empty lines are dropped between requests (RFC 9112, 2.2), but not within a body.
#[test]
fn empty_lines_may_be_a_body() {
    let rig = rig();
    let empty_lines = "\r\n\r\n\r\n\r\n";
    let post = "GET /file HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n";
    cut_anywhere(&rig, &format!("{post}{empty_lines}{LAST}"), post.len());
    let responses = rig.run(rig.ask(format!("{post}{empty_lines}{LAST}")));
    assert!(responses.ends_with("something else"), "{responses}");
}

#[test]
fn an_empty_line_after_a_body_begins_no_request() {
    let rig = rig();
    rig.run(async {
        let mut client = rig.client(4096);
        let request = "GET /file HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\r\n";
        client.send(request).await;
        client.until("content").await;
        rig.pass_seconds(74).await;
        assert!(!client.is_served());
        rig.pass_seconds(76).await;
        assert_eq!(client.rest().await, "");
        client.served().await;
    });
    rig.assert_idle();
}

/// The future of each request is on the heap. State that few requests need belongs in a box of its own, except what a request
/// has taken from rate limits: that would be an allocation for each request.
#[test]
fn the_future_of_an_exchange_stays_small() {
    const BYTES_MAX: usize = 2520;
    let rig = rig();
    rig.run(async {
        let (_client, conn) = rig.conn(64);
        let conn = Rc::new(conn);
        let mut request = Request::default();
        let arrival = conn.arrival();
        let bytes = size_of_val(&exchange(&rig.worker, &conn, &mut request, arrival));
        assert!(bytes <= BYTES_MAX, "it has {bytes} bytes");
    });
}
