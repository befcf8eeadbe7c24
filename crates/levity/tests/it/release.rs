//! The files of a release, which `cargo xtask package` makes: what is in them, that they install, run and go.

mod as_root;
mod built;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use levity_config::Feature;
use serde_json::Value;

use crate::clients::run;
use crate::support::Tree;

/// Packing compresses a program that is not optimised for size; lintian reads all of it.
const TIME_MAX: Duration = Duration::from_secs(300);

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a program that must succeed; gives its standard output.
#[track_caller]
fn succeeds(program: &str, arguments: &[&str], folder: &Path) -> String {
    succeeds_within(TIME_MAX, program, arguments, folder)
}

/// The same, within another time.
#[track_caller]
fn succeeds_within(limit: Duration, program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = run(limit, program, arguments, folder);
    let [said, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(
        output.status.success(),
        "{program} {arguments:?}\n{said}{complained}"
    );
    said
}

/// The program of `cargo xtask`. It is not run by cargo, which would write with the settings of a test.
fn xtask() -> &'static str {
    static XTASK: LazyLock<String> = LazyLock::new(|| {
        let build = ["build", "--quiet", "--locked", "--package=xtask"];
        succeeds(env!("CARGO"), &build, &workspace());
        concat!(env!("CARGO_TARGET_TMPDIR"), "/../debug/xtask").to_owned()
    });
    &XTASK
}

/// Packs `program` into `to`, with variables and settings of a shell.
#[track_caller]
fn pack(program: &str, to: &Path, settings: &str) {
    let script = format!("{settings}; exec \"$0\" package --binary \"$1\" --output \"$2\"");
    let to = to.to_str().expect("a path in UTF-8");
    succeeds("sh", &["-c", &script, xtask(), program, to], &workspace());
}

/// The folder with the release of the program under test, without its debug lines, which take longest.
fn release() -> &'static Path {
    static RELEASE: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/levity");
        let strip = ["--strip-debug", env!("CARGO_BIN_EXE_levity"), program];
        succeeds("objcopy", &strip, folder);
        let release = folder.join("release");
        pack(program, &release, "umask 022");
        release
    });
    &RELEASE
}

/// The file of the release with that end.
#[track_caller]
fn file(end: &str) -> String {
    let entries = fs::read_dir(release()).expect("a release");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    let found = found.unwrap_or_else(|| panic!("no *{end} in {}", release().display()));
    found.to_str().expect("a path in UTF-8").to_owned()
}

/// A program that is packed in a moment.
const SMALL: &str = "/bin/true";

/// What has the tools write other bytes.
const VARIABLES: &str = "TZ=Asia/Tokyo LC_ALL=C.UTF-8 GZIP=-1 TAR_OPTIONS=--mode=0700 XZ_DEFAULTS=-1 \
    DPKG_DEB_COMPRESSOR_LEVEL=1 DPKG_DEB_COMPRESSOR_TYPE=gzip DH_ALWAYS_EXCLUDE=levity.toml DEB_BUILD_OPTIONS=nodoc";

#[test]
fn two_packings_have_the_same_bytes() {
    let (one, other) = (Tree::new(), Tree::new());
    let sums = |tree: &Tree, settings| {
        let folder = tree.at("of/a/release");
        pack(SMALL, &folder, settings);
        fs::read_to_string(folder.join("SHA256SUMS")).expect("sums")
    };
    let sums = [
        sums(&one, "umask 022; export TZ=UTC LC_ALL=C"),
        sums(&other, &format!("umask 077; export {VARIABLES}")),
    ];
    assert_eq!(sums[0].lines().count(), 5, "{}", sums[0]);
    assert_eq!(sums[0], sums[1]);
}

#[test]
fn sums_are_those_of_the_files() {
    let folder = release();
    succeeds("sha256sum", &["--check", "--strict", "SHA256SUMS"], folder);
    assert!(!folder.join("levity-work").exists());
}

#[test]
fn the_package_has_what_it_should() {
    let deb = file(".deb");
    let list = succeeds("dpkg-deb", &["--contents", &deb], release());
    for (start, end) in [
        ("-rwxr-xr-x root/root", " ./usr/bin/levity"),
        ("-rw-r--r-- root/root", " ./etc/levity/levity.toml"),
        ("drwxr-xr-x root/root", " ./etc/levity/sites.d/"),
        ("-rw-r--r-- root/root", " ./etc/logrotate.d/levity"),
        ("-rw-r--r-- root/root", "/systemd/system/levity.service"),
        ("-rw-r--r-- root/root", "/systemd/system/levity.socket"),
        (
            "-rw-r--r-- root/root",
            " ./usr/share/levity/welcome/index.html",
        ),
        ("-rw-r--r-- root/root", " ./usr/share/man/man1/levity.1.gz"),
        (
            "-rw-r--r-- root/root",
            " ./usr/share/man/man5/levity.toml.5.gz",
        ),
        (
            "-rw-r--r-- root/root",
            " ./usr/share/bash-completion/completions/levity",
        ),
        (
            "-rw-r--r-- root/root",
            " ./usr/share/zsh/vendor-completions/_levity",
        ),
        (
            "-rw-r--r-- root/root",
            " ./usr/share/fish/vendor_completions.d/levity.fish",
        ),
        ("-rw-r--r-- root/root", " ./usr/share/doc/levity/copyright"),
        ("drwxr-xr-x root/root", " ./var/lib/levity/"),
    ] {
        let mut lines = list.lines();
        let found = lines.any(|line| line.starts_with(start) && line.ends_with(end));
        assert!(found, "no {start}{end} in\n{list}");
    }
    let conffiles = succeeds("dpkg-deb", &["--info", &deb, "conffiles"], release());
    assert_eq!(
        conffiles,
        "/etc/levity/levity.toml\n/etc/logrotate.d/levity\n"
    );
}

#[test]
fn lintian_finds_no_error() {
    succeeds("lintian", &["--fail-on", "error", &file(".deb")], release());
}

#[test]
fn the_tarball_runs_where_it_is_unpacked() {
    let tree = Tree::new();
    let tarball = file("-linux.tar.gz");
    let strip = ["--strip-components=1", "-xzf", &tarball];
    succeeds("tar", &strip, tree.path());
    let program = tree.at("bin/levity");
    let program = program.to_str().expect("a path in UTF-8");
    let version = succeeds(program, &["--version"], tree.path());
    // A release has all features.
    let features: Vec<_> = Feature::ALL.iter().map(|feature| feature.name()).collect();
    let (number, features) = (env!("CARGO_PKG_VERSION"), features.join(" "));
    assert_eq!(version, format!("levity {number}\nfeatures: {features}\n"));
    let mode = fs::metadata(program).expect("a program").permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    let unit = fs::read_to_string(tree.at("lib/systemd/system/levity.service")).expect("a unit");
    assert!(
        unit.contains("ExecStart=/usr/local/bin/levity run"),
        "{unit}"
    );
    let notices = fs::read_to_string(tree.at("share/doc/levity/NOTICES")).expect("notices");
    for text in [
        "\nrustls 0.",
        "\naws-lc-rs 1.",
        "GNU LESSER GENERAL PUBLIC LICENSE",
        "Regents of the University of California",
        "Copyright notices for The Rust Standard Library",
        "UNICODE LICENSE V3",
    ] {
        assert!(
            notices.contains(text),
            "no {text} in {} bytes",
            notices.len()
        );
    }
}

/// Folders of the administrator have links and modes of their own.
#[test]
fn the_tarball_changes_no_folder_that_exists() {
    let tree = Tree::new();
    let [share, man] = ["share", "man"].map(|name| tree.folder(name));
    fs::set_permissions(&share, fs::Permissions::from_mode(0o2775)).expect("chmod");
    symlink("../man", share.join("man")).expect("a link");
    let arguments = ["--strip-components=1", "--no-same-owner", "-xzf"];
    let tarball = file("-linux.tar.gz");
    succeeds("tar", &[&arguments[..], &[&tarball]].concat(), tree.path());
    let mode = fs::metadata(&share).expect("a folder").permissions();
    assert_eq!(mode.mode() & 0o7777, 0o2775);
    assert!(man.join("man1/levity.1").exists());
}

/// The text of a file in the image.
fn in_image(path: &str) -> String {
    let tree = Tree::new();
    succeeds("tar", &["-xf", &file(".image.tar")], tree.path());
    let blob = |value: &Value| {
        let digest = value["digest"].as_str().expect("a digest");
        tree.at("blobs").join(digest.replace(':', "/"))
    };
    let json = |path: &Path| -> Value {
        serde_json::from_slice(&fs::read(path).expect("read")).expect("JSON")
    };
    let manifest = json(&blob(&json(&tree.at("index.json"))["manifests"][0]));
    let layer = blob(&manifest["layers"][0]);
    let layer = layer.to_str().expect("a path in UTF-8");
    succeeds("tar", &["-xzOf", layer, path], tree.path())
}

/// Not those that the administrator of this machine has added.
#[test]
fn the_image_trusts_the_authorities_of_debian_alone() {
    let certificates = |text: &str| {
        let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        let all = text.split(begin).skip(1);
        let all = all.map(|one| one.split(end).next().expect("a text").to_owned());
        all.collect::<BTreeSet<_>>()
    };
    let all = "cat /usr/share/ca-certificates/mozilla/*.crt";
    let expected = certificates(&succeeds("sh", &["-c", all], &workspace()));
    assert!(expected.len() > 100, "{}", expected.len());
    let found = certificates(&in_image("etc/ssl/certs/ca-certificates.crt"));
    assert!(found == expected, "{} and {}", found.len(), expected.len());
}

#[test]
fn the_image_has_the_licences_of_the_libraries() {
    assert!(in_image("usr/share/doc/levity/NOTICES").contains("GNU LESSER GENERAL PUBLIC LICENSE"));
}

#[test]
fn completions_know_commands_and_options() {
    let script = "set -e\n\
        . packaging/completions/levity.bash\n\
        complete_last() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); \
        _levity levity \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; echo \"${COMPREPLY[@]}\"; }\n\
        complete_last levity prec\n\
        complete_last levity serve --sp\n";
    let said = succeeds("bash", &["-c", script], &workspace());
    assert_eq!(said, "precompress\n--spa\n");
}

#[test]
fn manual_pages_are_without_faults() {
    for page in ["levity.1", "levity.toml.5"] {
        let path = workspace().join("packaging/man").join(page);
        let path = path.to_str().expect("a path in UTF-8");
        let arguments = ["-T", "lint", "-W", "error", path];
        succeeds("mandoc", &arguments, &workspace());
    }
}

#[test]
fn the_configurations_of_packages_are_valid() {
    for file in ["levity.toml", "image/levity.toml"] {
        let text = fs::read_to_string(workspace().join("packaging").join(file)).expect("read");
        let problems = levity_config::parse(&text).err().unwrap_or_default();
        assert!(problems.is_empty(), "{file}: {problems:?}");
    }
}

/// An address may be there late, and a start without it ends at once.
#[test]
fn a_server_that_cannot_start_is_started_for_ever() {
    let unit = workspace().join("packaging/systemd/levity.service");
    let unit = fs::read_to_string(unit).expect("read");
    let value = |key: &str, usual: u32| {
        let mut lines = unit.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let value = value.map(|value| value.trim_end_matches('s').parse());
        value.map_or(usual, |value| value.expect("a number"))
    };
    // The usual limit is that of systemd-system.conf(5).
    let starts = value("StartLimitBurst", 5) * value("RestartSec", 0);
    let interval = value("StartLimitIntervalSec", 10);
    assert!(starts > interval, "{starts} s and {interval} s");
}

#[test]
fn components_are_listed_with_their_licences() {
    let list = fs::read(file(".cdx.json")).expect("a list");
    let list: Value = serde_json::from_slice(&list).expect("JSON");
    assert_eq!(list["bomFormat"], "CycloneDX");
    assert_eq!(list["metadata"]["component"]["name"], "levity");
    let components = list["components"].as_array().expect("components");
    let find = |name| components.iter().find(|one| one["name"] == name);
    for name in ["rustls", "aws-lc-rs", "aws-lc-sys", "glibc", "levity-disk"] {
        let component = find(name).unwrap_or_else(|| panic!("no {name}"));
        let licence = &component["licenses"][0]["expression"];
        assert!(
            licence.as_str().is_some_and(|text| text.len() >= 3),
            "{component}"
        );
    }
    for name in [
        "proptest",
        "clap_mangen",
        "serde_derive",
        "tempfile",
        "xtask",
    ] {
        assert!(find(name).is_none(), "{name} is not in the program");
    }
    let nodes = list["dependencies"].as_array().expect("dependencies");
    let levity = nodes.iter().find(|node| node["ref"] == "levity@0.1.0");
    let uses = levity.expect("levity")["dependsOn"]
        .as_array()
        .expect("uses");
    let mut uses = uses.iter().filter_map(Value::as_str);
    assert!(uses.clone().any(|one| one.starts_with("tokio@")));
    // Only its tests use this one.
    assert!(!uses.any(|one| one.starts_with("rcgen@")));
}
