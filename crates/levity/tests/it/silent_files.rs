//! Files of the configuration that do not respond when the server starts. Pipes do not until somebody writes to them.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use crate::support::{Launch, Tree, wait_until};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";

#[cfg(feature = "mailbox")]
#[test]
fn a_mailbox_without_its_key_stops_nothing_else() {
    let tree = Tree::new();
    tree.file("www/page", "content");
    tree.node("pipe", FileType::Fifo, 0);
    let (pipe, www) = (tree.at("pipe"), tree.at("www"));
    let config = format!(
        "{LISTEN}[[mailbox]]\nname = \"m\"\npublish_key_file = \"{}\"\n\
         [[site]]\nroot = \"{}\"\n[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n",
        pipe.display(),
        www.display()
    );
    let launch = Launch::run(&config).arguments(["--patience", "300"]);
    let server = launch.start();
    server.says("`publish_key_file`: ");
    assert_eq!(server.get("/page").text(), "content");
    server.get("/m/box").assert_status(503);
    // An empty key would be anybody's.
    let mut publisher = server.client();
    let headers = [("Authorization", "Bearer "), ("Content-Length", "0")];
    publisher.send(crate::support::head("POST", "/m/box", &headers));
    publisher.receive().assert_status(503);
    let aside = tree.at("aside");
    fs::rename(&pipe, &aside).expect("renamed");
    tree.file("pipe", "0123456789abcdef0123456789abcdef");
    drop(File::options().write(true).open(aside).expect("a reader"));
    wait_until("the mailbox is open", || {
        server.get("/m/box?wait=0s").status != 503
    });
    let mut publisher = server.client();
    publisher.send(crate::support::head("POST", "/m/box", &headers));
    publisher.receive().assert_status(401);
}

#[cfg(feature = "tls")]
#[test]
fn an_upstream_without_its_authorities_stops_nothing_else() {
    let tree = Tree::new();
    tree.file("page", "content");
    tree.node("pipe", FileType::Fifo, 0);
    let config = format!(
        "{LISTEN}[[upstream]]\nname = \"app\"\nto = [\"https://127.0.0.1:1\"]\n\
         [upstream.tls]\nauthorities = \"{}\"\n\
         [[site]]\nroot = \"{}\"\n[[site.route]]\npath = \"/app/*\"\nproxy = \"app\"\n",
        tree.at("pipe").display(),
        tree.path().display()
    );
    let launch = Launch::run(&config).arguments(["--patience", "300"]);
    let server = launch.start();
    server
        .says("pipe does not respond; no backend of the upstream is reached until it can be used");
    assert_eq!(server.get("/page").text(), "content");
    server.get("/app/").assert_status(502);
}

#[cfg(feature = "ajp")]
#[test]
fn an_upstream_without_its_secret_stops_nothing_else() {
    let tree = Tree::new();
    tree.file("page", "content");
    tree.node("pipe", FileType::Fifo, 0);
    let config = format!(
        "{LISTEN}[[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:1\"]\nprotocol = \"ajp13\"\nsecret_file = \"{}\"\n\
         [[site]]\nroot = \"{}\"\n[[site.route]]\npath = \"/app/*\"\nproxy = \"app\"\n",
        tree.at("pipe").display(),
        tree.path().display()
    );
    let launch = Launch::run(&config).arguments(["--patience", "300"]);
    let server = launch.start();
    server.says("`secret_file`: ");
    assert_eq!(server.get("/page").text(), "content");
    server.get("/app/").assert_status(503);
    let aside = tree.at("aside");
    fs::rename(tree.at("pipe"), &aside).expect("renamed");
    tree.file("pipe", "a secret");
    drop(File::options().write(true).open(aside).expect("a reader"));
    // Nobody is there, but the application is asked.
    wait_until("the upstream is asked", || {
        server.get("/app/").status == 502
    });
}

/// Each is named as soon as it is late, and all of them together are not waited for as long as each alone.
#[test]
fn one_silent_pipe_shortens_the_wait_for_others() {
    const PIPES: usize = 6;
    const PATIENCE: Duration = Duration::from_secs(4);
    let tree = Tree::new();
    let mut config = LISTEN.to_owned();
    for number in 0..PIPES {
        let name = format!("pipe{number}");
        tree.node(&name, FileType::Fifo, 0);
        config += &format!(
            "[[site]]\nhosts = [\"h{number}.test\"]\nroot = \"{}\"\nbasic_auth = {{ users = \"{}\" }}\n",
            tree.path().display(),
            tree.at(&name).display()
        );
    }
    let file = tree.file("levity.toml", config);
    let begun = Instant::now();
    let millis = PATIENCE.as_millis().to_string();
    let check = Launch::levity(["check", "--patience", &millis]).arguments([file]);
    let ran = check.ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(begun.elapsed() < PATIENCE * 3, "{:?}", begun.elapsed());
    for number in 0..PIPES {
        let said = format!("/pipe{number} does not respond\n");
        assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    }
}
