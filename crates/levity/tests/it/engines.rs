//! One process, several engines: each site and route may name its own.

use crate::support::{Launch, Tree, assert_same};

const LARGE: usize = 3_000_001;

/// The server reads a file of each route with the engine that the route names.
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
    for (name, content) in &contents {
        tree.evict(name);
        assert_same(&server.get(&format!("/{name}")).body, content);
    }
    let metrics = server.metrics(&server.own("admin.sock"));
    let reads = |engine: &str, how: &str| {
        let series = format!("levity_disk_reads_total{{engine=\"{engine}\",how=\"{how}\"}}");
        metrics.sum(&series)
    };
    assert!(reads("threads", "async") > 0.0);
    assert!(reads("sendfile", "sync") > 0.0);
    assert_eq!(reads("simulated", "async"), 0.0);
    assert!(!metrics.has("levity_disk_reads_total{engine=\"io_uring\""));
}
