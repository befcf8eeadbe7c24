//! A mount that answers nothing while the server starts, is checked, or reads its configuration again.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::rig::{Frozen, FuseMount};
use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Server, wait_until};

/// How long a call on files is waited for, in milliseconds.
const PATIENCE: [&str; 2] = ["--patience", "300"];

/// Less than all paths of the mount would take together if each were waited for.
const START_MAX: Duration = Duration::from_secs(5);

const USERS: &str = "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";

const OWN: &str = "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n";

/// A mount with all that a configuration may name, and a folder beside it.
fn mount() -> Option<FuseMount> {
    let authority = Authority::new("authority");
    authority.certify("a", &["tls.test"], Key::Ecdsa);
    let mount = FuseMount::with(|tree| {
        tree.file("content/root/page", "content");
        tree.file("content/users", USERS);
        tree.file("content/secret", "0123456789abcdef0123456789abcdef");
        for name in ["a.pem", "a.key"] {
            let content = fs::read(authority.file(name)).expect("read");
            tree.file(format!("content/{name}"), content);
        }
        for name in ["log", "spool", "state"] {
            tree.file(format!("content/{name}/x"), "");
            tree.chmod(&format!("content/{name}"), 0o777);
        }
        tree.file("root/well/page", "content");
    })?;
    Some(mount)
}

fn site(host: &str, root: &Path, more: &str) -> String {
    let root = root.display();
    format!("[[site]]\nhosts = [\"{host}\"]\nroot = \"{root}\"\n{more}")
}

/// A configuration that names much on the mount.
fn config(mount: &FuseMount) -> String {
    let (well, slow) = (mount.root().join("well"), mount.root().join("slow"));
    let at = |name: &str| slow.join(name).display().to_string();
    let sites = [
        site("well.test", &well, ""),
        site("dead.test", &slow.join("root"), ""),
        site(
            "users.test",
            &well,
            &format!("[site.basic_auth]\nusers = \"{}\"\n", at("users")),
        ),
        site(
            "signed.test",
            &well,
            &format!("[site.signed_url]\nsecret_file = \"{}\"\n", at("secret")),
        ),
        site(
            "tls.test",
            &well,
            &format!(
                "[site.tls]\ncertificates = [\"{}\"]\nkeys = [\"{}\"]\nredirect = false\n",
                at("a.pem"),
                at("a.key")
            ),
        ),
    ];
    let log = at("log/access");
    format!(
        "{OWN}[[listen]]\naddress = \"127.0.0.2:0\"\ntls = true\n[log]\naccess = \"{log}\"\n[tls]\nfolder = \"{}\"\n{}",
        at("state"),
        sites.concat()
    )
}

fn status(server: &Server, host: &str) -> u16 {
    server.client().get_for(host, "/page").status
}

#[test]
fn a_server_starts_beside_a_dead_mount() {
    let Some(mount) = mount() else { return };
    let launch = Launch::run(&config(&mount)).arguments(PATIENCE).workers(1);
    let log = mount.root().join("slow/log/access");
    let frozen = mount.freeze();
    let begun = Instant::now();
    let server = launch.start();
    assert!(begun.elapsed() < START_MAX, "{:?}", begun.elapsed());
    assert_eq!(status(&server, "well.test"), 200);
    for host in ["dead.test", "users.test", "signed.test"] {
        assert_eq!(status(&server, host), 503, "{host}");
    }
    for said in [
        "slow/root does not respond",
        "slow/users does not respond",
        "slow/a.key does not respond",
        "access log",
        "slow/root: does not respond; what needs it gets 503",
    ] {
        server.says(said);
    }
    // Nor is a check, or another reload, held up.
    let begun = Instant::now();
    let check = Launch::levity(["check", "-c"]).arguments([server.config()]);
    let ran = check.arguments(PATIENCE).ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let noted = ran.stderr.matches("does not respond").count();
    assert!(noted >= 4, "{}", ran.stderr);
    server.reload(&["[tls]\n"], &["[limits]\nheaders = 99\n[tls]\n"]);
    assert!(begun.elapsed() < START_MAX, "{:?}", begun.elapsed());
    assert_eq!(status(&server, "well.test"), 200);
    drop(frozen);
    wait_until("the mount is used", || status(&server, "dead.test") == 200);
    assert_eq!(status(&server, "users.test"), 401);
    assert_eq!(status(&server, "signed.test"), 403);
    server.says("certificates were read again");
    wait_until("the log is written", || {
        assert_eq!(status(&server, "well.test"), 200);
        fs::metadata(&log).is_ok_and(|meta| meta.len() > 0)
    });
}

/// The names of the threads of a process.
fn threads(process: u32) -> Vec<String> {
    let folder = fs::read_dir(format!("/proc/{process}/task"));
    let threads = folder.into_iter().flatten().flatten();
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).ok();
    threads.filter_map(name).collect()
}

/// Starts a server whose state is on a disk that is frozen as soon as the configuration is read, and waits until it has
/// that thread. The folder is its own.
fn waiting(mount: &FuseMount, tables: &str, thread: &str) -> (Child, TempDir, Frozen) {
    let launch = Launch::run(&format!(
        "{OWN}[[listen]]\naddress = \"127.0.0.2:0\"\ntls = true\n[tls]\nfolder = \"{{own}}/state\"\n{tables}{}",
        site(
            "tls.test",
            &mount.root().join("well"),
            "tls = \"internal\"\n"
        )
    ));
    // The configuration is read without a look at what is behind the link.
    let link = launch.own().join("state");
    symlink(mount.root().join("slow/state"), link).expect("a link");
    let frozen = mount.freeze();
    let (child, own) = launch.arguments(["--patience", "600000"]).spawn();
    wait_until("it waits", || {
        let threads = threads(child.id());
        threads.iter().any(|name| name.trim() == thread)
    });
    (child, own, frozen)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a process");
}

/// Sends SIGTERM to a server that waits. Returns how it ended.
fn ended_while_it_waits(mount: &FuseMount, tables: &str, thread: &str) -> ExitStatus {
    let (mut child, _own, frozen) = waiting(mount, tables, thread);
    signal(&child, Signal::TERM);
    let mut ended = None;
    wait_until("it has ended", || {
        ended = child.try_wait().expect("a child");
        ended.is_some()
    });
    drop(frozen);
    ended.expect("a status")
}

#[test]
fn a_signal_ends_a_start_that_waits() {
    let Some(mount) = mount() else { return };
    // Before there are handlers of signals it looks at what it will write to, in order to give up the rest.
    let ended = ended_while_it_waits(&mount, "", "file-calls");
    let is_by_signal = ended.signal() == Some(Signal::TERM.as_raw());
    assert!(is_by_signal || ended.success(), "{ended}");
    // With a hook it gives up nothing.
    let hook = "[acme]\nchallenges = [\"dns-01\"]\n[acme.dns]\nhook = [\"/bin/true\"]\n";
    let ended = ended_while_it_waits(&mount, hook, "scheduler");
    assert!(ended.success(), "{ended}");
}

#[test]
fn what_a_start_that_waits_is_asked_for_is_done_after_it() {
    let Some(mount) = mount() else { return };
    let (child, own, frozen) = waiting(&mount, "", "file-calls");
    signal(&child, Signal::USR1);
    signal(&child, Signal::HUP);
    drop(frozen);
    let server = Server::new(child, own, false).expect("it starts");
    server.says("configuration reloaded");
}

/// Nothing may be wrong with it, so a service tries again.
#[test]
fn a_configuration_that_does_not_respond_is_no_wrong_one() {
    let Some(mount) = mount() else { return };
    let file = mount.root().join("slow/secret");
    let frozen = mount.freeze();
    for command in ["run", "check"] {
        let ran = Launch::levity([command, "-c"]).arguments([&file]);
        let ran = ran.arguments(PATIENCE).ran();
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("does not respond"), "{}", ran.stderr);
    }
    drop(frozen);
    let check = Launch::levity(["check", "-c"]).arguments([&file]).ran();
    assert_eq!(check.status, 78, "{}", check.stderr);
}
