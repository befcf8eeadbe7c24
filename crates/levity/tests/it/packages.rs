//! Package managers, for which a folder of files is a repository.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime};

use crate::clients::{run, url};
use crate::support::{Launch, Server, Tree, assert_same, per_engine, sha256, wait_until};

const TIME_MAX: Duration = Duration::from_secs(60);

/// Runs a program with nothing in its environment but these settings.
#[track_caller]
fn ran(settings: &[&str], words: &[&str], folder: &Path) -> Output {
    let home = format!("HOME={}", folder.display());
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("PATH={path}:/usr/sbin:/sbin");
    let own = ["-i", "LC_ALL=C.UTF-8", &home, &path];
    run(TIME_MAX, "env", &[&own, settings, words].concat(), folder)
}

/// The same of a program that must succeed; gives its standard output.
#[track_caller]
fn succeeds(settings: &[&str], words: &[&str], folder: &Path) -> String {
    let output = ran(settings, words, folder);
    let [said, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{said}{complained}");
    said
}

const CONTROL: &str = "Package: levity-test\nVersion: 1.0\nArchitecture: all\n\
    Maintainer: Nobody <nobody@example.org>\nDescription: a package for a test\n";

/// Makes the package of the folder `package`, and a repository of it. The lists of packages have no other names than those
/// by their hashes.
const REPOSITORY: &str = "set -e\n\
    mkdir -p pool dists/stable/main/binary-all\n\
    dpkg-deb --root-owner-group -Znone --build package pool\n\
    rm -r package\n\
    apt-ftparchive packages pool >dists/stable/main/binary-all/Packages\n\
    cp -r dists/stable/main/binary-all \"dists/stable/main/binary-$(dpkg --print-architecture)\"\n\
    apt-ftparchive -o APT::FTPArchive::Release::Codename=stable -o APT::FTPArchive::Release::Components=main \
    -o \"APT::FTPArchive::Release::Architectures=all $(dpkg --print-architecture)\" \
    -o APT::FTPArchive::Release::Acquire-By-Hash=yes release dists/stable >Release\n\
    mv Release dists/stable\n\
    for folder in dists/stable/main/*; do\n\
    sum=$(sha512sum <\"$folder/Packages\" | cut -d ' ' -f 1)\n\
    mkdir -p \"$folder/by-hash/SHA512\"\n\
    mv \"$folder/Packages\" \"$folder/by-hash/SHA512/$sum\"\n\
    done\n\
    find . -type f -exec touch --date='1 hour ago' '{}' +\n";

const DEB: &str = "levity-test_1.0_all.deb";

fn repository() -> Tree {
    let tree = Tree::new();
    tree.file("package/DEBIAN/control", CONTROL);
    tree.filled("package/usr/share/levity-test/data", 300_000);
    succeeds(&[], &["sh", "-c", REPOSITORY], tree.path());
    // Files of this test are new for a moment.
    tree.file("made", "");
    tree
}

/// apt with folders of its own: it neither reads nor changes those of the system.
struct Apt(Tree);

impl Apt {
    fn new(server: &Server) -> Self {
        let own = Tree::new();
        for folder in [
            "state/lists/partial",
            "cache/archives/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/sources.list.d",
            "etc/trusted.gpg.d",
        ] {
            own.folder(folder);
        }
        let source = format!("deb [trusted=yes] {} stable main\n", url(server, "/"));
        own.file("etc/sources.list", source);
        own.file("status", "");
        let root = own.path().display();
        let config = format!(
            "Dir \"{root}/\";\nDir::Etc \"etc\";\nDir::State \"state\";\nDir::State::status \"{root}/status\";\n\
             Dir::Cache \"cache\";\nDir::Log \"{root}\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n\
             Acquire::http::Proxy \"DIRECT\";\nAcquire::Retries \"0\";\n"
        );
        own.file("apt.conf", config);
        Self(own)
    }

    #[track_caller]
    fn get(&self, words: &[&str]) -> String {
        let config = format!("APT_CONFIG={}", self.0.at("apt.conf").display());
        let settings = [&*config, "DEBIAN_FRONTEND=noninteractive"];
        succeeds(&settings, &[&["apt-get"], words].concat(), self.0.path())
    }
}

/// Updates, of which the second finds nothing new, and downloads, of which the second continues one.
fn assert_apt_works(launch: impl FnOnce(Launch) -> Launch) {
    let tree = repository();
    let pool = tree.at("pool").join(DEB);
    let deb = fs::read(&pool).expect("read");
    let server = launch(Launch::site(tree.path(), "", "")).start();
    let apt = Apt::new(&server);
    let release = "\"GET /dists/stable/Release HTTP/1.1\"";
    apt.get(&["update"]);
    server.prints(&format!("{release} 200"));
    server.prints("/binary-all/by-hash/SHA512/");
    let again = apt.get(&["update"]);
    assert!(again.contains("Hit:"), "{again}");
    server.prints(&format!("{release} 304"));

    apt.get(&["download", "levity-test"]);
    assert_same(&fs::read(apt.0.at(DEB)).expect("read"), &deb);

    // What an interrupted download has left behind, with the time of the whole.
    let archives = apt.0.at("cache/archives");
    let part = format!("cache/archives/partial/{DEB}");
    let part = apt.0.fresh(part, &deb[..100_000]);
    let modified = fs::metadata(&pool).and_then(|metadata| metadata.modified());
    set_modified(&part, modified.expect("a time"));
    apt.get(&["install", "--yes", "--download-only", "levity-test"]);
    assert_same(&fs::read(archives.join(DEB)).expect("read"), &deb);
    let rest = deb.len() - 100_000;
    server.prints(&format!("\"GET /pool/{DEB} HTTP/1.1\" 206 {rest}"));
}

per_engine! {
    fn apt_updates_and_downloads(engine) {
        assert_apt_works(|launch| launch.engine(engine));
    }
}

/// A disk with one head, which takes its time for each file and each piece of one.
#[test]
fn apt_updates_and_downloads_from_a_slow_disk() {
    assert_apt_works(|launch| {
        let slow = launch.engine("simulated");
        slow.environment("LEVITY_SIMULATED", "seek_ms=100")
    });
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(time).expect("utimes");
}

/// Wheels of a module, one per version.
const WHEELS: &str = "import sys, zipfile\n\
    for version in sys.argv[1:]:\n    \
    info = f'levity_test-{version}.dist-info'\n    \
    files = {\n        \
    'levity_test.py': f'version = \"{version}\"\\n',\n        \
    f'{info}/METADATA': f'Metadata-Version: 2.1\\nName: levity-test\\nVersion: {version}\\n',\n        \
    f'{info}/WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',\n    \
    }\n    \
    files[f'{info}/RECORD'] = ''.join(f'{name},,\\n' for name in [*files, f'{info}/RECORD'])\n    \
    with zipfile.ZipFile(f'levity_test-{version}-py3-none-any.whl', 'w') as wheel:\n        \
    for name, text in files.items(): wheel.writestr(name, text)\n";

fn wheel(version: &str) -> String {
    format!("levity_test-{version}-py3-none-any.whl")
}

/// An index that is a listing, and two with pages of their own, of which one has a wrong hash.
fn index() -> (Tree, Vec<u8>) {
    let tree = Tree::new();
    let made = tree.folder("made");
    succeeds(
        &[],
        &["/usr/bin/python3", "-c", WHEELS, "1.0", "1.1"],
        &made,
    );
    let [old, new] =
        ["1.0", "1.1"].map(|version| fs::read(made.join(wheel(version))).expect("read"));
    tree.file(format!("simple/levity-test/{}", wheel("1.0")), &old);
    tree.file(format!("simple/levity-test/{}", wheel("1.1")), &new);
    for (folder, hashed) in [("hashed", &new), ("wrong", &old)] {
        let name = wheel("1.1");
        let link = format!("<a href=\"{name}#sha256={}\">{name}</a>", sha256(hashed));
        tree.file(
            format!("{folder}/levity-test/index.html"),
            format!("<!DOCTYPE html><html><body>{link}</body></html>"),
        );
        tree.file(format!("{folder}/levity-test/{name}"), &new);
    }
    (tree, new)
}

/// The arguments of pip that fetch the newest version from an index into `to`.
fn pip<'a>(index: &'a str, to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let program = ["/usr/bin/python3", "-m", "pip", "--isolated", "download"];
    let fixed = ["--disable-pip-version-check", "--no-deps", "--index-url"];
    [
        &program[..],
        &fixed,
        &[index, "--dest", to],
        more,
        &["levity-test"],
    ]
    .concat()
}

#[test]
fn pip_downloads_from_an_index() {
    const SETTINGS: [&str; 1] = ["PIP_CONFIG_FILE=/dev/null"];
    let ((tree, new), own) = (index(), Tree::new());
    let server = Launch::site(tree.path(), "", "listing = true").start();
    let fetched = |to: &str| fs::read(own.at(to).join(wheel("1.1"))).expect("read");
    let simple = url(&server, "/simple");
    succeeds(
        &SETTINGS,
        &pip(&simple, "once", &["--no-cache-dir"]),
        own.path(),
    );
    assert_same(&fetched("once"), &new);

    // Without TLS, pip keeps what comes from a host that it is told to trust.
    let keeps = ["--cache-dir", "cache", "--trusted-host", "127.0.0.1"];
    for to in ["first", "again"] {
        succeeds(&SETTINGS, &pip(&simple, to, &keeps), own.path());
        assert_same(&fetched(to), &new);
    }
    let path = format!("/simple/levity-test/{} HTTP/1.1\"", wheel("1.1"));
    server.prints(&format!("{path} 304"));
    assert_eq!(server.stdout().matches(&format!("{path} 200")).count(), 2);

    let hashed = url(&server, "/hashed/");
    succeeds(
        &SETTINGS,
        &pip(&hashed, "hashed", &["--no-cache-dir"]),
        own.path(),
    );
    assert_same(&fetched("hashed"), &new);
    let wrong = url(&server, "/wrong/");
    let output = ran(
        &SETTINGS,
        &pip(&wrong, "wrong", &["--no-cache-dir"]),
        own.path(),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("DO NOT MATCH THE HASHES"), "{said}");
}

/// What docs/tasks/packages.md says about npm.
const REGISTRY: &str = "index = [\"index.json\"]\n\
    [[site.route]]\nregex = \"^/@([^/]+)(?i:%2f)([^/]+)$\"\nreroute = \"/@{1}/{2}/\"";

/// Makes a package with its metadata. The metadata has the URL of the registry in it.
fn publish(tree: &Tree, server: &Server, name: &str) {
    let files = Tree::new();
    let version = format!("\"name\":\"{name}\",\"version\":\"1.0.0\"");
    files.file(
        "package/package.json",
        format!("{{{version},\"main\":\"main.js\"}}"),
    );
    files.file("package/main.js", format!("module.exports = '{name}';\n"));
    let pack =
        "tar -czf package.tgz package && openssl dgst -sha512 -binary package.tgz | base64 -w 0";
    let sum = succeeds(&[], &["sh", "-c", pack], files.path());
    let tarball = format!("{name}/package-1.0.0.tgz");
    tree.file(&tarball, fs::read(files.at("package.tgz")).expect("read"));
    let dist = format!(
        "{{\"tarball\":\"{}\",\"integrity\":\"sha512-{sum}\"}}",
        url(server, &format!("/{tarball}"))
    );
    tree.file(
        format!("{name}/index.json"),
        format!(
            "{{\"name\":\"{name}\",\"dist-tags\":{{\"latest\":\"1.0.0\"}},\
             \"versions\":{{\"1.0.0\":{{{version},\"dist\":{dist}}}}}}}"
        ),
    );
}

#[test]
fn npm_installs_from_a_registry() {
    let (tree, own) = (Tree::new(), Tree::new());
    let server = Launch::site(tree.path(), "", REGISTRY).start();
    let names = ["levity-test", "@levity/test"];
    for name in names {
        publish(&tree, &server, name);
    }
    own.file("package.json", "{\"private\":true}");
    let registry = url(&server, "/");
    let npm = |words: &[&str]| {
        let fixed = ["--cache", "cache", "--fetch-retries", "0", "--no-audit"];
        let more = ["--no-fund", "--no-update-notifier", "--registry", &registry];
        let words = [&["npm"], words, &fixed, &more].concat();
        succeeds(&[], &words, own.path());
        let program = format!(
            "console.log(require('{}'), require('{}'))",
            names[0], names[1]
        );
        let said = succeeds(&[], &["node", "-e", &program], own.path());
        assert_eq!(said, "levity-test @levity/test\n");
    };
    npm(&["install", "levity-test", "@levity/test"]);
    server.prints("\"GET /@levity%2ftest HTTP/1.1\" 200");
    server.prints("\"GET /levity-test HTTP/1.1\" 301");
    server.prints("\"GET /levity-test/ HTTP/1.1\" 200");
    npm(&["ci"]);
    // Without what it has kept, each tarball comes again.
    fs::remove_dir_all(own.at("cache")).expect("a cache");
    npm(&["ci"]);
    let tarball = "\"GET /@levity/test/package-1.0.0.tgz HTTP/1.1\" 200";
    wait_until("each tarball came twice", || {
        server.stdout().matches(tarball).count() == 2
    });
    npm(&["install", "--prefer-online", "@levity/test"]);
    npm(&["update", "--prefer-online"]);
    server.prints("\"GET /@levity%2ftest HTTP/1.1\" 304");
}
