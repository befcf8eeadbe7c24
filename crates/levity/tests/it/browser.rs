//! What build tools and players make for browsers, in Chromium. `cargo xtask test` installs them from npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::clients::{chromium, package, run, url};
use crate::support::scripted::Scripted;
use crate::support::{Launch, Server, Tree};

const TIME_MAX: Duration = Duration::from_secs(60);

/// A page that has not reported until then is shown as it is.
const REPORT_MAX: Duration = Duration::from_secs(40);

/// A file of this repository.
fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/node");
    folder.join(name)
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Holds up the image `/end` of a page, and with it the page, until that has asked for `/reported`.
pub fn held() -> Scripted {
    let (reported, end) = mpsc::channel();
    let end = Mutex::new(end);
    Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            if request.target == "/reported" {
                reported.send(()).expect("a receiver");
            } else {
                let end = end.lock().expect("one end");
                // Without a report the test shows what there is of the page.
                let _ = end.recv_timeout(REPORT_MAX);
            }
            conn.answer("404 Not Found", "");
        }
    })
}

/// A page of the server when it has reported.
#[track_caller]
fn reported(server: &Server, path: &str) -> String {
    let held = held();
    let address = held.address();
    let path = format!("{path}held=http://{address}");
    chromium(TIME_MAX, &url(server, &path))
}

/// The application as Vite builds it.
fn built() -> Tree {
    let tree = Tree::new();
    let (vite, source, own) = (
        package("vite/bin/vite.js"),
        source("spa"),
        tree.folder("dist"),
    );
    let build = ["build", "--outDir", utf8(&own), "--emptyOutDir"];
    // An image this small would become a part of the script.
    let options = ["--assetsInlineLimit", "0", "--logLevel", "warn"];
    let words = [&[utf8(&vite)][..], &build, &options, &[utf8(&source)]].concat();
    let output = run(TIME_MAX, "node", &words, tree.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    tree
}

/// The names of the files that Vite writes with their hashes.
fn assets(dist: &Path) -> Vec<String> {
    let entries = fs::read_dir(dist.join("assets")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect()
}

/// A deep link, and the way back to the other route: with the lazy chunk, its style sheet and its image.
#[track_caller]
fn assert_opens(server: &Server) {
    let page = reported(server, "/reports/7?");
    let seen = "report 7: 8x6 rgb(4, 5, 6), home: rgb(1, 2, 3)";
    assert!(page.contains(seen), "{page}");
}

/// The recipe of docs/tasks/try.md.
#[test]
fn chromium_opens_a_deep_link_into_a_vite_build() {
    let tree = built();
    let dist = tree.at("dist");
    let keys = "try = [\"file\", \"/index.html\"]\n\
        cache = { hashed = \"immutable\", \"text/html\" = \"no-cache\" }\n\
        [[site.route]]\npath = \"/assets/*\"\ntry = [\"file\"]";
    let server = Launch::site(&dist, "", keys).start();
    assert_opens(&server);
    let names = assets(&dist);
    assert_eq!(names.len(), 5, "{names:?}");
    let mut client = server.client();
    for name in names {
        let answer = client.get(&format!("/assets/{name}"));
        answer.assert_status(200);
        let kept = "public, max-age=31536000, immutable";
        assert_eq!(answer.header("cache-control"), Some(kept), "{name}");
    }
    for path in ["/", "/index.html", "/reports/7"] {
        let answer = client.get(path);
        answer.assert_status(200);
        assert_eq!(answer.field("cache-control"), "no-cache", "{path}");
    }
    let gone = client.get("/assets/index-DiwrgTda.js");
    gone.assert_status(404);
    assert_eq!(gone.header("cache-control"), None);
}

#[test]
fn chromium_opens_a_deep_link_into_what_is_served_with_spa() {
    let tree = built();
    let server = Launch::serve(&tree.at("dist")).arguments(["--spa"]).start();
    assert_opens(&server);
    server.get("/assets/index-DiwrgTda.js").assert_status(404);
}

/// Silence in a frame of ADTS (ISO 13818-7): AAC-LC with one channel of 44.1 kHz.
const FRAME: [u8; 13] = [
    0xff, 0xf1, 0x50, 0x40, 0x01, 0xbf, 0xfc, 0x00, 0xc8, 0x00, 0x80, 0x23, 0x80,
];
const FRAME_SAMPLES: usize = 1024;
const SAMPLES_PER_SECOND: usize = 44_100;

/// About a second.
const FRAGMENT_FRAMES: usize = 43;
const FRAGMENTS: usize = 5;

/// Frames behind the time at which they are played, as HLS wants it of audio without a container (RFC 8216, 3.4).
fn fragment(number: usize) -> Vec<u8> {
    let samples = number * FRAGMENT_FRAMES * FRAME_SAMPLES;
    let ticks = (samples * 90_000 / SAMPLES_PER_SECOND) as u64;
    let owner = b"com.apple.streaming.transportStreamTimestamp\0";
    let private = [&owner[..], &ticks.to_be_bytes()].concat();
    let length = u8::try_from(private.len()).expect("a short frame");
    let mut tag = b"ID3\x04\0\0\0\0\0".to_vec();
    tag.push(length + 10);
    tag.extend(b"PRIV\0\0\0");
    tag.extend([length, 0, 0]);
    [tag, private, FRAME.repeat(FRAGMENT_FRAMES)].concat()
}

/// A playlist whose fragments are ranges of one file.
fn recording(tree: &Tree, folder: &str) {
    let seconds = (FRAGMENT_FRAMES * FRAME_SAMPLES) as f64 / SAMPLES_PER_SECOND as f64;
    let mut playlist = "#EXTM3U\n#EXT-X-VERSION:4\n#EXT-X-TARGETDURATION:1\n".to_owned();
    let mut bytes = Vec::new();
    for number in 0..FRAGMENTS {
        let fragment = fragment(number);
        let range = format!("{}@{}", fragment.len(), bytes.len());
        playlist += &format!("#EXTINF:{seconds:.5},\n#EXT-X-BYTERANGE:{range}\nall.aac\n");
        bytes.extend(fragment);
    }
    playlist += "#EXT-X-ENDLIST\n";
    tree.file(format!("{folder}/index.m3u8"), playlist);
    tree.file(format!("{folder}/all.aac"), bytes);
}

/// A page of one origin, and media of another.
#[test]
fn hls_js_plays_from_another_origin() {
    let (media, page) = (Tree::new(), Tree::new());
    recording(&media, "open");
    recording(&media, "closed");
    for (name, from) in [
        ("index.html", source("hls.html")),
        ("hls.min.js", package("hls.js/dist/hls.min.js")),
    ] {
        page.file(name, fs::read(from).expect("read"));
    }
    let pages = Launch::serve(page.path()).start();
    let origin = format!("http://127.0.0.1:{}", pages.address().port());
    let keys = format!("[[site.route]]\npath = \"/open/*\"\ncors = {{ origins = [\"{origin}\"] }}");
    let server = Launch::site(media.path(), "", &keys).start();
    let played = |folder: &str| {
        let playlist = url(&server, &format!("/{folder}/index.m3u8"));
        reported(&pages, &format!("/?media={playlist}&"))
    };

    let open = played("open");
    assert!(open.contains("fragment 0, fragment 1, "), "{open}");
    assert!(open.contains(", played"), "{open}");
    server.prints("\"GET /open/all.aac HTTP/1.1\" 206");
    assert!(
        !server
            .stdout()
            .contains("\"GET /open/all.aac HTTP/1.1\" 200")
    );
    let closed = played("closed");
    assert!(
        closed.contains(">networkError manifestLoadError<"),
        "{closed}"
    );
    assert!(!server.stdout().contains("/closed/all.aac"));

    for (name, expected) in [
        ("index.m3u8", "application/vnd.apple.mpegurl"),
        ("all.aac", "audio/aac"),
    ] {
        let answer = server.get(&format!("/open/{name}"));
        assert_eq!(answer.field("content-type"), expected);
    }
}
