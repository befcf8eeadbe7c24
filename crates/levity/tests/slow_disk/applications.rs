//! A disk that does not answer holds up who asked for a file, and not the application that named it.

use super::*;
use support::scripted::{Conn, Scripted, fastcgi};

/// Longer than anything here takes.
const IO_TIMEOUT: &str = "[limits]\nio_timeout = \"20s\"\n[disk]\ndead_after = \"20s\"\n";

fn http(conn: &mut Conn, root: &str) {
    while let Some(request) = conn.read_request() {
        conn.send(match request.target.as_str() {
            "/plain" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain".to_owned(),
            // As frameworks do: the length is that of the file, and nothing follows.
            "/announced" => format!(
                "HTTP/1.1 200 OK\r\nX-Sendfile: {root}/cold/1\r\nContent-Length: 100001\r\n\r\n"
            ),
            _ => {
                format!("HTTP/1.1 200 OK\r\nX-Sendfile: {root}/cold/2\r\nContent-Length: 0\r\n\r\n")
            }
        });
    }
}

fn fastcgi(conn: &mut Conn, root: &str) {
    while let Some((request, _)) = conn.read_fastcgi() {
        conn.send(fastcgi::answer(match request.target.as_str() {
            "/plain" => "Content-Type: text/plain\r\n\r\nplain".to_owned(),
            "/announced" => format!("X-Sendfile: {root}/cold/1\r\nContent-Length: 100001\r\n\r\n"),
            _ => format!("X-Sendfile: {root}/cold/2\r\n\r\n"),
        }));
    }
}

/// One connection to the application, two clients that wait for the disk, one that does not.
pub fn are_free_before_the_disk_is_asked(engine: &str) {
    let Some(disk) = SlowDisk::with(fill) else {
        return;
    };
    for (protocol, handle) in [("http", http as fn(&mut Conn, &str)), ("fastcgi", fastcgi)] {
        let root = disk.path().display().to_string();
        let to_it = root.clone();
        let backend = Scripted::tcp(move |conn| handle(conn, &to_it));
        let server = Launch::run(&format!(
            "{IO_TIMEOUT}[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"app\"\nprotocol = \"{protocol}\"\nto = [\"{}\"]\nconnections = 1\n\
             sendfile_roots = [\"{root}\"]\n[[site]]\nproxy = \"app\"\n",
            backend.address()
        ))
        .engine(engine)
        .workers(1)
        .start();
        drop_caches();
        let frozen = disk.freeze();
        let mut waiting = [
            (server.client(), "/announced", 1),
            (server.client(), "/cold", 2),
        ];
        for (client, target, _) in &mut waiting {
            client.send(support::head("GET", target, &[]));
        }
        backend.wait_for_requests(2);
        for _ in 0..3 {
            assert_eq!(server.get("/plain").text(), "plain", "{protocol}");
        }
        drop(frozen);
        for (mut client, _, number) in waiting {
            let answer = client.receive();
            answer.assert_status(200);
            assert_same(&answer.body, &content(number, COLD_BYTES));
        }
    }
}
