//! The package and the image, as root: only root may install, and make a root of its own for that.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{TIME_MAX, file, succeeds, workspace};
use crate::support::{Tree, is_root, wait_within};

/// A test that ended here would say that it has passed.
#[track_caller]
pub fn require_root() {
    assert!(
        is_root(),
        "only root can run this test; --skip as_root:: leaves it out"
    );
}

/// A copy of this machine's root whose changes are in memory, with a network of its own. What a server that root has
/// run here by hand has left is not in it: a package that is new finds nothing of its own.
const THROW_AWAY: &str = "set -e\n\
    mount -t tmpfs none .\n\
    cd \"$PWD\"\n\
    mkdir changes work root\n\
    mount -t overlay -o lowerdir=/,upperdir=changes,workdir=work none root\n\
    mount -t tmpfs none root/run\n\
    mount -t tmpfs none root/tmp\n\
    mount -t proc none root/proc\n\
    mount --bind /dev root/dev\n\
    rm -rf root/etc/levity root/var/*/levity\n\
    cp \"$1\" root/tmp/levity.deb\n\
    exec env DEBIAN_FRONTEND=noninteractive chroot root sh -ec \"$2\" 2>&1\n";

/// Runs a script as root in such a copy, where the package is `/tmp/levity.deb`.
#[track_caller]
fn in_throw_away_root(script: &str) -> String {
    require_root();
    let folder = Tree::new();
    let own = [
        "--mount",
        "--propagation=private",
        "--net",
        "--pid",
        "--fork",
    ];
    let words = ["sh", "-c", THROW_AWAY, "sh", &file(".deb"), script];
    succeeds("unshare", &[&own[..], &words].concat(), folder.path())
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
    // Not levity.socket, about which the administrator decides.
    let enabled = "multi-user.target.wants/levity.service";
    assert_eq!(said.lines().last(), Some(enabled), "{said}");
    // The first start gives the first two to the server.
    assert!(said.contains("root 755\nroot 755\nlevity 750\n"), "{said}");
    assert!(said.contains("/etc/levity/levity.toml: ok\n"), "{said}");
    assert!(!said.contains("port 80"), "{said}");
    let line = "levity: systemd does not run here, so the server is not started: see WITHOUT SYSTEMD in levity(1)\n";
    assert_eq!(said.matches(line).count(), 1, "{said}");
}

/// The texts between two others in a file of the packages.
fn between(file: &str, start: &str, end: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace().join("packaging").join(file)).expect("read");
    let parts = text.split(start).skip(1);
    let parts = parts.map(|part| part.split(end).next().expect("a text").trim().to_owned());
    parts.collect()
}

/// The commands of the manual for a machine without systemd.
fn start_without_systemd() -> String {
    let examples = between("man/levity.1", ".SH \"WITHOUT SYSTEMD\"", ".SH ");
    let example = examples[0].split(".EX\n").nth(1);
    let example = example.and_then(|text| text.split(".EE").next());
    let example = example.expect("an example");
    example.replace("\\-", "-").replace("\\e", "\\")
}

#[test]
fn the_page_of_welcome_leads_to_a_page_of_ones_own() {
    let code = between("welcome/index.html", "<code>", "</code>");
    let command = |start: &str| {
        let mut commands = code.iter().filter_map(|text| text.strip_prefix("sudo "));
        commands.find(|text| text.starts_with(start)).expect(start)
    };
    let roots: Vec<_> = code
        .iter()
        .filter(|text| text.starts_with("root = "))
        .collect();
    let [shipped, own] = roots[..] else {
        panic!("{roots:?}")
    };
    // Another service manager runs no `systemctl`.
    assert_eq!(command("systemctl"), "systemctl reload levity");
    let said = in_throw_away_root(&format!(
        "dpkg --install /tmp/levity.deb
        ip link set lo up
        cat >/tmp/start <<'END'\n{}\nEND
        sh /tmp/start >/tmp/log 2>&1 &
        pid=$!
        until curl --silent --fail http://127.0.0.1/; do kill -0 $pid || {{ cat /tmp/log; exit 1; }}; sleep 0.1; done
        {}
        echo 'a page of mine' >/srv/www/index.html
        sed -i 's|{shipped}|{own}|' /etc/levity/levity.toml
        {}
        runuser -u levity -- env RUNTIME_DIRECTORY=/run/levity levity reload --wait
        curl --silent --fail http://127.0.0.1/
        chmod 700 /srv/www
        levity check
        kill $pid
        wait $pid",
        start_without_systemd(),
        command("mkdir"),
        command("levity check"),
    ));
    assert!(said.contains("<h1>It works</h1>"), "{said}");
    assert!(said.contains("\na page of mine\n"), "{said}");
    // The unit runs the server as this user.
    let note =
        "the user `levity` cannot read /srv/www: /srv/www is of root:root with the mode 0700";
    assert_eq!(said.matches(note).count(), 1, "{said}");
    assert_eq!(
        said.matches("/etc/levity/levity.toml: ok").count(),
        2,
        "{said}"
    );
}

#[test]
fn a_server_of_root_says_which_files_it_leaves_to_others() {
    let said = in_throw_away_root(
        "dpkg --install /tmp/levity.deb
        ip link set lo up
        levity run >/tmp/log 2>&1 &
        pid=$!
        until curl --silent --fail http://127.0.0.1/; do kill -0 $pid; sleep 0.1; done
        kill $pid
        wait $pid
        stat --format 'of %U' /var/log/levity/access.log
        grep --count 'root runs this server' /tmp/log
        grep --count 'what it makes at .*/var/log/levity/access.log (of levity)' /tmp/log",
    );
    let end = "of root\n1\n1";
    assert!(said.trim_end().ends_with(end), "{said}");
}

#[test]
fn a_port_that_is_taken_is_told_in_one_line() {
    let said = in_throw_away_root(
        "/usr/bin/python3 -c 'import socket, subprocess, sys
with socket.create_server((\"\", 80)):
    sys.exit(subprocess.call([\"dpkg\", \"--install\", \"/tmp/levity.deb\"]))'
        dpkg --status levity",
    );
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
        mkdir --parents /var/cache/levity
        mount -t tmpfs none /var/cache/levity
        touch /var/cache/levity/a
        dpkg --purge levity
        dpkg --status levity 2>&1 | grep 'not installed'
        find /etc/levity /etc/logrotate.d/levity /usr/share/levity /var/*/levity 2>&1 || :",
    );
    let (before, after) = said.split_once("\npurge\n").expect("a line");
    assert!(before.contains("\n# mine\n"), "{before}");
    assert!(before.ends_with("/etc/levity/levity.toml\n/var/log/levity/access.log"));
    let stays = "levity: /var/lib/levity stays, with certificates and their keys\n";
    assert!(after.contains(stays), "{after}");
    let left: Vec<_> = after.lines().filter(|line| line.starts_with('/')).collect();
    assert!(after.contains("'levity' is not installed"), "{after}");
    let mine = [
        "/etc/levity",
        "/etc/levity/sites.d",
        "/etc/levity/sites.d/mine.toml",
    ];
    let keys = [
        "/var/cache/levity",
        "/var/lib/levity",
        "/var/lib/levity/tls",
        "/var/lib/levity/tls/a.key",
    ];
    assert_eq!(left, [&mine[..], &keys[..]].concat(), "{after}");
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
    for path in ["/var/lib/levity", "/etc/levity"] {
        let gone = format!("'{path}': No such file");
        assert!(said.contains(&gone), "{said}");
    }
}

/// The first example of README.md: what it has installed is the package.
fn first_example() -> String {
    let readme = fs::read_to_string(workspace().join("README.md")).expect("read");
    let example = readme.split("```toml\n").nth(1);
    let example = example.and_then(|text| text.split("```").next());
    example.expect("an example").to_owned()
}

/// The last lines of the configuration of the package: a site, as a comment.
fn commented_site() -> String {
    let shipped = fs::read_to_string(workspace().join("packaging/levity.toml")).expect("read");
    let (_, site) = shipped
        .split_once("\n#\n")
        .expect("a comment with a paragraph");
    let lines = site.lines().map(|line| line.trim_start_matches(['#', ' ']));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_public_site_is_added_to_the_configuration_of_the_package() {
    let said = in_throw_away_root(&format!(
        "dpkg --install /tmp/levity.deb
        mkdir --parents /srv/www
        cd /etc/levity
        cp levity.toml shipped
        cat >example <<'END'\n{}\nEND
        cat >comment <<'END'\n{}\nEND
        cp example sites.d/site.toml
        levity check
        rm sites.d/site.toml
        cat shipped example >levity.toml
        levity check
        cat shipped comment >levity.toml
        levity check",
        first_example(),
        commented_site()
    ));
    let fine = |line: &&str| line.starts_with("/etc/levity/levity.toml") && line.ends_with(": ok");
    assert_eq!(said.lines().filter(fine).count(), 3, "{said}");
}

#[test]
fn the_folder_of_the_logs_is_made_repaired_and_left_to_the_administrator() {
    let said = in_throw_away_root(
        "dpkg --install /tmp/levity.deb
        shown() { stat --format 'shown %U:%G %a' \"$@\"; }
        rm -r /var/log/levity /var/cache/levity
        dpkg-reconfigure levity
        shown /var/log/levity
        touch /var/log/levity/access.log
        chown -R 4711:4711 /var/log/levity
        dpkg-reconfigure levity
        shown /var/log/levity /var/log/levity/access.log
        dpkg-statoverride --update --add levity adm 2750 /var/log/levity
        dpkg --install /tmp/levity.deb
        shown /var/log/levity
        dpkg-statoverride --remove /var/log/levity
        dpkg-statoverride --add '#4711' root 700 /var/log/levity
        dpkg-reconfigure levity
        shown /var/log/levity",
    );
    let shown = said.lines().filter_map(|line| line.strip_prefix("shown "));
    let shown: Vec<_> = shown.collect();
    let own = "levity:levity 750";
    let expected = [
        own,
        own,
        "levity:levity 644",
        "levity:adm 2750",
        "UNKNOWN:root 700",
    ];
    assert_eq!(shown, expected, "{said}");
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
    /// Starts the image as it is, with a root that cannot be written to, and with another configuration if there is one.
    fn start(configuration: Option<&str>) -> Self {
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
        let options = ["uid=65532", "gid=65532", "mode=700"];
        mounts.push(json!({ "type": "tmpfs", "source": "tmpfs", "destination": "/var/lib/levity", "options": options }));
        if let Some(text) = configuration {
            folder.file("bundle/rootfs/etc/levity/levity.toml", text);
        }
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

    #[track_caller]
    fn serves(&mut self) {
        wait_within(TIME_MAX, "it serves", || {
            let ended = self.child.try_wait().expect("wait");
            assert!(ended.is_none(), "{ended:?}\n{}", self.log());
            self.log().contains("levity: serving ")
        });
    }

    /// Runs the program in the container, as its user and with its variables.
    #[track_caller]
    fn runs(&self, words: &[&str]) -> String {
        let pid = self.pid();
        let variables = fs::read_to_string(format!("/proc/{pid}/environ")).expect("read");
        let variables = variables.split_terminator('\0');
        let enter = [
            "nsenter",
            "--mount",
            "--net",
            "--setuid=65532",
            "--setgid=65532",
        ];
        let enter = [&enter[..], &["--target", &pid, "levity"], words].concat();
        let arguments = ["-i"].into_iter().chain(variables).chain(enter);
        succeeds("env", &arguments.collect::<Vec<_>>(), self.folder.path())
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
    require_root();
    let mut container = Container::start(None);
    container.serves();
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

#[test]
fn the_image_is_well_with_another_configuration() {
    require_root();
    let listen = "[[listen]]\naddress = \"8080\"\n";
    let mut container = Container::start(Some(&format!("{listen}[[site]]\nroot = \"/srv/www\"\n")));
    container.serves();
    assert_eq!(container.runs(&["health"]), "ok\n");
    let reloaded = container.runs(&["reload", "--wait"]);
    assert_eq!(reloaded, "the configuration is reloaded\n");
}
