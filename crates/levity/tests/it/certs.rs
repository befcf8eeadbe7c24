//! What operators see of certificates: `levity certs`, `/metrics` and `/status`.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::support::certificates::{Authority, Key};
use crate::support::{Client, Launch, Metrics, Ran, Server, Tree, wait_until};
use crate::tls::{LISTEN, site};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const STATE: &str = "[tls]\nfolder = \"{own}/state\"\n";

const INTERNAL: &str = "[site.tls]\nissuer = \"internal\"\n";

fn certs(config: &Path, more: &[&str]) -> Ran {
    let arguments = ["certs", "-c", config.to_str().expect("a path in UTF-8")];
    Launch::levity(arguments).arguments(more).ran()
}

/// A server with the files of `a.test`, and a certificate of this machine for `b.test`.
fn start(tree: &Tree, authority: &Authority) -> Server {
    authority.certify("a", &["a.test", "www.a.test"], Key::Ecdsa);
    let files = site("\"a.test\"", tree, &authority.table(&["a"]));
    let internal = site("\"b.test\"", tree, INTERNAL);
    Launch::run(&format!("{LISTEN}{STATE}{files}{internal}")).start()
}

fn metrics(server: &Server) -> Metrics {
    server.metrics(&server.own("admin"))
}

/// The certificates in `/status.json`.
fn shown(server: &Server) -> Vec<Value> {
    let answer = Client::unix(&server.own("admin")).get("/status.json");
    answer.assert_status(200);
    let status: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let certificates = status["certificates"].as_array();
    certificates.expect("a list").clone()
}

/// The days that `levity_tls_certificate_seconds` has for a certificate.
fn days(metrics: &Metrics, name: &str, source: &str) -> f64 {
    let series = format!("levity_tls_certificate_seconds{{name=\"{name}\",source=\"{source}\"}}");
    assert!(metrics.has(&series), "{series}");
    metrics.sum(&series) / DAY.as_secs_f64()
}

#[test]
fn the_command_lists_what_a_server_uses() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let server = start(&tree, &authority);
    let ran = certs(&server.config(), &[]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("NAMES "), "{}", ran.stdout);
    assert!(
        lines[1].starts_with("a.test, www.a.test  files     authority "),
        "{}",
        ran.stdout
    );
    assert!(lines[1].contains("  29 days  "), "{}", ran.stdout);
    let internal = "b.test              internal  Levity, Levity, local authority ";
    assert!(lines[2].starts_with(internal), "{}", ran.stdout);
    assert_eq!(lines.len(), 3, "{}", ran.stdout);
}

#[test]
fn the_command_tells_jobs_what_is_wrong() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let server = start(&tree, &authority);
    let end = SystemTime::now() - 3 * DAY;
    authority.certify_until("a", &["a.test"], Key::Ecdsa, end);
    let ran = certs(&server.config(), &[]);
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("expired 3 days ago"), "{}", ran.stdout);
    fs::remove_file(authority.file("a.pem")).expect("removed");
    fs::remove_dir_all(server.own("state")).expect("removed");
    let ran = certs(&server.config(), &["--json"]);
    let answer: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.status, &answer["ok"]), (1, &false.into()), "{answer}");
    for (number, file) in ["a.pem", "state/local-ca.pem"].iter().enumerate() {
        let error = answer["certificates"][number]["error"].as_str();
        let expected = format!("{file} cannot be read: No such file");
        assert!(
            error.is_some_and(|error| error.contains(&expected)),
            "{answer}"
        );
    }
    assert!(!server.own("state").exists());
}

#[test]
fn metrics_and_status_follow_the_files() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let server = start(&tree, &authority);
    let before = metrics(&server);
    assert_eq!(days(&before, "a.test", "files").round(), 30.0);
    assert_eq!(days(&before, "b.test", "internal").round(), 90.0);
    assert!(!before.has("levity_tls_on_demand_certificates"));
    let [files, internal] = &shown(&server)[..] else {
        panic!("two certificates");
    };
    assert_eq!(files["certificate"], "a.test");
    assert_eq!(files["names"][1], "www.a.test");
    assert_eq!(
        (&files["source"], &files["issuer"]),
        (&"files".into(), &"authority".into())
    );
    assert!(files["next_seconds"].is_null() && files["error"].is_null());
    let half = |key: &str| internal[key].as_f64().expect("a number");
    let left = half("not_after_seconds") - half("next_seconds");
    assert_eq!(left, 45.0 * DAY.as_secs_f64());

    let text = Client::unix(&server.own("admin")).get("/status").text();
    let names = "server.certificates.a.test.names: a.test www.a.test\n";
    assert!(text.contains(names), "{text}");

    fs::write(authority.file("a.pem"), "nothing").expect("written");
    wait_until("the failure is shown", || {
        let error = shown(&server)[0]["error"].clone();
        error
            .as_str()
            .is_some_and(|error| error.contains("a.pem: "))
    });
    assert_eq!(days(&metrics(&server), "a.test", "files").round(), 30.0);
    let end = SystemTime::now() + 60 * DAY;
    authority.certify_until("a", &["a.test"], Key::Ecdsa, end);
    wait_until("the new one is used", || {
        shown(&server)[0]["error"].is_null()
    });
    assert_eq!(days(&metrics(&server), "a.test", "files").round(), 60.0);
}

#[test]
fn a_reload_changes_the_certificates() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let server = start(&tree, &authority);
    server.reload(&["\"b.test\""], &["\"c.test\""]);
    let after = metrics(&server);
    assert_eq!(days(&after, "c.test", "internal").round(), 90.0);
    assert!(!after.has("levity_tls_certificate_seconds{name=\"b.test\""));
    assert_eq!(shown(&server)[1]["certificate"], "c.test");
}

#[test]
fn without_tls_there_is_nothing_to_see() {
    let tree = Tree::new();
    let admin = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), admin, "").start();
    assert!(shown(&server).is_empty());
    assert!(!metrics(&server).has("levity_tls_certificate_seconds"));
    let ran = certs(&server.config(), &[]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.ends_with(": no site uses TLS\n"),
        "{}",
        ran.stdout
    );
}
