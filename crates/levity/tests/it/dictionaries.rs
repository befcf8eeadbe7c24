//! The delta of a file from the version that the client has (RFC 9842).

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use brotli_decompressor::{Allocator, Decompressor, SliceWrapperMut, StandardAlloc};
use sha2::{Digest, Sha256};

use crate::clients::{chromium, url};
use crate::compress::clients::send_page;
use crate::support::scripted::Scripted;
use crate::support::{
    Answer, Client, Launch, Server, Tree, age, per_engine, wait_until, wait_within,
};

/// How long idle work may take while other tests use all processors.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(120);

/// Requests that make a file popular.
const REQUESTS: usize = 4;

/// Codings with a dictionary, and the ones that they are configured by.
const CODINGS: [(&str, &str); 2] = [("dcz", "zstd"), ("dcb", "br")];

fn script(version: usize) -> String {
    let line = |number| {
        format!(
            "call({number}, \"a line of script {}\");\n",
            number * 7919 % 1000
        )
    };
    let lines: String = (0..2000).map(line).collect();
    format!("// version {version}\n{lines}finish({version});\n")
}

/// A file, and a server that keeps its versions in `store`.
struct Site {
    tree: Tree,
    store: Tree,
    keys: String,
    /// Further tables of the configuration.
    tables: String,
}

impl Site {
    fn new(keys: &str) -> Self {
        let (tree, store) = (Tree::new(), Tree::new());
        store.chmod(".", 0o777);
        let site = Self {
            tree,
            store,
            keys: format!("compress = true\ncompress_dictionaries = true\n{keys}"),
            tables: String::new(),
        };
        site.change(1);
        site
    }

    fn change(&self, version: usize) {
        replace(self.tree.path(), version);
    }

    fn launch(&self, engine: &str) -> Server {
        let (store, tables) = (self.store.path().display(), &self.tables);
        let tables = format!("[disk]\nvariants = \"{store}\"\n{tables}");
        Launch::site(self.tree.path(), &tables, &self.keys)
            .engine(engine)
            .start()
    }
}

/// Replaces the file by that of `version`, as a deployment does.
fn replace(folder: &Path, version: usize) {
    let new = folder.join(".new");
    fs::write(&new, script(version)).expect("the folder is writable");
    age(&new, Duration::from_secs(100));
    fs::rename(&new, folder.join("app.js")).expect("the folder is writable");
}

/// The value of Available-Dictionary of a client that has `content`.
fn available(content: &str) -> String {
    format!(":{}:", BASE64_STANDARD.encode(Sha256::digest(content)))
}

/// Requests the file until it may be used as a dictionary, as a browser does that has none.
fn wait_for_dictionary(mut client: Client) -> Answer {
    let mut last = None;
    wait_within(IDLE_WAIT_MAX, "the file is a dictionary", || {
        let response = client.get("/app.js");
        let is_dictionary = response.header("use-as-dictionary").is_some();
        last = Some(response);
        is_dictionary
    });
    last.expect("a response")
}

/// Requests the file with a dictionary until the delta is sent.
fn wait_for_delta(mut client: Client, coding: &str, dictionary: &str) -> Answer {
    let available = available(dictionary);
    let headers = [
        ("Accept-Encoding", coding),
        ("Available-Dictionary", &available),
    ];
    let mut last = None;
    wait_within(IDLE_WAIT_MAX, "the delta is sent", || {
        let response = client.get_with("/app.js", &headers);
        let is_delta = response.header("content-encoding") == Some(coding);
        last = Some(response);
        is_delta
    });
    last.expect("a response")
}

#[track_caller]
fn decoded(coding: &str, body: &[u8], dictionary: &str) -> String {
    let magic: &[u8] = match coding {
        "dcz" => b"\x5e\x2a\x4d\x18\x20\0\0\0",
        _ => b"\xffDCB",
    };
    let body = body.strip_prefix(magic).expect("the magic number");
    let digest = Sha256::digest(dictionary);
    let body = body.strip_prefix(&digest[..]).expect("the digest");
    let content = match coding {
        "dcz" => {
            let mut decoder =
                zstd::bulk::Decompressor::with_dictionary(dictionary.as_bytes()).expect("memory");
            decoder.decompress(body, 1 << 20).expect("dcz")
        }
        _ => {
            let mut alloc = StandardAlloc::default();
            let mut prefix =
                <StandardAlloc as Allocator<u8>>::alloc_cell(&mut alloc, dictionary.len());
            prefix.slice_mut().copy_from_slice(dictionary.as_bytes());
            let (mut decoder, mut content) = (Decompressor::new(body, body.len()), Vec::new());
            assert!(decoder.attach_dictionary(prefix));
            decoder.read_to_end(&mut content).expect("dcb");
            content
        }
    };
    String::from_utf8(content).expect("text")
}

per_engine! {
    fn a_later_version_is_sent_as_a_delta(engine) {
        for (coding, _) in CODINGS {
            let site = Site::new("");
            let server = site.launch(engine);
            let first = wait_for_dictionary(server.client());
            assert_eq!(first.text(), script(1));
            assert_eq!(first.field("use-as-dictionary"), "match=\"app.js\"");
            site.change(2);
            let second = wait_for_delta(server.client(), coding, &script(1));
            assert_eq!(decoded(coding, &second.body, &script(1)), script(2));
            assert!(second.body.len() < 200, "{} bytes", second.body.len());
            assert_eq!(second.length(), Some(second.body.len()));
            assert_eq!(second.header("accept-ranges"), None);
            assert!(second.field("content-type").starts_with("text/javascript"));
            for response in [first, second] {
                assert_eq!(response.field("vary"), "Accept-Encoding, Available-Dictionary");
            }
        }
    }
}

#[test]
fn conditions_and_ranges_are_of_the_file() {
    let (coding, _) = CODINGS[0];
    let site = Site::new("");
    let server = site.launch("auto");
    wait_for_dictionary(server.client());
    site.change(2);
    let second = wait_for_delta(server.client(), coding, &script(1));
    let etag = second.field("etag");
    assert!(etag.starts_with("W/") && etag.contains("~dcz."), "{etag}");
    let mut client = server.client();
    // A browser that revalidates names no dictionary. A cache asks with the tags of what it keeps for other clients.
    let others = [script(2), "lost".to_owned()].map(|content| available(&content));
    let own = available(&script(1));
    for (accepted, dictionary, expected) in [
        ("gzip, br", None, 304),
        (coding, Some(&own), 304),
        (coding, Some(&others[0]), 200),
        (coding, Some(&others[1]), 200),
    ] {
        let mut headers = vec![("Accept-Encoding", accepted), ("If-None-Match", etag)];
        headers.extend(dictionary.map(|digest| ("Available-Dictionary", &**digest)));
        let response = client.get_with("/app.js", &headers);
        assert_eq!(response.status, expected, "{accepted} {dictionary:?}");
        assert_eq!(response.field("etag") == etag, expected == 304);
    }
    let available = available(&script(1));
    let headers = [
        ("Accept-Encoding", coding),
        ("Available-Dictionary", &available),
    ];
    let head = client.request("HEAD", "/app.js", &headers);
    assert_eq!(head.length(), Some(second.body.len()));
    for if_range in [None, Some(etag)] {
        let mut headers = headers.to_vec();
        headers.push(("Range", "bytes=3-9"));
        headers.extend(if_range.map(|etag| ("If-Range", etag)));
        let response = client.get_with("/app.js", &headers);
        assert_eq!(response.header("content-encoding"), None);
        assert_eq!(
            response.field("vary"),
            "Accept-Encoding, Available-Dictionary"
        );
        let part = &script(2)[3..10];
        match if_range {
            None => assert_eq!((response.status, &*response.text()), (206, part)),
            // A weak tag selects no range.
            Some(_) => assert_eq!((response.status, response.text()), (200, script(2))),
        }
    }
}

#[test]
fn deltas_survive_a_restart() {
    let (coding, _) = CODINGS[1];
    let site = Site::new("");
    let server = site.launch("auto");
    wait_for_dictionary(server.client());
    drop(server);
    site.change(2);
    let server = site.launch("auto");
    wait_for_delta(server.client(), coding, &script(1));
    drop(server);
    let server = site.launch("auto");
    let available = available(&script(1));
    let headers = [
        ("Accept-Encoding", coding),
        ("Available-Dictionary", &available),
    ];
    let second = server.client().get_with("/app.js", &headers);
    assert_eq!(decoded(coding, &second.body, &script(1)), script(2));
}

#[test]
fn others_get_the_whole_file() {
    let site = Site::new("compress_codings = [\"zstd\"]\n");
    let server = site.launch("auto");
    wait_for_dictionary(server.client());
    site.change(2);
    wait_for_delta(server.client(), "dcz", &script(1));
    let mut client = server.client();
    let own = available(&script(1));
    let other = available("something else");
    for (accepted, available) in [
        ("*", &*own),
        ("dcb", &own),
        ("dcz;q=0", &own),
        ("dcz", &other),
        ("dcz", ":AAAA:"),
        ("dcz", ""),
    ] {
        let headers = [
            ("Accept-Encoding", accepted),
            ("Available-Dictionary", available),
        ];
        let response = client.get_with("/app.js", &headers);
        let coding = response.header("content-encoding");
        assert_ne!(coding, Some("dcz"), "{accepted} {available}");
        if coding.is_none() {
            assert_eq!(response.text(), script(2));
        }
    }
    let plain = client.get("/app.js");
    assert_eq!(plain.text(), script(2));
    assert_eq!(plain.field("vary"), "Accept-Encoding, Available-Dictionary");
}

#[test]
fn a_damaged_dictionary_is_not_used() {
    let (coding, _) = CODINGS[0];
    let site = Site::new("");
    let server = site.launch("auto");
    wait_for_dictionary(server.client());
    let is_dictionary = |path: &Path| path.extension().is_some_and(|end| end == "dict");
    let names = || fs::read_dir(site.store.path()).expect("the folder");
    let paths = || names().map(|entry| entry.expect("an entry").path());
    let dictionary = paths()
        .find(|path| is_dictionary(path))
        .expect("it is kept");
    let mut content = fs::read(&dictionary).expect("it is readable");
    content[100] ^= 1;
    fs::write(&dictionary, content).expect("it is writable");
    site.change(2);
    let available = available(&script(1));
    let headers = [
        ("Accept-Encoding", coding),
        ("Available-Dictionary", &available),
    ];
    let mut client = server.client();
    wait_until("the damaged dictionary is removed", || {
        let response = client.get_with("/app.js", &headers);
        assert_ne!(response.header("content-encoding"), Some(coding));
        !dictionary.exists()
    });
    for _ in 0..2 * REQUESTS {
        let response = client.get_with("/app.js", &headers);
        assert_ne!(response.header("content-encoding"), Some(coding));
    }
}

#[test]
fn each_path_has_its_own_dictionaries() {
    let (coding, _) = CODINGS[0];
    let site = Site::new("");
    let other = site.tree.file("other.js", script(3));
    age(&other, Duration::from_secs(100));
    let server = site.launch("auto");
    wait_for_dictionary(server.client());
    let available = available(&script(1));
    let headers = [
        ("Accept-Encoding", coding),
        ("Available-Dictionary", &available),
    ];
    let mut client = server.client();
    for _ in 0..2 * REQUESTS {
        client.get_with("/other.js", &headers);
    }
    // Made after the other would have been.
    site.change(2);
    wait_for_delta(server.client(), coding, &script(1));
    let response = client.get_with("/other.js", &headers);
    assert_ne!(response.header("content-encoding"), Some(coding));
}

#[test]
fn chromium_decodes_deltas() {
    for (coding, configured) in CODINGS {
        let mut site = Site::new(&format!(
            "compress_codings = [\"{configured}\"]\n\
             [[site.route]]\npath = \"/app.js\"\n\
             headers = {{ set = {{ Cache-Control = \"max-age=600\" }} }}\n\
             [[site.route]]\npath = \"/*\"\nproxy = \"app\"\n"
        ));
        let backend = changing(&site, coding);
        // Its answer to `/end` comes last, and meanwhile no connection to it is idle for too long.
        let patience = IDLE_WAIT_MAX.as_secs();
        site.tables = format!(
            "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\nkeep_alive = 0\n\
             first_byte_timeout = \"{patience}s\"\n",
            backend.address()
        );
        let server = site.launch("auto");
        let page = chromium(IDLE_WAIT_MAX, &url(&server, "/"));
        assert!(page.contains(&format!(">{coding} decoded")), "{coding}");
    }
}

/// A backend with the page that loads the file. When the page asks for that, it changes the file, and waits for the delta from the
/// version before: a browser that got the new version as it is would take that for its dictionary.
fn changing(site: &Site, coding: &'static str) -> Scripted {
    let version = AtomicUsize::new(1);
    let folder = site.tree.path().to_owned();
    let (reported, end) = mpsc::channel();
    let end = Mutex::new(end);
    Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            match &*request.target {
                "/" => send_page(conn, "dictionary.html"),
                "/change" => {
                    let server = || Client::to(request.field("host").expect("Host"));
                    wait_for_dictionary(server());
                    let before = version.fetch_add(1, Ordering::Relaxed);
                    replace(&folder, before + 1);
                    wait_for_delta(server(), coding, &script(before));
                    conn.answer("200 OK", script(before + 1));
                }
                "/reported" => {
                    conn.answer("200 OK", "");
                    reported.send(()).expect("a receiver");
                }
                "/end" => {
                    let end = end.lock().expect("one end");
                    end.recv_timeout(IDLE_WAIT_MAX).expect("a report");
                    conn.answer("404 Not Found", "");
                }
                // The browser asks for an icon as well.
                _ => {
                    conn.answer("404 Not Found", "");
                }
            }
        }
    })
}
