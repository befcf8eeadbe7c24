//! One process, several engines: each site and route may name its own.

use crate::support::{Launch, Tree, assert_same, linux_aio_works, ring_works, wait_until};

const LARGE: usize = 3_000_001;

/// The server reads a file of each route with the engine that the route names.
#[cfg(feature = "engines-all")]
#[test]
fn each_route_has_its_own() {
    let tree = Tree::new();
    let contents = ["a", "b", "c"].map(|name| (name, tree.filled(name, LARGE)));
    let config = format!(
        "[disk]\nengine = \"simulated\"\n[admin]\nlisten = \"unix:admin.sock\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nroot = \"{}\"\n\
         disk = {{ engine = \"gthread-aio\", chunk = \"64KiB\" }}\n\
         [[site.route]]\npath = \"/b\"\ndisk.engine = \"linux-sendfile\"\n\
         [[site.route]]\npath = \"/c\"\ndisk = {{ direct = \"never\" }}\n",
        tree.path().display()
    );
    let launch = Launch::run(&config);
    let server = launch.start();
    let metrics = || server.metrics(&server.own("admin.sock"));
    let reads = |engine: &str, how: &str| {
        let series = format!("levity_disk_reads_total{{engine=\"{engine}\",how=\"{how}\"}}");
        metrics().sum(&series)
    };
    let engines = [
        ("threads", "async"),
        ("sendfile", "sync"),
        ("threads", "async"),
    ];
    for ((name, content), (engine, how)) in contents.iter().zip(engines) {
        let before = reads(engine, how);
        // Read-ahead may be faster than the loop, which then reads without the engine.
        wait_until("the engine of the route reads", || {
            tree.evict(name);
            assert_same(&server.get(&format!("/{name}")).body, content);
            reads(engine, how) > before
        });
    }
    assert_eq!(reads("simulated", "async"), 0.0);
    assert!(!metrics().has("levity_disk_reads_total{engine=\"io_uring\""));
}

/// Past the page cache into shared memory, from where the answers of many clients leave: each gets its
/// own bytes, also the one that reads last.
#[cfg(feature = "engines-all")]
#[test]
fn linux_aio_sends_from_shared_memory() {
    if !linux_aio_works() {
        return;
    }
    let tree = Tree::new();
    let content = tree.filled("large", LARGE);
    let config = format!(
        "[disk]\nengine = \"linux-aio-sendfile\"\ndirect = \"always\"\nbuffer_bytes = \"32MiB\"\n\
         [admin]\nlisten = \"unix:admin.sock\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[site]]\nroot = \"{}\"\n",
        tree.path().display()
    );
    let launch = Launch::run(&config);
    let server = launch.start();
    let late: Vec<_> = (0..10)
        .map(|n| {
            tree.evict("large");
            let from = n * 200_003;
            let mut client = server.client();
            client.send(format!(
                "GET /large HTTP/1.1\r\nHost: x\r\nRange: bytes={from}-\r\n\r\n"
            ));
            (from, client)
        })
        .collect();
    tree.evict("large");
    // The others may have taken all of the memory for a moment.
    let mut whole = server.get("/large");
    wait_until("there is memory for one more", || {
        if whole.status == 503 {
            whole = server.get("/large");
        }
        whole.status == 200
    });
    assert_same(&whole.body, &content);
    for (from, mut client) in late {
        assert_same(&client.receive().body, &content[from..]);
    }
    let metrics = server.metrics(&server.own("admin.sock"));
    let reads = metrics.sum("levity_disk_direct_reads_total{engine=\"linux-aio\"}");
    assert!(reads > 0.0);
}

/// `auto` has the pool for what comes through the page cache and a ring for what goes past it.
#[cfg(feature = "io-uring")]
#[test]
fn auto_is_a_choice_for_each_read() {
    if !ring_works() {
        return;
    }
    let tree = Tree::new();
    let large = tree.filled("large", LARGE);
    let admin = "[admin]\nlisten = \"unix:admin.sock\"\n";
    let server = Launch::site(tree.path(), admin, "").engine("auto");
    let server = server.arguments(["-v"]).start();
    server.says("disk engine threads");
    server.says("past it (O_DIRECT): io_uring");
    tree.evict("large");
    assert_same(&server.get("/large").body, &large);
    let metrics = server.metrics(&server.own("admin.sock"));
    let direct = |engine: &str| {
        metrics.sum(&format!(
            "levity_disk_direct_reads_total{{engine=\"{engine}\"}}"
        ))
    };
    assert!(direct("io_uring") > 0.0);
    assert_eq!(direct("threads"), 0.0);
}
