//! Files that come in a pipe and leave without a copy: past the page cache, or as references to it.
//!
//! The root is `/dev`, and the files are on the tmpfs that is mounted beneath it: an event loop does not cross a
//! mount, so each file comes with its open.

use std::fs::{self, OpenOptions};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::support::{Client, Launch, Server, Tree, assert_same, pass, wait_until};

/// Around the fewest and the most bytes in a pipe.
const SIZES: [usize; 8] = [
    65_536, 65_537, 131_072, 131_073, 262_145, 524_289, 1_048_575, 1_048_576,
];

/// A larger file does not come with its open.
const IN_PIPE: RangeInclusive<usize> = 65_537..=1_048_575;

const ADMIN: &str = "[admin]\nlisten = \"unix:admin.sock\"\n";

/// Past the page cache.
const PAST: &str = "direct = \"always\"\n";

/// As references to the page cache, also of files that have just been written.
const REFERRED: &str = "direct = \"never\"\nchanges = \"never\"\n";

const IN_PLACE: &str = "direct = \"never\"\nchanges = \"in-place\"\n";

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

    fn launch(&self, disk: &str, keys: &str) -> Launch {
        let tables = format!("{ADMIN}[disk]\n{disk}");
        Launch::site(Path::new("/dev"), &tables, keys)
    }

    fn server(&self, disk: &str, keys: &str) -> Server {
        self.launch(disk, keys).engine("threads").start()
    }

    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

/// The client may have the last bytes before the server has counted them.
fn sent_in_pipes(server: &Server) -> f64 {
    let metrics = server.metrics(&server.own("admin.sock"));
    metrics.sum("levity_body_zero_copy_bytes_total")
}

#[test]
fn whole_files_leave_without_a_copy() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    for disk in [PAST, REFERRED] {
        assert_whole_files_leave_without_a_copy(&mounted, disk);
    }
}

fn assert_whole_files_leave_without_a_copy(mounted: &Mounted, disk: &str) {
    let server = mounted.server(disk, "");
    let mut client = server.client();
    for size in SIZES {
        let name = size.to_string();
        let bytes = mounted.tree.filled(&name, size);
        let url = mounted.url(&name);
        assert_same(&client.get(&url).body, &bytes);
        let in_pipe = if IN_PIPE.contains(&size) { size } else { 0 };
        // Other tests may have all the pages that the pipes of this user may have. On a busy machine a file may be so old
        // when it is read that it comes from the cache, without a copy too.
        let mut copies = 0;
        wait_until(&format!("{size} bytes leave in a pipe: {disk}"), || {
            copies += 1;
            let again = format!("{size}-{copies}");
            let before = sent_in_pipes(&server);
            mounted.tree.filled(&again, size);
            assert_same(&client.get(&mounted.url(&again)).body, &bytes);
            fs::remove_file(mounted.tree.at(&again)).expect("it is there");
            // The server has counted the bytes when it answers the next request.
            client.head(&url);
            sent_in_pipes(&server) - before == in_pipe as f64
        });
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
    let server = mounted.server(PAST, "");
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
    let tables = format!("{ADMIN}[disk]\n{PAST}[[listen]]\naddress = \"unix:site.sock\"\n");
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
    let server = mounted.server(PAST, "compress = true\n");
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
    let server = mounted.server(PAST, "");
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
    wait_until("they are counted", || {
        sent_in_pipes(&server) - before == 131_072.0
    });
}

/// Neither in pipes nor by the thread that sends large files from the page cache.
#[test]
fn files_that_change_in_place_leave_by_copy() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let server = mounted.server(IN_PLACE, "");
    let mut client = server.client();
    for size in [100_000, 5_000_000] {
        let name = size.to_string();
        let bytes = mounted.tree.filled(&name, size);
        for _ in 0..2 {
            assert_same(&client.get(&mounted.url(&name)).body, &bytes);
        }
    }
    assert_eq!(sent_in_pipes(&server), 0.0);
}

/// What has just been written may be in the middle of a change.
#[test]
fn new_files_are_not_referred_to() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let server = mounted.server("direct = \"never\"\n", "");
    let bytes = mounted.tree.filled("new", 100_000);
    assert_same(&server.get(&mounted.url("new")).body, &bytes);
    assert_eq!(sent_in_pipes(&server), 0.0);
}

/// A client that is slow meanwhile gets the bytes of one version, or sees that the response is incomplete.
#[test]
fn a_change_in_place_does_not_mix_versions() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    for engine in ["threads", "readahead", "sendfile"] {
        assert_not_mixed(&mounted, engine);
    }
}

fn assert_not_mixed(mounted: &Mounted, engine: &str) {
    let server = mounted.launch(IN_PLACE, "").engine(engine).start();
    let bytes = mounted.tree.filled("file", 262_144);
    let mut client = Client::narrow(server.address());
    let url = mounted.url("file");
    client.send(format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let admin = server.own("admin.sock");
    wait_until("it is being sent", || {
        server.metrics(&admin).sum("levity_sent_bytes_total") > 0.0
    });
    let file = OpenOptions::new().write(true).open(mounted.tree.at("file"));
    let changed = vec![b'!'; bytes.len()];
    let written = file.expect("it is open").write_all_at(&changed, 0);
    written.expect("it is written");
    match client.try_receive() {
        Ok(answer) => assert_same(&answer.body, &bytes),
        Err(cut) => {
            let body = cut.body();
            assert!(!body.is_empty(), "nothing arrived");
            assert_same(&body, &bytes[..body.len()]);
        }
    }
}
