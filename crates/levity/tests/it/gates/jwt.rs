//! `jwt`.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::support::scripted::{Scripted, fastcgi};
use crate::support::{Launch, Server, Tree, settle, started_in_front_of};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn token(secret: &str, header: &str, claims: &str) -> String {
    let [header, claims] = [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
    let signed = format!("{header}.{claims}");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    let signature = BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
    format!("{signed}.{signature}")
}

const HS256: &str = r#"{"alg":"HS256"}"#;

/// In 2100.
const CLAIMS: &str = r#"{"sub":"ann","exp":4102444800}"#;

fn right() -> String {
    token(SECRET, HS256, CLAIMS)
}

/// A folder with a secret and a file.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("secret", format!("{SECRET}\n"));
    tree.file("www/a.txt", "content");
    settle();
    tree
}

fn started(tree: &Tree, tables: &str, keys: &str) -> Server {
    let secret = tree.at("secret").display().to_string();
    Launch::site(&tree.at("www"), tables, &keys.replace("{secret}", &secret)).start()
}

#[test]
fn a_valid_token_lets_in() {
    let tree = tree();
    let server = started(
        &tree,
        "[log]\naccess = \"{own}/log\"",
        "jwt = { secret_file = \"{secret}\" }\n\
         [[site.route]]\npath = \"/moved\"\nredirect = { to = \"/\" }\n\
         [[site.route]]\npath = \"/open\"\njwt = false\nrespond = {}",
    );
    let mut client = server.client();
    let bearer = |token: &str| format!("Bearer {token}");
    let good = bearer(&right());
    let answer = client.get_with("/a.txt", &[("Authorization", &good)]);
    assert_eq!(answer.text(), "content");
    let etag = answer.field("etag").to_owned();
    client
        .get_with("/moved", &[("Authorization", &good)])
        .assert_status(302);
    client.get("/open").assert_status(200);
    let missing = client.get("/a.txt");
    missing.assert_status(401);
    assert_eq!(
        missing.field("www-authenticate"),
        "Bearer realm=\"Restricted\""
    );
    client
        .get_with("/a.txt", &[("If-None-Match", &etag)])
        .assert_status(401);
    client.get("/moved").assert_status(401);
    for wrong in [
        token("another secret of thirty-two bytes", HS256, CLAIMS),
        token(SECRET, HS256, r#"{"sub":"ann"}"#),
        token(SECRET, HS256, r#"{"exp":1000000000}"#),
        token(SECRET, HS256, r#"{"exp":4102444800,"nbf":4000000000}"#),
        token(SECRET, HS256, r#"{"exp":4102444800,"aud":"other"}"#),
        token(SECRET, r#"{"alg":"none"}"#, CLAIMS),
        token(SECRET, r#"{"alg":"RS256"}"#, CLAIMS),
        format!("{}.", right().rsplit_once('.').expect("a token").0),
        "x".to_owned(),
    ] {
        let answer = client.get_with("/a.txt", &[("Authorization", &bearer(&wrong))]);
        assert_eq!(answer.status, 401, "{wrong}");
        assert!(
            answer
                .field("www-authenticate")
                .ends_with("error=\"invalid_token\"")
        );
    }
    // A cookie and a parameter count only where they are configured.
    let cookie = format!("token={}", right());
    client
        .get_with("/a.txt", &[("Cookie", &cookie)])
        .assert_status(401);
    client
        .get(&format!("/a.txt?token={}", right()))
        .assert_status(401);
    let log = || std::fs::read_to_string(server.own("log")).unwrap_or_default();
    crate::support::wait_until("a line", || log().contains("- ann ["));
}

#[test]
fn a_token_may_be_in_a_cookie_or_in_the_query() {
    let tree = tree();
    let server = started(
        &tree,
        "",
        "jwt = { secret_file = \"{secret}\", cookie = \"token\", query = \"t\", issuer = \"i\", audience = [\"a\", \"b\"] }",
    );
    let mut client = server.client();
    let claims = r#"{"exp":4102444800,"iss":"i","aud":["x","b"]}"#;
    let good = token(SECRET, HS256, claims);
    let cookie = format!("a=b; token={good}; c=d");
    assert_eq!(
        client.get_with("/a.txt", &[("Cookie", &cookie)]).text(),
        "content"
    );
    assert_eq!(
        client.get(&format!("/a.txt?a=b&t={good}")).text(),
        "content"
    );
    // A header that is wrong is not made good by a cookie that is right.
    let both = [("Cookie", &*cookie), ("Authorization", "Bearer x")];
    client.get_with("/a.txt", &both).assert_status(401);
    for other in [
        r#"{"exp":4102444800,"iss":"i","aud":"x"}"#,
        r#"{"exp":4102444800,"aud":"a"}"#,
    ] {
        let wrong = token(SECRET, HS256, other);
        client.get(&format!("/a.txt?t={wrong}")).assert_status(401);
    }
}

#[test]
fn applications_learn_the_subject() {
    let tree = tree();
    let cgi = Scripted::unix(|conn| {
        while conn.read_fastcgi().is_some() {
            conn.send(fastcgi::answer("A: b\n\n"));
        }
    });
    let keys = format!(
        "jwt = {{ secret_file = \"{}\" }}\n",
        tree.at("secret").display()
    );
    let server = started_in_front_of(cgi.address(), "fastcgi", &Tree::new(), &keys);
    let authorization = format!("Bearer {}", right());
    server
        .get_with("/", &[("Authorization", &authorization)])
        .assert_status(200);
    let request = cgi.request();
    assert_eq!(request.field("REMOTE_USER"), Some("ann"));
    assert_eq!(request.field("HTTP_AUTHORIZATION"), Some(&*authorization));
}
