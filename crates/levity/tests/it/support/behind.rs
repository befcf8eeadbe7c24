//! The server in front of an application.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use super::{Launch, Server, Tree};

/// A server whose one site has `root` and asks the backends at `to` in `protocol`; `upstream` and `site`
/// are further keys of both.
#[track_caller]
pub fn in_front_of(to: &[&str], protocol: &str, upstream: &str, root: &Tree, site: &str) -> Launch {
    let to: Vec<_> = to.iter().map(|address| format!("\"{address}\"")).collect();
    let to = to.join(", ");
    let tables = format!(
        "[[upstream]]\nname = \"app\"\nprotocol = \"{protocol}\"\nto = [{to}]\n{upstream}\n"
    );
    Launch::site(root.path(), &tables, &format!("proxy = \"app\"\n{site}\n")).workers(1)
}

/// The same, started and without further keys of the upstream.
#[track_caller]
pub fn started_in_front_of(to: &str, protocol: &str, root: &Tree, site: &str) -> Server {
    in_front_of(&[to], protocol, "", root, site).start()
}

/// A backend that sends `response` while it reads one request, and its address. It ends when it has both sent the whole
/// response and read the whole request: bytes that it left unread would make the kernel reset the connection.
pub fn responding_while_it_reads(response: Vec<u8>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address").to_string();
    let backend = thread::spawn(move || {
        let (request, _) = listener.accept().expect("accept");
        let mut conn = request.try_clone().expect("clone");
        let sending = thread::spawn(move || conn.write_all(&response).expect("write"));
        let mut request = BufReader::new(request);
        let lines = request.by_ref().lines().map(|line| line.expect("a line"));
        let lines = lines.take_while(|line| !line.is_empty());
        let lengths = lines.filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.parse::<u64>().expect("a number"))
        });
        let length = lengths.sum();
        let read = io::copy(&mut request.take(length), &mut io::sink());
        assert_eq!(read.expect("read"), length);
        sending.join().expect("it has sent all");
    });
    (address, backend)
}
