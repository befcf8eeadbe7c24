//! Gates: who may use a site or route.

mod access;
mod basic_auth;
mod forward_auth;
#[cfg(feature = "tls")]
mod jwt;
mod signed_url;

use crate::support::scripted::Scripted;
use crate::support::{Launch, Tree, settle, wait_until};

/// Each gate refuses one request, and lets nothing else count.
#[test]
fn denials_are_counted() {
    let tree = Tree::new();
    tree.file("secret", "0123456789abcdef0123456789abcdef\n");
    tree.file(
        "users",
        "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n",
    );
    settle();
    let portal = Scripted::tcp(|conn| {
        while conn.read_request().is_some() && conn.answer("401 Unauthorized", "") {}
    });
    let at = |name| tree.at(name).display().to_string();
    let (secret, users) = (at("secret"), at("users"));
    let routes = [
        ("access", "deny = [\"all\"]".to_owned()),
        (
            "signed_url",
            format!("signed_url = {{ secret_file = \"{secret}\" }}"),
        ),
        #[cfg(feature = "tls")]
        ("jwt", format!("jwt = {{ secret_file = \"{secret}\" }}")),
        (
            "basic_auth",
            format!("basic_auth = {{ users = \"{users}\" }}"),
        ),
        (
            "forward_auth",
            "forward_auth = { upstream = \"auth\", path = \"/\" }".to_owned(),
        ),
    ];
    let tables = routes
        .iter()
        .map(|(gate, keys)| format!("[[site.route]]\npath = \"/{gate}\"\n{keys}\n"));
    let server = Launch::run(&format!(
        "[admin]\nlisten = \"unix:{{own}}/admin\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"auth\"\nto = [\"{}\"]\n[[site]]\nrespond = {{}}\n{}",
        portal.address(),
        tables.collect::<String>()
    ))
    .start();
    server.get("/open").assert_status(200);
    for (number, (gate, _)) in (1..).zip(&routes) {
        let status = server.get(&format!("/{gate}")).status;
        assert!((400..500).contains(&status), "{gate}: {status}");
        let metrics = || server.metrics(&server.own("admin"));
        wait_until("it is counted", || {
            let series = format!("levity_gate_denied_total{{gate=\"{gate}\"}}");
            metrics().sum(&series) == 1.0
        });
        assert_eq!(
            metrics().sum("levity_gate_denied_total"),
            f64::from(number),
            "{gate}"
        );
    }
}
