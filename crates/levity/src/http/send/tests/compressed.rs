//! Bodies that are compressed on their way.

use tokio::task::yield_now;

use super::*;
use crate::rig::Backend;
use crate::shares::Resource;

/// Turns of the event loop in which what is counted of a response that stalls would end, if it did.
const STALL_TURNS: usize = 2000;

/// Between two reads nobody but the response itself counts the file.
#[test]
fn a_part_of_a_compressed_body_counts_while_the_client_takes_nothing() {
    let config = "compress = true\n[[site.route]]\npath = \"/app\"\nproxy = \"app\"\n\
                  [[upstream]]\nname = \"app\"\nto = [\"unix:/app\"]\nsendfile_roots = [\"{root}\"]\n";
    let large = "0123456789".repeat(LARGE_BYTES / 10);
    let rig = Rig::with_files(config, &[("large", &large)]);
    let app = Backend::new("unix:/app");
    rig.run(async {
        let mut client = rig.client(16);
        let request = get("/app").replace("Connection", "Accept-Encoding: gzip\r\nConnection");
        client.send(request).await;
        let (mut backend, _) = app.asked().await;
        let parts = format!("X-Sendfile2: {}/large 0-", rig.root.path().display());
        let kind = "Content-Type: text/plain\r\nContent-Length: 0";
        let header = format!("HTTP/1.1 200 OK\r\n{parts}\r\n{kind}\r\n\r\n");
        backend.send(&header).await;
        let used = || rig.worker.core.stakes.shares().used(Resource::Files);
        let mut counted = 0;
        while counted < STALL_TURNS {
            yield_now().await;
            counted = if used() == 1 { counted + 1 } else { 0 };
        }
        client.close().await;
        assert_eq!(used(), 0);
    });
    rig.assert_idle();
}
