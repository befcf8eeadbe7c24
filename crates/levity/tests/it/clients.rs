//! Programs that people use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use crate::names::odd_files;
use crate::support::{Launch, Server, Tree, assert_same, is_root, per_engine, wait_until};

/// How long a program may run that has little to do.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Runs a program that must be there, for `limit` at most.
#[track_caller]
pub fn run(limit: Duration, program: &str, arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new("timeout");
    command
        .arg(limit.as_secs().to_string())
        .arg(program)
        .args(arguments)
        .current_dir(folder);
    let output = command.output().expect("timeout of coreutils");
    // `timeout` exits so when there is no such program.
    let missing = output.status.code() == Some(127);
    assert!(
        !missing,
        "no {program}: run `cargo xtask test`, which installs it"
    );
    output
}

/// A file or folder of the packages that `cargo xtask test` installs from npm.
#[track_caller]
pub fn package(name: &str) -> PathBuf {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node/node_modules");
    let path = packages.join(name);
    assert!(path.exists(), "no {name}: run `cargo xtask test`");
    path.canonicalize().expect("a path")
}

/// Runs `script` of `tests/apps/node`, which may use packages. It must succeed, and its standard output is given.
#[track_caller]
pub fn node(limit: Duration, script: &str, arguments: &[&str]) -> String {
    let folder = Tree::new();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/node");
    // Node.js looks for packages where a script is, not where a link to it is.
    for entry in fs::read_dir(scripts).expect("a folder of scripts") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "mjs") {
            let name = path.file_name().expect("a name").to_owned();
            folder.file(name, fs::read(path).expect("read"));
        }
    }
    folder.link(package(""), "node_modules");
    let output = run(
        limit,
        "node",
        &[&[script], arguments].concat(),
        folder.path(),
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Builds `source`, a file in Go, as a program in `folder`, and gives its path. Debian's packages of Go are for builds without
/// modules.
#[track_caller]
pub fn build_go(source: &Path, folder: &Tree) -> String {
    let program = folder.at("program");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(source);
    build
        .env("GO111MODULE", "off")
        .env("GOPATH", "/usr/share/gocode")
        .env("GOCACHE", folder.at("cache"))
        .env("GOTOOLCHAIN", "local")
        .current_dir(folder.path());
    let built = build
        .output()
        .expect("go, which `cargo xtask test --full` installs");
    let stderr = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{stderr}");
    program.display().to_string()
}

/// Opens a page in Chromium, and gives its document once it is complete.
#[track_caller]
pub fn chromium(limit: Duration, url: &str) -> String {
    chromium_in("UTC", limit, url)
}

/// In the same way with the local time of `zone`.
#[track_caller]
fn chromium_in(zone: &str, limit: Duration, url: &str) -> String {
    chromium_at_home(&Tree::new(), &[&format!("TZ={zone}")], &[], limit, url)
}

/// In the same way for a user whose folder is `profile`, with variables of the environment and flags.
#[track_caller]
pub fn chromium_at_home(
    profile: &Tree,
    environment: &[&str],
    flags: &[&str],
    limit: Duration,
    url: &str,
) -> String {
    let profile_flag = format!("--user-data-dir={}", profile.path().display());
    let fixed = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-proxy-server",
        "--autoplay-policy=no-user-gesture-required",
        &profile_flag,
        "--dump-dom",
    ];
    let words = [environment, &fixed, flags, &[url]].concat();
    let output = run(limit, "env", &words, profile.path());
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    // The test that fails tells what is missing in it.
    eprintln!("{page}\n{}", String::from_utf8_lossy(&output.stderr));
    page
}

/// Runs curl, which must succeed, and gives its standard output.
#[track_caller]
pub fn curl(arguments: &[&str], folder: &Path) -> Vec<u8> {
    let arguments = [
        &["--silent", "--show-error", "--fail", "--noproxy", "*"],
        arguments,
    ]
    .concat();
    let output = run(TIME_MAX, "curl", &arguments, folder);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl: {}: {stderr}", output.status);
    output.stdout
}

pub fn url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address())
}

per_engine! {
    fn curl_downloads(engine) {
        let (tree, to) = (Tree::new(), Tree::new());
        let bytes = tree.filled("file.bin", 3_000_000);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let url = url(&server, "/file.bin");
        assert_same(&curl(&[&url], to.path()), &bytes);
        assert_same(&curl(&["--range", "1000-1999", &url], to.path()), &bytes[1000..2000]);
        let parts = curl(&["--range", "1000-1999,2000000-2999999", "--include", &url], to.path());
        assert!(memchr::memmem::find(&parts, b"Content-Type: multipart/byteranges; boundary=").is_some());
        for part in [&bytes[1000..2000], &bytes[2_000_000..]] {
            assert!(memchr::memmem::find(&parts, &[b"\r\n\r\n", part, b"\r\n--"].concat()).is_some());
        }
        let head = String::from_utf8(curl(&["--head", &url], to.path())).expect("a head in UTF-8");
        assert!(head.contains("Content-Length: 3000000\r\n"), "{head}");
        to.file("part", &bytes[..1_234_567]);
        curl(&["--continue-at", "-", "--output", "part", &url], to.path());
        assert_same(&fs::read(to.at("part")).expect("read"), &bytes);
    }
}

per_engine! {
    fn aria2_downloads_with_16_connections(engine) {
        let (tree, to) = (Tree::new(), Tree::new());
        let bytes = tree.filled("file.bin", 40_000_000);
        tree.evict("file.bin");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let arguments = ["--max-connection-per-server=16", "--split=16", "--min-split-size=1M"];
        let others = ["--no-conf", "--no-netrc", "--file-allocation=none", "--quiet"];
        let url = url(&server, "/file.bin");
        let output = run(TIME_MAX, "aria2c", &[&arguments[..], &others, &[&url]].concat(), to.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_same(&fs::read(to.at("file.bin")).expect("read"), &bytes);
    }

    /// It asks for the blocks that the old file lacks, up to 20 ranges at a time.
    fn zsync_downloads_what_has_changed(engine) {
        let (tree, to) = (Tree::new(), Tree::new());
        let mut bytes = tree.filled("old", 3_000_000);
        to.file("old", &bytes);
        for changed in 0..60 {
            bytes[changed * 50_000..][..100].fill(changed as u8);
        }
        tree.file("new", &bytes);
        let server = Launch::site(tree.path(), "[log]\naccess = \"stdout\"\n", "").engine(engine).start();
        let url = url(&server, "/new");
        let made = run(TIME_MAX, "zsyncmake", &["-u", &url, "-o", "new.zsync", "new"], tree.path());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let output = run(TIME_MAX, "zsync", &["-q", "-i", "old", &format!("{url}.zsync")], to.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_same(&fs::read(to.at("new")).expect("read"), &bytes);
        server.prints("\"GET /new HTTP/1.1\" 206");
        let parts = server.stdout().matches("\" 206 ").count();
        // Each answer has several parts.
        assert!((1..20).contains(&parts), "{}", server.stdout());
    }
}

#[test]
fn curl_asks_whether_a_file_has_changed() {
    let (tree, to) = (Tree::new(), Tree::new());
    tree.file("file", "content");
    let server = Launch::serve(tree.path()).start();
    let url = url(&server, "/file");
    let arguments = [
        "--etag-save",
        "tag",
        "--etag-compare",
        "tag",
        "--write-out",
        "%{http_code}",
        &url,
    ];
    assert_eq!(curl(&arguments, to.path()), b"content200");
    assert_eq!(curl(&arguments, to.path()), b"304");
}

/// The recipe of docs/tasks/digests.md.
#[test]
fn curl_checks_a_download() {
    let (tree, to) = (Tree::new(), Tree::new());
    let bytes = tree.filled("image.iso", 3_000_000);
    let server = Launch::site(tree.path(), "", "digest = true").start();
    let url = url(&server, "/image.iso");
    let want = ["--header", "Want-Repr-Digest: sha-256=1"];
    let name = "Repr-Digest: sha-256=:";
    let mut said = String::new();
    wait_until("the digest is known", || {
        let head = curl(&[&want[..], &["--head", &url]].concat(), to.path());
        said = String::from_utf8(head).expect("a head in UTF-8");
        said.contains(name)
    });
    curl(&["--output", "image.iso", &url], to.path());
    assert_same(&fs::read(to.at("image.iso")).expect("read"), &bytes);
    let sum = "openssl dgst -sha256 -binary image.iso | base64";
    let sum = run(TIME_MAX, "sh", &["-c", sum], to.path()).stdout;
    let sum = String::from_utf8(sum).expect("text");
    assert!(
        said.contains(&format!("{name}{}:\r\n", sum.trim_end())),
        "{said}"
    );
}

#[test]
fn curl_uploads_in_vain() {
    let (tree, to) = (Tree::new(), Tree::new());
    to.filled("upload", 3_000_000);
    let server = Launch::serve(tree.path()).start();
    for (size, status) in [("upload", "413"), ("small", "405")] {
        to.file("small", "x".repeat(100_000));
        let arguments = [
            "--silent",
            "--noproxy",
            "*",
            "--output",
            "answer",
            "--write-out",
            "%{http_code}",
        ];
        let url = url(&server, "/upload");
        let output = run(
            TIME_MAX,
            "curl",
            &[&arguments[..], &["--upload-file", size, &url]].concat(),
            to.path(),
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), status);
    }
}

/// What is in the files beneath `folder`, but for the pages that wget leaves behind. Not their names:
/// wget decodes those twice when it saves a file.
fn contents(folder: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("index.html.tmp") {
                found.push(fs::read(&path).expect("read"));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn wget_mirrors_the_whole_tree() {
    let (tree, to) = (Tree::new(), Tree::new());
    odd_files(&tree, "odd names");
    tree.filled("a/b/c/large", 1_000_000);
    tree.file("a/empty", "");
    let server = Launch::serve(tree.path()).start();
    let url = url(&server, "/");
    let arguments = [
        "--recursive",
        "--level=inf",
        "--no-parent",
        "--no-host-directories",
        "--no-verbose",
        "--no-proxy",
        "--execute=robots=off",
        "--restrict-file-names=nocontrol",
        "--reject=index.html",
        "--tries=1",
        &url,
    ];
    let output = run(TIME_MAX, "wget", &arguments, to.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(contents(to.path()) == contents(tree.path()), "{said}");
}

#[test]
fn chromium_shows_a_listing() {
    let tree = Tree::new();
    odd_files(&tree, "");
    tree.folder("sub folder");
    let server = Launch::serve(tree.path()).start();
    let page = chromium(TIME_MAX, &url(&server, "/"));
    for shown in [
        ">plain<",
        ">caf\u{e9}<",
        ">a&amp;b;c=d<",
        ">&lt;a&gt;<",
        ">sub folder/<",
        ">a b<",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

/// A page beside the listing may look into it, and clicks. It writes what it sees into its own document.
const DRIVER: &str = "<!doctype html><iframe src=\"/d/\"></iframe><pre></pre><script>
const frame = document.querySelector('iframe'), out = [];
frame.onload = () => {
  const page = frame.contentDocument;
  const names = () => [...page.querySelectorAll('tbody a')].map(link => link.textContent).join(' ');
  const click = number => page.querySelectorAll('th button')[number].click();
  out.push([...page.querySelectorAll('th')].map(head => head.textContent).join(' '));
  out.push(page.querySelector('time').textContent);
  out.push(names());
  for (const number of [0, 1, 1, 2, 0]) {
    click(number);
    const sorted = page.querySelector('th[aria-sort]');
    out.push(names() + ' ' + sorted.textContent + ' ' + sorted.getAttribute('aria-sort'));
  }
  document.querySelector('pre').textContent = out.join('\\n');
};
</script>";

#[test]
fn chromium_sorts_a_listing_and_shows_local_time() {
    let tree = Tree::new();
    tree.file("driver.html", DRIVER);
    for (number, name) in ["d/file10", "d/file2", "d/B", "d/a", "d/folder/x"]
        .iter()
        .enumerate()
    {
        tree.file(name, "x".repeat(number * 1000));
    }
    let set = |name: &str, hours: u64| {
        let time = UNIX_EPOCH + Duration::from_secs(1_795_203_727 + hours * 3600);
        let file = fs::File::open(tree.at(name)).expect("a file");
        file.set_modified(time).expect("a time");
    };
    for (hours, name) in ["d/folder", "d/B", "d/file10", "d/a", "d/file2"]
        .iter()
        .enumerate()
    {
        set(name, hours as u64);
    }
    let server = Launch::site(tree.path(), "", "listing = true").start();
    let page = chromium_in("Asia/Tokyo", TIME_MAX, &url(&server, "/driver.html"));
    let (_, seen) = page.split_once("<pre>").expect("a page");
    let (seen, _) = seen.split_once("</pre>").expect("a page");
    let expected = [
        "Name Size Modified",
        "2026-11-21 04:42",
        "../ folder/ a B file2 file10",
        "../ file10 file2 B a folder/ Name descending",
        "../ a B file2 file10 folder/ Size descending",
        "../ folder/ file10 file2 B a Size ascending",
        "../ file2 a file10 B folder/ Modified descending",
        "../ folder/ a B file2 file10 Name ascending",
    ];
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
}

/// Names that each of these programs keeps.
fn tree_for_clients() -> Tree {
    let tree = Tree::new();
    for name in [
        "a b",
        "c&d;e=f",
        "50% off",
        "#hash",
        "caf\u{e9}",
        "a:b",
        "<b>",
        "sub folder/deep/x",
    ] {
        tree.file(format!("t/{name}"), name);
    }
    tree.filled("t/sub folder/large", 300_000);
    tree.file(
        "t/README.md",
        "a [link](x) and <a href=\"nowhere\">another</a>",
    );
    // What a client would list only if it went up.
    tree.file("outside", "x");
    tree
}

/// Expects the files of both folders to be the same, by `diff`.
#[track_caller]
fn assert_mirrored(from: &Path, to: &Path) {
    let [from, to] = [from, to].map(|path| path.to_str().expect("a path in UTF-8"));
    let output = run(TIME_MAX, "diff", &["-r", from, to], Path::new("/"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

#[test]
fn rclone_copies_a_tree() {
    let (tree, to) = (tree_for_clients(), Tree::new());
    let server = Launch::serve(tree.path()).start();
    let from = ["--config", "/dev/null", "--http-url", &url(&server, "/t/")];
    let copy = [&["copy", ":http:", "copied"], &from[..]].concat();
    let output = run(TIME_MAX, "rclone", &copy, to.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_mirrored(&tree.at("t"), &to.at("copied"));
    // Sizes and times are known, so a second run has nothing to do.
    let check = [&["check", ":http:", "copied", "--size-only"], &from[..]].concat();
    let output = run(TIME_MAX, "rclone", &check, to.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("0 differences found"), "{said}");
}

#[test]
fn lftp_mirrors_a_tree() {
    let (tree, to) = (tree_for_clients(), Tree::new());
    let server = Launch::serve(tree.path()).start();
    let commands = format!(
        "set net:max-retries 1; set net:timeout 10; mirror {} mirrored",
        url(&server, "/t/")
    );
    for _ in 0..2 {
        let output = run(TIME_MAX, "lftp", &["--norc", "-c", &commands], to.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_mirrored(&tree.at("t"), &to.at("mirrored"));
    }
}

/// A file system that httpdirfs has made of a listing.
struct Mounted {
    program: Child,
    at: Tree,
}

impl Mounted {
    /// Returns once it is there.
    #[track_caller]
    fn new(url: &str) -> Self {
        let at = Tree::new();
        let below = fs::metadata(at.path()).expect("a folder").dev();
        let mut command = Command::new("httpdirfs");
        command.arg("-f").arg(url).arg(at.path());
        // It describes each call.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let program = command.spawn();
        let program = program.expect("httpdirfs: run `cargo xtask test`, which installs it");
        let mounted = Self { program, at };
        wait_until("a mount", || {
            fs::metadata(mounted.at.path()).is_ok_and(|now| now.dev() != below)
        });
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut unmount = Command::new("fusermount");
        // Its end ends the program too.
        let done = unmount.arg("-u").arg(self.at.path()).status();
        if !done.is_ok_and(|status| status.success()) {
            let _ = self.program.kill();
        }
        let _ = self.program.wait();
    }
}

#[test]
fn httpdirfs_mounts_a_tree() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        println!("left out: no right to mount");
        return;
    }
    let tree = tree_for_clients();
    let server = Launch::serve(tree.path()).start();
    let mounted = Mounted::new(&url(&server, "/t/"));
    assert_mirrored(&tree.at("t"), mounted.at.path());
}

#[test]
fn htmllistparse_reads_a_listing() {
    const PROGRAM: &str = "import sys, htmllistparse\n\
        folder, entries = htmllistparse.fetch_listing(sys.argv[1])\n\
        print(folder)\n\
        for entry in entries: print(entry.name, entry.size, entry.modified is not None)\n";
    let (tree, to) = (tree_for_clients(), Tree::new());
    let server = Launch::serve(tree.path()).start();
    let read = |path: &str| {
        let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python");
        let packages = format!("PYTHONPATH={}", packages.display());
        let url = url(&server, path);
        let arguments = [
            &*packages,
            "no_proxy=*",
            "/usr/bin/python3",
            "-c",
            PROGRAM,
            &url,
        ];
        let output = run(TIME_MAX, "env", &arguments, to.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(
        read("/t/sub%20folder/"),
        "/t/sub folder/\ndeep/ None True\nlarge 300000 True\n"
    );
    let names = "#hash 5\n50% off 7\n<b> 3\na b 3\na:b 3\nc&d;e=f 7\ncaf\u{e9} 5\nREADME.md 45\n";
    let expected = format!("/t/\nsub folder/ None\n{names}").replace('\n', " True\n");
    assert_eq!(read("/t/"), expected.replacen(" True", "", 1));
}
