//! Tokens that say which boxes their owner may use.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Events, KEY, post};
use crate::support::{Launch, Server, Tree};

/// The value of Authorization for a token with these claims, which is valid until 2100.
fn token(claims: &str) -> String {
    format!("Bearer {}", token_until(4_102_444_800, claims))
}

/// A token that ends at `end_s`, in seconds since 1970.
fn token_until(end_s: u64, claims: &str) -> String {
    let part = |json: &str| BASE64_URL_SAFE_NO_PAD.encode(json);
    let claims = part(&format!("{{\"exp\":{end_s},{claims}}}"));
    let signed = format!("{}.{claims}", part("{\"alg\":\"HS256\"}"));
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    let signature = BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
    format!("{signed}.{signature}")
}

/// A server whose clients need a token that names boxes, also in the cookie `t`.
fn start(tree: &Tree) -> Server {
    let path = tree.file("key", format!("{KEY}\n")).display().to_string();
    Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[mailbox]]\nname = \"m\"\nclaim = \"boxes\"\n\
         [[site]]\nrespond = {{}}\n[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n\
         jwt = {{ secret_file = \"{path}\", cookie = \"t\" }}\n"
    ))
    .start()
}

#[test]
fn a_token_names_the_boxes() {
    let tree = Tree::new();
    let server = start(&tree);
    let token = token(r#""boxes":{"subscribe":["room-*"],"publish":["room-1"]}"#);
    let with_token = [("Authorization", &*token)];
    let mut client = server.client();
    post(&mut client, "room-1", &[], "x").assert_status(401);
    let mut client = server.client();
    post(&mut client, "room-1", &with_token, "x").assert_status(202);
    let refused = post(&mut client, "room-2", &with_token, "x");
    refused.assert_status(403);
    let text = refused.text();
    assert!(
        text.contains("the token does not permit to publish"),
        "{text}"
    );
    server.get_with("/m/room-1", &with_token).assert_status(200);
    server.get_with("/m/room-2", &with_token).assert_status(404);
    server.get_with("/m/other", &with_token).assert_status(403);
    server.get_with("/m/?list", &with_token).assert_status(403);
    let without = self::token("\"sub\":\"ann\"");
    for path in ["/m/room-1", "/m/room-1?info"] {
        let answer = server.get_with(path, &[("Authorization", &*without)]);
        answer.assert_status(403);
    }
}

/// A browser sends the cookie with what a page of any origin sends.
#[test]
fn a_cookie_publishes_for_pages_of_the_same_host_only() {
    let tree = Tree::new();
    let server = start(&tree);
    let end_s = 4_102_444_800;
    let cookie = format!("t={}", token_until(end_s, r#""boxes":{"publish":["a"]}"#));
    let own = "http://localhost";
    let mut client = server.client();
    for (origin, status) in [(own, 202), ("https://other.example", 403), ("null", 403)] {
        let headers = [("Cookie", &*cookie), ("Origin", origin)];
        post(&mut client, "a", &headers, "x").assert_status(status);
    }
    post(&mut client, "a", &[("Cookie", &cookie)], "x").assert_status(202);
}

#[test]
fn a_receiver_leaves_when_its_token_ends() {
    const LEEWAY_S: u64 = 30;
    let tree = Tree::new();
    let server = start(&tree);
    let now = || UNIX_EPOCH.elapsed().expect("a time after 1970");
    let end_s = now().as_secs() + 2;
    let token = token_until(end_s - LEEWAY_S, r#""boxes":{"subscribe":["a"]}"#);
    let authorization = format!("Bearer {token}");
    let mut events = Events::new(&server, "a", &[("Authorization", &authorization)]);
    assert_eq!(events.next(), None);
    assert!(now() >= Duration::from_secs(end_s));
    let headers = [("Authorization", &*authorization)];
    server.get_with("/m/a", &headers).assert_status(401);
}
