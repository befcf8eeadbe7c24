//! Tokens that say which boxes their owner may use.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{KEY, post};
use crate::support::{Launch, Tree};

/// A token with these claims, which is valid until 2100.
fn token(claims: &str) -> String {
    let part = |json: &str| BASE64_URL_SAFE_NO_PAD.encode(json);
    let claims = part(&format!("{{\"exp\":4102444800,{claims}}}"));
    let signed = format!("{}.{claims}", part("{\"alg\":\"HS256\"}"));
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    let signature = BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
    format!("Bearer {signed}.{signature}")
}

#[test]
fn a_token_names_the_boxes() {
    let tree = Tree::new();
    tree.file("key", format!("{KEY}\n"));
    let path = tree.at("key").display().to_string();
    let server = Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[mailbox]]\nname = \"m\"\nclaim = \"boxes\"\n\
         [[site]]\nrespond = {{}}\n[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n\
         jwt = {{ secret_file = \"{path}\" }}\n"
    ))
    .start();
    let token = token(r#""boxes":{"subscribe":["room-*"],"publish":["room-1"]}"#);
    let with_token = [("Authorization", &*token)];
    let mut client = server.client();
    post(&mut client, "room-1", &[], "x").assert_status(401);
    let mut client = server.client();
    post(&mut client, "room-1", &with_token, "x").assert_status(202);
    post(&mut client, "room-2", &with_token, "x").assert_status(403);
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
