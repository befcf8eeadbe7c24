//! Log lines about a backend that fails.

use super::tell_target;
use crate::support::Launch;
use crate::support::scripted::{Refusing, Scripted};

/// The only backend is never ejected, so only its responses show when it is back.
#[test]
fn the_only_backend_fails_and_comes_back() {
    let refusing = Refusing::new();
    let address = refusing.address().to_owned();
    let server = Launch::proxy(&address, "retry.for = \"0s\"")
        .workers(1)
        .start();
    let mut client = server.client();
    for _ in 0..5 {
        client.get("/").assert_status(502);
    }
    server.says(&format!("backend {address}: cannot connect"));
    let _backend = Scripted::on(refusing.listen(), tell_target);
    client.get("/").assert_status(200);
    let back = server.says(&format!("upstream app: backend {address} is back after "));
    assert!(back.ends_with(": 5 attempts failed"), "{back}");
}

/// A line about an attempt does not take the place of the one about its end.
#[test]
fn the_failure_that_a_client_sees_is_logged_after_those_that_it_does_not() {
    let refusing = Refusing::new();
    let server = Launch::proxy(refusing.address(), "retry.for = \"300ms\"").start();
    server.get("/").assert_status(502);
    server.says("; tried again");
    server.says("(502)");
}
