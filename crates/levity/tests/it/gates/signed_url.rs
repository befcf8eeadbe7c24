//! `signed_url`.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha2::Sha256;

use crate::support::{Client, Launch, Server, Tree, settle};

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// A server whose site has a file `film/a b.txt` and these keys.
fn started(tree: &Tree, keys: &str) -> Server {
    tree.file("www/film/a b.txt", "content");
    tree.file("www/film/a b.txt.gz", "compressed");
    tree.file("key", format!("{KEY}\nnot this line\n"));
    settle();
    let keys = keys.replace("{key}", &tree.at("key").display().to_string());
    let listen = "[server]\ntrusted_proxies = [\"127.0.0.1\"]";
    let keys = format!("listing = true\nprecompressed = [\"gzip\"]\n{keys}");
    Launch::site(&tree.at("www"), listen, &keys).start()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

fn hmac(text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).expect("a key");
    mac.update(text.as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
}

#[test]
fn a_signed_url_is_good_until_it_expires() {
    let tree = Tree::new();
    let server = started(
        &tree,
        "signed_url = { secret_file = \"{key}\" }\n\
         [[site.route]]\npath = \"/open/*\"\nsigned_url = false\n\
         [[site.route]]\npath = \"/moved\"\nredirect = { to = \"/\" }",
    );
    let mut client = server.client();
    let signed = |path: &str, expires: u64| {
        let signature = hmac(&format!("{path}?expires={expires}"));
        format!(
            "{}?expires={expires}&signature={signature}",
            path.replace(' ', "%20")
        )
    };
    let good = signed("/film/a b.txt", now() + 1000);
    let answer = client.get(&good);
    assert_eq!(answer.text(), "content");
    let etag = answer.field("etag").to_owned();
    client
        .get(&good.replace("film", "f%69lm"))
        .assert_status(200);
    client.head(&good).assert_status(200);
    client
        .get_with(&good, &[("Range", "bytes=0-1")])
        .assert_status(206);
    client
        .get(&signed("/film/a b.txt", now() - 2))
        .assert_status(410);
    client
        .get(&signed("/moved", now() + 1000))
        .assert_status(302);
    for target in [
        "/film/a%20b.txt",
        "/film/",
        "/absent",
        "/moved",
        &good.replace("a%20b.txt", "a%20b.txt.gz"),
        &good.replace("expires=", "expires=9"),
        &good[..good.len() - 1],
    ] {
        for headers in [
            &[][..],
            &[("If-None-Match", &*etag)],
            &[("Range", "bytes=0-1")],
        ] {
            assert_eq!(client.get_with(target, headers).status, 403, "{target}");
        }
    }
    client.get("/open/a").assert_status(404);
}

/// The signature is about the URL that the client was given, and the gate stands at both locations.
#[test]
fn a_signed_url_may_be_rewritten() {
    let tree = Tree::new();
    let server = started(
        &tree,
        "signed_url = { secret_file = \"{key}\" }\n\
         [[site.route]]\npath = \"/watch/*\"\nreroute = \"/film/{rest}.txt\"",
    );
    let mut client = server.client();
    let expires = now() + 1000;
    let signed = |path: &str, of: &str| {
        let signature = hmac(&format!("{of}?expires={expires}"));
        format!("{path}?expires={expires}&signature={signature}")
    };
    let sent = client.get(&signed("/watch/a%20b", "/watch/a b"));
    assert_eq!((sent.status, sent.text().as_str()), (200, "content"));
    client
        .get(&signed("/watch/a%20b", "/film/a b.txt"))
        .assert_status(403);
    client.get("/watch/a%20b").assert_status(403);
}

#[test]
fn a_url_may_be_that_of_one_client() {
    let tree = Tree::new();
    let server = started(
        &tree,
        "signed_url = { secret_file = \"{key}\", client = true, signature = \"s\", expires = \"e\" }",
    );
    let mut client = server.client();
    let expires = now() + 1000;
    let signature = hmac(&format!("/film/?e={expires}\n192.0.2.7"));
    let target = format!("/film/?e={expires}&s={signature}");
    let status = |client: &mut Client, from| {
        client
            .get_with(&target, &[("X-Forwarded-For", from)])
            .status
    };
    assert_eq!(status(&mut client, "192.0.2.7"), 200);
    assert_eq!(status(&mut client, "192.0.2.8"), 403);
}

/// The example of nginx's documentation.
#[test]
fn urls_for_nginx_are_good_here() {
    let tree = Tree::new();
    let server = started(
        &tree,
        "signed_url = { secret = \"secret\", md5 = \"{expires}{path}{client} {secret}\", signature = \"md5\" }",
    );
    let mut client = server.client();
    let target = |path: &str, expires: u64| {
        let hash = Md5::digest(format!("{expires}{path}127.0.0.1 secret"));
        let path = path.replace(' ', "%20");
        format!(
            "{path}?md5={}&expires={expires}",
            BASE64_URL_SAFE_NO_PAD.encode(hash)
        )
    };
    let later = now() + 1000;
    assert_eq!(
        client.get(&target("/film/a b.txt", later)).text(),
        "content"
    );
    client
        .get(&target("/film/a b.txt", now() - 2))
        .assert_status(410);
    let good = target("/film/a b.txt", later);
    for wrong in [
        "/film/a%20b.txt",
        &good.replace("b.txt", "c.txt"),
        &good.replace("expires=", "expires=1"),
    ] {
        assert_eq!(client.get(wrong).status, 403, "{wrong}");
    }
}
