//! Dynamic updates of real servers: `named` of BIND, and `knotd`.

#[path = "dns/server.rs"]
mod server;

use levity_acme::dns::{Algorithm, Dns, TsigKey, Update};
use server::{Kind, Server};

/// A name in the zone of the servers.
const NAME: &str = "_acme-challenge.example.org";

fn dns(server: &Server, key: Option<TsigKey>) -> Dns {
    with_zone(server, key, None)
}

fn with_zone(server: &Server, key: Option<TsigKey>, zone: Option<&str>) -> Dns {
    Dns::Update(Update {
        server: server.address,
        zone: zone.map(str::to_owned),
        key,
        ttl: 60,
    })
}

/// Runs a test with each kind of server.
fn with_each(test: impl AsyncFn(Server)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for kind in [Kind::Bind, Kind::Knot] {
        eprintln!("{kind:?}");
        runtime.block_on(test(Server::start(kind)));
    }
}

#[track_caller]
fn assert_problem(result: Result<(), String>, server: &Server, rest: &str) {
    let problem = result.unwrap_err();
    let start = format!("the DNS server {} {rest}", server.address);
    assert!(problem.starts_with(&start), "{problem}");
}

#[test]
fn values_come_and_go() {
    with_each(async |server| {
        let dns = dns(&server, Some(server.key("sha256")));
        dns.set(NAME, "first").await.unwrap();
        assert_eq!(server.values(NAME), ["first"]);
        // That of the name and that of its wildcard.
        dns.set(NAME, "second").await.unwrap();
        assert_eq!(server.values(NAME), ["first", "second"]);
        dns.set(NAME, "second").await.unwrap();
        dns.remove(NAME, "first").await.unwrap();
        assert_eq!(server.values(NAME), ["second"]);
        dns.remove(NAME, "first").await.unwrap();
        dns.remove(NAME, "second").await.unwrap();
        assert!(server.values(NAME).is_empty());
    });
}

#[test]
fn each_algorithm() {
    with_each(async |server| {
        for (key, algorithm) in [
            ("sha256", Algorithm::HmacSha256),
            ("sha384", Algorithm::HmacSha384),
            ("sha512", Algorithm::HmacSha512),
        ] {
            let key = server.key(key);
            assert_eq!(key.algorithm, algorithm);
            dns(&server, Some(key)).set(NAME, "value").await.unwrap();
        }
    });
}

#[test]
fn the_zone_is_found_or_named() {
    with_each(async |server| {
        let key = || Some(server.key("sha256"));
        let deeper = "_acme-challenge.a.b.example.org";
        dns(&server, key()).set(deeper, "found").await.unwrap();
        let named = with_zone(&server, key(), Some("example.org"));
        named.set(deeper, "named").await.unwrap();
        assert_eq!(server.values(deeper), ["found", "named"]);

        let elsewhere = with_zone(&server, key(), Some("example.net"));
        let problem = elsewhere.set(NAME, "value").await.unwrap_err();
        assert_eq!(problem, format!("{NAME} is not in the zone example.net"));
        let name = "_acme-challenge.example.net";
        let problem = elsewhere.set(name, "value").await;
        assert_problem(
            problem,
            &server,
            "refuses an update of the zone example.net with the key sha256 (NOTAUTH)",
        );
        let problem = dns(&server, key()).set(name, "value").await;
        assert_problem(
            problem,
            &server,
            "refuses a query for _acme-challenge.example.net",
        );
        // The zone delegates this one.
        let name = "_acme-challenge.delegated.example.org";
        let problem = dns(&server, key()).set(name, "value").await;
        assert_problem(problem, &server, &format!("has no zone for {name}: name"));
    });
}

#[test]
fn an_alias_is_not_changed() {
    with_each(async |server| {
        let name = "_acme-challenge.alias.example.org";
        for zone in [None, Some("example.org")] {
            let dns = with_zone(&server, Some(server.key("sha256")), zone);
            assert_eq!(
                dns.set(name, "value").await.unwrap_err(),
                format!(
                    "{name} is an alias of target.example.org (CNAME): remove the alias, or use a hook that changes \
                     target.example.org"
                )
            );
        }
    });
}

#[test]
fn keys_that_the_server_does_not_accept() {
    with_each(async |server| {
        let set = async |key| dns(&server, key).set(NAME, "value").await;
        let mut key = server.key("sha256");
        key.secret[0] ^= 1;
        let rest = "has another secret for the key sha256 (BADSIG)";
        assert_problem(set(Some(key)).await, &server, rest);

        let mut key = server.key("sha256");
        key.name = "unknown".to_owned();
        let rest = "does not accept the key unknown (BADKEY)";
        assert_problem(set(Some(key)).await, &server, rest);

        let mut key = server.key("sha256");
        key.algorithm = Algorithm::HmacSha512;
        let rest = "does not accept the key sha256 (BADKEY)";
        assert_problem(set(Some(key)).await, &server, rest);

        let (stranger, nobody) = server.refusals();
        let key = server.key("stranger");
        assert_problem(set(Some(key)).await, &server, stranger);
        assert_problem(set(None).await, &server, nobody);
        assert!(server.values(NAME).is_empty());
    });
}

#[test]
fn a_server_that_is_down() {
    with_each(async |server| {
        let dns = dns(&server, Some(server.key("sha256")));
        let server = server.stop();
        let problem = dns.set(NAME, "value").await;
        assert_problem(
            problem,
            &server,
            "cannot be asked over TCP: Connection refused",
        );
        let problem = dns.remove(NAME, "value").await;
        assert_problem(
            problem,
            &server,
            "cannot be asked over TCP: Connection refused",
        );
    });
}
