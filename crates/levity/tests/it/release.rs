//! The files of a release, which `cargo xtask package` makes: what is in them, that they install, run and go.

mod built;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::clients::run;
use crate::support::{Tree, is_root, wait_within};

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

/// The folder with the release of the program under test. Its debug lines and a small package would take 20 s more.
fn release() -> &'static Path {
    static RELEASE: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/levity");
        let strip = ["--strip-debug", env!("CARGO_BIN_EXE_levity"), program];
        succeeds("objcopy", &strip, folder);
        let release = folder.join("release");
        pack(
            program,
            &release,
            "umask 022; export DPKG_DEB_COMPRESSOR_LEVEL=1",
        );
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
        sums(&other, "umask 077; export TZ=Asia/Tokyo LC_ALL=C.UTF-8"),
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

/// A copy of this machine's root whose changes are in memory, with a network of its own.
const THROW_AWAY: &str = "set -e\n\
    mount -t tmpfs none .\n\
    cd \"$PWD\"\n\
    mkdir changes work root\n\
    mount -t overlay -o lowerdir=/,upperdir=changes,workdir=work none root\n\
    mount -t tmpfs none root/run\n\
    mount -t tmpfs none root/tmp\n\
    mount -t proc none root/proc\n\
    mount --bind /dev root/dev\n\
    cp \"$1\" root/tmp/levity.deb\n\
    exec env DEBIAN_FRONTEND=noninteractive chroot root sh -ec \"$2\" 2>&1\n";

/// Runs a script as root in such a copy, where the package is `/tmp/levity.deb`. `None` unless this is root.
#[track_caller]
fn in_throw_away_root(script: &str) -> Option<String> {
    if !is_root() {
        return None;
    }
    let folder = Tree::new();
    let own = [
        "--mount",
        "--propagation=private",
        "--net",
        "--pid",
        "--fork",
    ];
    let words = ["sh", "-c", THROW_AWAY, "sh", &file(".deb"), script];
    Some(succeeds(
        "unshare",
        &[&own[..], &words].concat(),
        folder.path(),
    ))
}

#[test]
fn the_package_installs_and_runs() {
    let said = in_throw_away_root(
        "dpkg --install /tmp/levity.deb
        stat --format '%U %a' /var/lib/levity /var/cache/levity /var/log/levity
        id levity
        runuser -u levity -- levity check /etc/levity/levity.toml
        man --path >/dev/null
        dpkg --verify levity
        cd /etc/systemd/system && ls -d *.wants/levity.*",
    );
    let Some(said) = said else { return };
    // Not levity.socket, about which the administrator decides.
    let enabled = "multi-user.target.wants/levity.service";
    assert_eq!(said.lines().last(), Some(enabled), "{said}");
    assert!(
        said.contains("levity 700\nlevity 700\nlevity 755\n"),
        "{said}"
    );
    assert!(said.contains("/etc/levity/levity.toml: ok\n"), "{said}");
    assert!(!said.contains("port 80"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_told_in_one_line() {
    let said = in_throw_away_root(
        "/usr/bin/python3 -c 'import socket, subprocess, sys
with socket.create_server((\"\", 80)):
    sys.exit(subprocess.call([\"dpkg\", \"--install\", \"/tmp/levity.deb\"]))'
        dpkg --status levity",
    );
    let Some(said) = said else { return };
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains("port 80"))
        .collect();
    let expected = "levity: port 80 is taken; change `address` in /etc/levity/levity.toml, then: systemctl restart levity";
    assert_eq!(lines, [expected], "{said}");
    assert!(said.contains("Status: install ok installed"), "{said}");
}

#[test]
fn what_was_changed_stays_until_it_is_purged() {
    let said = in_throw_away_root(
        "dpkg --install /tmp/levity.deb
        echo '# mine' >>/etc/levity/levity.toml
        echo '# mine' >/etc/levity/sites.d/mine.toml
        mkdir /var/lib/levity/tls && touch /var/lib/levity/tls/a.key /var/log/levity/access.log
        dpkg --install /tmp/levity.deb
        tail -n 1 /etc/levity/levity.toml
        dpkg --remove levity
        ls /etc/levity/levity.toml /var/log/levity/access.log
        echo purge
        dpkg --purge levity
        find /etc/levity /etc/logrotate.d/levity /usr/share/levity /var/*/levity 2>&1 || :",
    );
    let Some(said) = said else { return };
    let (before, after) = said.split_once("\npurge\n").expect("a line");
    assert!(before.contains("\n# mine\n"), "{before}");
    assert!(before.ends_with("/etc/levity/levity.toml\n/var/log/levity/access.log"));
    let stays = "levity: /var/lib/levity stays, with certificates and their keys\n";
    assert!(after.contains(stays), "{after}");
    let left: Vec<_> = after.lines().filter(|line| line.starts_with('/')).collect();
    let mine = [
        "/etc/levity",
        "/etc/levity/sites.d",
        "/etc/levity/sites.d/mine.toml",
    ];
    let keys = [
        "/var/lib/levity",
        "/var/lib/levity/tls",
        "/var/lib/levity/tls/a.key",
    ];
    assert_eq!(left, [mine, keys].concat(), "{after}");
}

#[test]
fn certificates_go_if_the_administrator_says_so() {
    let said = in_throw_away_root(
        "dpkg --install /tmp/levity.deb
        mkdir /var/lib/levity/tls
        echo levity levity/purge-state boolean true | debconf-set-selections
        dpkg --purge levity
        ls -d /var/lib/levity /etc/levity || :",
    );
    let Some(said) = said else { return };
    for path in ["/var/lib/levity", "/etc/levity"] {
        let gone = format!("'{path}': No such file");
        assert!(said.contains(&gone), "{said}");
    }
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
    assert_eq!(version, concat!("levity ", env!("CARGO_PKG_VERSION"), "\n"));
    let mode = fs::metadata(program).expect("a program").permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    let unit = fs::read_to_string(tree.at("lib/systemd/system/levity.service")).expect("a unit");
    assert!(
        unit.contains("ExecStart=/usr/local/bin/levity run"),
        "{unit}"
    );
    let notices = fs::read_to_string(tree.at("share/doc/levity/NOTICES")).expect("notices");
    for text in ["\nrustls 0.", "\nring 0.", "Lesser General Public License"] {
        assert!(
            notices.contains(text),
            "no {text} in {} bytes",
            notices.len()
        );
    }
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

#[test]
fn components_are_listed_with_their_licences() {
    let list = fs::read(file(".cdx.json")).expect("a list");
    let list: Value = serde_json::from_slice(&list).expect("JSON");
    assert_eq!(list["bomFormat"], "CycloneDX");
    assert_eq!(list["metadata"]["component"]["name"], "levity");
    let components = list["components"].as_array().expect("components");
    let find = |name| components.iter().find(|one| one["name"] == name);
    for name in ["rustls", "ring", "aws-lc-sys", "glibc", "levity-disk"] {
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

/// The program under test is linked with the C library of this machine, which the image does not have.
fn libraries() -> impl Iterator<Item = Value> {
    let folders = ["/lib", "/lib64"].into_iter();
    let folders = folders.filter(|folder| Path::new(folder).exists());
    folders.map(|folder| {
        json!({ "type": "bind", "source": folder, "destination": folder, "options": ["rbind", "ro"] })
    })
}

/// Runs a container. crun refuses a machine that has both versions of control groups, and needs none of them here.
const CRUN: &str = "mount -t cgroup2 none /sys/fs/cgroup\n\
    exec crun --cgroup-manager=disabled --root=state run --no-new-keyring \"$@\"";

/// A container of the image, ended with the value.
struct Container {
    child: Child,
    folder: Tree,
}

impl Container {
    /// Starts the image as it is, with a root that cannot be written to.
    fn start() -> Self {
        let folder = Tree::new();
        let layout = folder.folder("layout");
        succeeds("tar", &["-xf", &file(".image.tar")], &layout);
        let image = format!("layout:{}", env!("CARGO_PKG_VERSION"));
        let arguments = ["unpack", "--image", &image, "bundle"];
        succeeds("umoci", &arguments, folder.path());
        let path = folder.at("bundle/config.json");
        let mut config: Value =
            serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
        config["root"]["readonly"] = json!(true);
        config["process"]["terminal"] = json!(false);
        config["process"]["noNewPrivileges"] = json!(true);
        for kind in [
            "bounding",
            "effective",
            "inheritable",
            "permitted",
            "ambient",
        ] {
            config["process"]["capabilities"][kind] = json!([]);
        }
        let mounts = config["mounts"].as_array_mut().expect("mounts");
        mounts.retain(|mount| mount["type"] != "cgroup");
        mounts.extend(libraries());
        fs::write(&path, config.to_string()).expect("write");
        let id = folder.path().file_name().expect("a name");
        let mut crun = Command::new("unshare");
        crun.args(["--mount", "--propagation=private", "sh", "-c", CRUN, "sh"])
            .args(["--pid-file".as_ref(), folder.at("pid").as_os_str()])
            .args(["--bundle".as_ref(), folder.at("bundle").as_os_str()])
            .arg(id)
            .current_dir(folder.path());
        let log = fs::File::create(folder.at("log")).expect("create");
        crun.stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log);
        let child = crun.spawn().expect("unshare of util-linux");
        Self { child, folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.at("log")).expect("read")
    }

    /// The number of the server's process, as seen from outside.
    fn pid(&self) -> String {
        fs::read_to_string(self.folder.at("pid")).unwrap_or_default()
    }

    /// Runs a program in the network of the container.
    fn inside(&self, words: &[&str]) -> String {
        let pid = self.pid();
        let enter = ["--net", "--target", &pid];
        succeeds("nsenter", &[&enter[..], words].concat(), self.folder.path())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let pid = self.pid().parse().ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            let _ = kill_process(pid, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[test]
fn the_image_runs_without_rights_and_ends_when_it_is_told() {
    if !is_root() {
        return;
    }
    let mut container = Container::start();
    wait_within(TIME_MAX, "it serves", || {
        let ended = container.child.try_wait().expect("wait");
        assert!(ended.is_none(), "{ended:?}\n{}", container.log());
        container.log().contains("levity: serving ")
    });
    let page = container.inside(&["curl", "--silent", "--fail", "http://127.0.0.1:8080/"]);
    assert!(page.contains("<h1>It works</h1>"), "{page}");
    let health = "http://127.0.0.1:9180/health";
    container.inside(&["curl", "--silent", "--fail", health]);
    let status = fs::read_to_string(format!("/proc/{}/status", container.pid())).expect("status");
    for line in [
        "Uid:\t65532\t65532",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(status.contains(line), "no {line} in\n{status}");
    }
    wait_within(TIME_MAX, "the access log", || {
        container.log().contains("\"GET / HTTP/1.1\" 200")
    });
    let pid = container.pid().parse().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a number"), Signal::TERM).expect("kill");
    let status = container.child.wait().expect("wait");
    assert!(status.success(), "{status}\n{}", container.log());
}
