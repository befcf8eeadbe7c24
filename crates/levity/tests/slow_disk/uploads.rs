//! Uploads to a mount that is slow to answer: the loops and the clients of other files do not notice.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::support::{Server, assert_same, content, head, wait_until};
use crate::{mounts, server_of};

const TABLES: &str = "[limits]\nio_timeout = \"20s\"\n[disk]\ndead_after = \"20s\"\n";

const SOON: &str = "[limits]\nio_timeout = \"500ms\"\n";

const UPLOADS: usize = 50;

const BYTES: usize = 150_000;

fn put(server: &Server, number: usize) -> crate::Client {
    let mut client = server.client();
    let length = BYTES.to_string();
    client.send(head(
        "PUT",
        &format!("/slow/{number}"),
        &[("Content-Length", &length)],
    ));
    client.send(content(number as u64, BYTES));
    client
}

/// The mount has no files without a name, so what is received has one meanwhile.
pub fn to_a_frozen_mount(engine: &str) {
    let Some(mount) = mounts::mount() else { return };
    let slow = mount.root().join("slow");
    fs::set_permissions(&slow, Permissions::from_mode(0o777)).expect("chmod");
    let route = format!(
        "[[site.route]]\npath = \"/slow/*\"\nstrip_prefix = \"/slow\"\nroot = \"{}\"\nupload = {{}}\n",
        slow.display()
    );
    let server = server_of(&mount.root(), engine, TABLES, &route);
    put(&server, 0).receive().assert_status(201);
    let threads = || {
        let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
        fs::read_dir(tasks).expect("threads").count()
    };
    let memory = server.resident_bytes();
    let frozen = mount.freeze();
    let waiting: Vec<_> = (1..=UPLOADS).map(|number| put(&server, number)).collect();
    for _ in 0..200 {
        mounts::assert_hot(&server);
    }
    assert!(threads() < 120, "{} threads", threads());
    // What the server has not read waits in the sockets.
    let grown = server.resident_bytes().saturating_sub(memory);
    assert!(
        grown < UPLOADS * 2 * 65_536 + (8 << 20),
        "{grown} bytes more"
    );
    drop(frozen);
    for (number, mut client) in (1..=UPLOADS).zip(waiting) {
        client.receive().assert_status(201);
        let file = fs::read(slow.join(number.to_string())).expect("a file");
        assert_same(&file, &content(number as u64, BYTES));
    }
    put(&server, 1).receive().assert_status(204);
    mounts::assert_hot(&server);
    let own = slow.join(".levity-temporary-uploads");
    wait_until("the names of the meantime are gone", || {
        fs::read_dir(&own).expect("a folder").count() == 0
    });
}

/// Nothing is begun that would be made when the mount answers again: its client has been told 503 by then.
pub fn changes_of_names_on_a_frozen_mount(engine: &str) {
    let Some(mount) = mounts::mount() else { return };
    let slow = mount.root().join("slow");
    fs::set_permissions(&slow, Permissions::from_mode(0o777)).expect("chmod");
    let route = format!(
        "[[site.route]]\npath = \"/slow/*\"\nstrip_prefix = \"/slow\"\nroot = \"{}\"\n\
         upload = {{ methods = [\"PUT\", \"DELETE\", \"MKCOL\"] }}\n",
        slow.display()
    );
    let mut server = server_of(&mount.root(), engine, SOON, &route);
    put(&server, 0).receive().assert_status(201);
    let frozen = mount.freeze();
    let waiting: Vec<_> = (0..UPLOADS)
        .map(|number| {
            let (method, path) = match number % 2 {
                0 => ("DELETE", "/slow/0".to_owned()),
                _ => ("MKCOL", format!("/slow/folder{number}")),
            };
            let mut client = server.client();
            client.send(head(method, &path, &[]));
            client
        })
        .collect();
    for mut client in waiting {
        let answer = client.receive();
        answer.assert_status(503);
        assert!(!answer.field("retry-after").is_empty(), "{answer:?}");
    }
    mounts::assert_hot(&server);
    drop(frozen);
    // It waits for all changes that have begun.
    server.signal(Signal::TERM);
    server.wait();
    let names = fs::read_dir(&slow).expect("a folder").flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, [".levity-temporary-uploads", "0", "big"]);
}
