//! One connection over HTTP/2 whose streams have much computed at the same time: others get their turn meanwhile.

use std::process::Command;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use serde_json::json;

use crate::support::{Client, Launch, Metrics, Server, Tree, wait_until};

/// No poll may use as many seconds of processor time. A bound of the histogram; what is meant is 1.5 ms.
const POLL_MAX: f64 = 0.002;

const TABLES: &str = "[server]\nworkers = 1\n[admin]\nlisten = \"unix:{own}/admin\"\n";

fn long_polls(server: &Server) -> f64 {
    let scraped = Client::unix(&server.own("admin")).get("/metrics").text();
    Metrics::parse(&scraped).above("levity_loop_hog_seconds", POLL_MAX)
}

/// Requests `target` three hundred times, a hundred at a time, until no poll was long meanwhile: what the server does itself
/// comes again, the interrupts of a busy machine do not. Every response has `class` as its status.
#[track_caller]
fn assert_no_long_poll(server: &Server, target: &str, class: &str, header: &str) {
    let url = format!("http://{}{target}", server.address());
    wait_until("a round without a long poll", || {
        let before = long_polls(server);
        let mut load = Command::new("timeout");
        load.args(["60", "h2load", "-n", "300", "-c", "1", "-m", "100"]);
        load.args(["-H", header, &url]);
        let output = load.output().expect("h2load");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("300 {class}")), "{said}");
        long_polls(server) == before
    });
}

/// Archives and listings of many files.
#[test]
fn archives_and_listings() {
    let tree = Tree::new();
    for number in 0..300 {
        tree.file(
            format!("many/{number:03}{}", "\"".repeat(100)),
            [b'x'; 1000],
        );
    }
    let keys = "listing = true\nlisting_archive = [\"tar\", \"zip\"]\n";
    let server = Launch::site(tree.path(), TABLES, keys).start();
    for target in ["/many/?archive=tar", "/many/?archive=zip", "/many/"] {
        assert_no_long_poll(&server, target, "2xx", "x: y");
    }
}

/// Tokens that name no key, whose signature fits none of four large ones.
#[test]
fn signatures_of_tokens() {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    // Whether such a number is a product of primes is not asked where it verifies.
    let moduli = (0..4_u8).map(|number| [[0xc1; 511].as_slice(), &[2 * number + 1]].concat());
    let keys = moduli.map(|n| json!({"kty": "RSA", "e": "AQAB", "n": encode(&n)}));
    let tree = Tree::new();
    let set = json!({"keys": keys.collect::<Vec<_>>()});
    tree.file("keys", set.to_string());
    tree.file("www/file", "content");
    let keys = format!("jwt = {{ keys = {:?} }}", tree.at("keys"));
    let server = Launch::site(&tree.at("www"), TABLES, &keys).start();
    let parts = [
        br#"{"alg":"RS256"}"#.as_slice(),
        br#"{"exp":4102444800}"#,
        &[1; 512],
    ];
    let token = parts.map(encode).join(".");
    let header = format!("authorization: Bearer {token}");
    assert_no_long_poll(&server, "/file", "4xx", &header);
    wait_until("the pool has verified them", || {
        let scraped = Client::unix(&server.own("admin")).get("/metrics").text();
        Metrics::parse(&scraped).sum("levity_compute_run_seconds_count") >= 300.0
    });
}
