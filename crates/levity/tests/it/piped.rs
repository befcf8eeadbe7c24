//! Files that come in a pipe, past the page cache, and leave without a copy.
//!
//! The root is `/dev`, and the files are on the tmpfs that is mounted beneath it: an event loop does not cross a
//! mount, so each file comes with its open.

use std::fs::{self, OpenOptions};
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::support::{Client, Launch, Server, Tree, assert_same, pass};

/// Around the fewest and the most bytes in a pipe.
const SIZES: [usize; 6] = [65_536, 65_537, 100_000, 131_071, 131_072, 131_073];

const IN_PIPE: RangeInclusive<usize> = 65_537..=131_072;

const TABLES: &str = "[admin]\nlisten = \"unix:admin.sock\"\n[disk]\ndirect = \"always\"\n";

struct Mounted {
    tree: Tree,
    /// Of the files, in a URL.
    folder: String,
}

impl Mounted {
    /// `None` where there is no tmpfs of its own, or one that has no `O_DIRECT`: before Linux 6.6.
    fn new() -> Option<Self> {
        let (root, mount) = (Path::new("/dev"), Path::new("/dev/shm"));
        let device = |path| fs::metadata(path).ok().map(|meta| meta.dev());
        if device(mount).is_none() || device(root) == device(mount) {
            println!("left out: nothing is mounted on {}", mount.display());
            return None;
        }
        let tree = Tree::inside(mount);
        tree.filled("probe", 1);
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(tree.at("probe"));
        if direct.is_err() {
            println!("left out: this kernel has no O_DIRECT on tmpfs");
            return None;
        }
        let folder = tree.path().strip_prefix(root).expect("it is there");
        let folder = format!("/{}", folder.display());
        Some(Self { tree, folder })
    }

    fn server(&self, keys: &str) -> Server {
        Launch::site(Path::new("/dev"), TABLES, keys)
            .engine("threads")
            .start()
    }

    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

fn sent_in_pipes(server: &Server) -> f64 {
    let metrics = server.metrics(&server.own("admin.sock"));
    metrics.sum("levity_body_zero_copy_bytes_total")
}

#[test]
fn whole_files_leave_without_a_copy() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let server = mounted.server("");
    let mut client = server.client();
    for size in SIZES {
        let name = size.to_string();
        let bytes = mounted.tree.filled(&name, size);
        let url = mounted.url(&name);
        let before = sent_in_pipes(&server);
        assert_same(&client.get(&url).body, &bytes);
        let in_pipe = if IN_PIPE.contains(&size) { size } else { 0 };
        assert_eq!(sent_in_pipes(&server) - before, in_pipe as f64, "{size}");
        // What is asked for in another way, on the same connection.
        let part = client.get_with(&url, &[("Range", "bytes=10-60000")]);
        assert_same(&part.body, &bytes[10..=60_000]);
        let head = client.head(&url);
        assert_eq!(head.length(), Some(size));
        let tag = head.field("etag").to_owned();
        let same = client.get_with(&url, &[("If-None-Match", &tag)]);
        same.assert_status(304);
        assert_same(&client.get(&url).body, &bytes);
    }
}

/// They may share one read, whose bytes leave a pipe once.
#[test]
fn many_who_ask_at_the_same_time_get_all_bytes() {
    const CLIENTS: usize = 50;
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let server = mounted.server("");
    let bytes = mounted.tree.filled("file", 100_000);
    let url = mounted.url("file");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| assert_same(&server.get(&url).body, &bytes));
        }
    });
}

/// Their bytes are in memory.
#[test]
fn clients_without_a_tcp_socket_get_the_same() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let bytes = mounted.tree.filled("file", 100_000);
    let tables = format!("{TABLES}[[listen]]\naddress = \"unix:site.sock\"\n");
    let server = Launch::site(Path::new("/dev"), &tables, "")
        .engine("threads")
        .start();
    let mut client = Client::unix(&server.own("site.sock"));
    assert_same(&client.get(&mounted.url("file")).body, &bytes);
    assert_eq!(sent_in_pipes(&server), 0.0);
}

#[cfg(feature = "compress")]
#[test]
fn a_filter_gets_the_bytes() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let bytes = mounted.tree.filled("file.txt", 100_000);
    let server = mounted.server("compress = true\n");
    let url = mounted.url("file.txt");
    let answer = server.get_with(&url, &[("Accept-Encoding", "gzip")]);
    assert_eq!(answer.field("content-encoding"), "gzip");
    assert_eq!(sent_in_pipes(&server), 0.0);
    assert_same(&server.get(&url).body, &bytes);
}

/// No pipe waits for such a client for long: the rest is read again. Later clients find pipes, however many have gone.
#[test]
fn slow_clients_and_those_that_go_keep_no_pipe() {
    const CLIENTS: usize = 300;
    let Some(mounted) = Mounted::new() else {
        return;
    };
    // Each request comes with the open of its file.
    let bytes = mounted.tree.filled("last", 131_072);
    for number in 0..CLIENTS {
        mounted.tree.filled(&number.to_string(), 131_072);
    }
    let server = mounted.server("");
    let mut slow: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = Client::narrow(server.address());
            let url = mounted.url(&number.to_string());
            client.send(format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    let rest = slow.split_off(CLIENTS / 2);
    drop(slow);
    // Longer than bytes are held for a client.
    pass(Duration::from_millis(1500));
    for mut client in rest {
        assert_same(&client.receive().body, &bytes);
    }
    let before = sent_in_pipes(&server);
    assert_same(&server.get(&mounted.url("last")).body, &bytes);
    assert_eq!(sent_in_pipes(&server) - before, 131_072.0);
}
