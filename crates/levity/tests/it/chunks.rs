//! How the chunks of a file travel: read ahead, aligned, and copied nowhere.

use std::path::Path;

use crate::support::{Launch, Server, Tree, assert_same, per_engine};

const LARGE: usize = 9_000_001;

/// A check of the root would count as a trip: none is due while a test runs.
fn server(tree: &Tree, engine: &str, disk: &str) -> Server {
    let tables =
        format!("[admin]\nlisten = \"unix:admin.sock\"\n[disk]\nentry_ttl = \"1h\"\n{disk}\n");
    Launch::site(tree.path(), &tables, "")
        .engine(engine)
        .start()
}

per_engine! {
    /// No byte of a large body is copied in our memory; one of a small body once, into the cache.
    fn no_byte_is_copied_twice(engine) {
        let tree = Tree::new();
        let large = tree.filled("large", LARGE);
        let small = tree.filled("small", 5000);
        let server = server(&tree, engine, "");
        let copied = || server.metrics(&server.own("admin.sock")).sum("levity_body_copied_bytes_total");
        tree.evict("large");
        assert_same(&server.get("/large").body, &large);
        assert_eq!(copied(), 0.0);
        for _ in 0..3 {
            tree.evict("small");
            assert_same(&server.get("/small").body, &small);
        }
        let once = 5000.0;
        // Handed over in a pipe or in shared memory it is copied out of there first.
        let bound = if engine == "simulated" { 2.0 * once } else { once };
        assert!(copied() <= bound, "{}", copied());
    }

    /// Chunks of a size that the configuration fixes, for ranges that begin and end anywhere.
    fn ranges_in_small_chunks(engine) {
        let tree = Tree::new();
        let large = tree.filled("large", LARGE);
        for direct in ["auto", "always", "never"] {
            let server = server(&tree, engine, &format!("chunk = \"64KiB\"\ndirect = \"{direct}\""));
            for (first, last) in [(0, LARGE - 1), (1, 70_000), (4095, 4096), (1_234_567, LARGE - 2)] {
                tree.evict("large");
                let range = format!("bytes={first}-{last}");
                let answer = server.get_with("/large", &[("Range", &range)]);
                answer.assert_status(206);
                assert_same(&answer.body, &large[first..=last]);
            }
        }
    }
}

/// A client that takes what it gets at once has its next chunk read while one is on its way.
#[test]
fn the_next_chunk_is_read_ahead() {
    let tree = Tree::new();
    let large = tree.filled("large", LARGE);
    let server = server(&tree, "threads", "chunk = \"64KiB\"\ndirect = \"always\"");
    tree.evict("large");
    assert_same(&server.get("/large").body, &large);
    let metrics = server.metrics(&server.own("admin.sock"));
    let ahead = |outcome: &str| {
        metrics.sum(&format!(
            "levity_reads_ahead_total{{outcome=\"{outcome}\"}}"
        ))
    };
    assert!(ahead("used") > 10.0, "{}", ahead("used"));
    assert_eq!(ahead("unused"), 0.0);
    assert!(metrics.sum("levity_disk_direct_reads_total{engine=\"threads\"}") > 100.0);
}

/// On tmpfs, where every byte takes a trip.
#[test]
fn a_file_below_a_mebibyte_comes_with_its_open() {
    let folder = Path::new("/dev/shm");
    if !folder.is_dir() {
        println!("left out: no {}", folder.display());
        return;
    }
    let tree = Tree::inside(folder);
    let below = tree.filled("below", (1 << 20) - 1);
    let above = tree.filled("above", 1 << 20);
    let trips = |disk, path, expected: &[u8], engine| {
        let server = server(&tree, engine, disk);
        assert_same(&server.get(path).body, expected);
        let metrics = server.metrics(&server.own("admin.sock"));
        metrics.sum("levity_disk_service_seconds_count")
    };
    for engine in ["threads", "simulated"] {
        assert_eq!(trips("", "/below", &below, engine), 1.0, "{engine}");
        assert!(trips("", "/above", &above, engine) > 1.0, "{engine}");
        assert!(trips("chunk = \"64KiB\"", "/below", &below, engine) > 1.0);
    }
}
