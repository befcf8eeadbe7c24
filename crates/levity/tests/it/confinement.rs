//! What the process gives up at its start, and what a reload and a swap of a folder may still do.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::servers::free;
use crate::support::{Answer, Launch, Ran, Server, Tree, head, is_root, wait_until};

const CONTROL: &str = "[admin]\ncontrol = \"unix:control\"\n";

const UPLOAD: &str = "upload = { methods = [\"PUT\"] }\n";

fn launch(root: &Path, tables: &str, keys: &str) -> Launch {
    Launch::site(root, &format!("{CONTROL}{tables}"), keys)
}

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("a", "AAA");
    tree
}

/// A tree with folders to which the server may write, as far as their modes decide.
fn open_folders(names: &[&str]) -> Tree {
    let tree = Tree::new();
    for name in names {
        tree.folder(name);
        tree.chmod(name, 0o777);
    }
    tree
}

#[track_caller]
fn reloaded(server: &Server, from: &str, to: &str) -> Ran {
    let text = fs::read_to_string(server.config()).expect("read");
    assert!(text.contains(from), "{text}");
    fs::write(server.config(), text.replace(from, to)).expect("write");
    let config = server.config();
    let file = config.to_str().expect("a path in UTF-8");
    Launch::levity(["reload", "--wait", "-c", file]).ran()
}

#[track_caller]
fn assert_reloads(server: &Server, from: &str, to: &str) {
    let ran = reloaded(server, from, to);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
}

/// Tries a reload that is refused because of `path`, and leaves the configuration as it was.
#[track_caller]
fn assert_needs_restart(server: &Server, from: &str, to: &str, path: &Path) {
    let refused = reloaded(server, from, to);
    let path = path.display();
    let reason = format!("{path} is a new place to write to, which needs a restart");
    let said = &refused.stderr;
    assert!(refused.status == 1 && said.contains(&reason), "{said}");
    assert_reloads(server, to, from);
}

fn log_to(path: &Path) -> String {
    format!("[log]\naccess = \"{}\"\n", path.display())
}

fn put(server: &Server, path: &str) -> Answer {
    let mut client = server.client();
    client.send(head("PUT", path, &[("Content-Length", "1")]));
    let _ = client.try_send(b"x");
    client.receive()
}

/// A log is written to once workers hand their lines over.
fn wait_for_line(server: &Server, log: &Path) {
    wait_until("a line is logged", || {
        server.get("/a").assert_status(200);
        fs::metadata(log).is_ok_and(|file| file.len() > 0)
    });
}

/// Puts files until the root, which is looked at each `disk.entry_ttl`, is the one that `has` them.
fn wait_for_upload(server: &Server, has: &Path) {
    let mut number = 0;
    wait_until("an upload arrives", || {
        number += 1;
        let name = format!("/upload-{number}");
        put(server, &name).status == 201 && has.join(&name[1..]).exists()
    });
}

/// Puts files until the root is another one, in which none can be made.
fn wait_for_refusal(server: &Server) {
    let mut number = 0;
    wait_until("an upload is refused", || {
        number += 1;
        put(server, &format!("/refused-{number}")).status >= 400
    });
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("a name").path()).collect()
}

#[cfg(feature = "acme")]
#[test]
fn the_process_is_confined_unless_it_says_so() {
    let tree = tree();
    let server = launch(tree.path(), "", "").start();
    let said = server.stderr();
    assert!(!said.contains("is not confined"), "{said}");
    let hook = "[acme]\nchallenges = [\"dns-01\"]\n[acme.dns]\nhook = [\"/bin/true\"]\n";
    let server = launch(tree.path(), hook, "").start();
    server.says("the process is not confined to the folders that it writes to: `hook`");
    let elsewhere = open_folders(&["x"]);
    let log = elsewhere.at("x/log");
    assert_reloads(&server, CONTROL, &format!("{}{CONTROL}", log_to(&log)));
    wait_for_line(&server, &log);
}

#[test]
fn a_reload_may_read_elsewhere_and_listen_elsewhere() {
    let (old, new) = (tree(), tree());
    new.file("a", "BBB");
    let server = launch(old.path(), "", "").start();
    let [from, to] = [&old, &new].map(|tree| tree.path().to_str().expect("a path in UTF-8"));
    assert_reloads(&server, from, to);
    assert_eq!(server.get("/a").body, b"BBB");
    let port = free("127.0.0.1");
    let listen = format!("[[listen]]\naddress = \"{port}\"\n[[listen]]");
    assert_reloads(&server, "[[listen]]", &listen);
}

/// As the unit for systemd gives it.
#[test]
fn a_reload_may_listen_below_1024_with_the_capability() {
    if !is_root() {
        return;
    }
    let tree = tree();
    let server = launch(tree.path(), "", "")
        .capability("net_bind_service")
        .start();
    let mut ports = 600..1024;
    let port = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = port.expect("a free port");
    let listen = format!("[[listen]]\naddress = \"127.0.0.1:{port}\"\n[[listen]]");
    assert_reloads(&server, "[[listen]]", &listen);
    std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
}

#[cfg(feature = "upload")]
#[test]
fn a_reload_that_writes_elsewhere_needs_a_restart() {
    let tree = tree();
    tree.chmod(".", 0o777);
    let elsewhere = open_folders(&["x"]);
    let x = elsewhere.at("x");
    let server = launch(tree.path(), "", "").start();
    let root = format!("root = \"{}\"\n", tree.path().display());
    let log = x.join("log");
    let first = |tables: &str| format!("{tables}{CONTROL}");
    assert_needs_restart(&server, CONTROL, &first(&log_to(&log)), &log);
    let uploads = format!("root = \"{}\"\n{UPLOAD}", x.display());
    assert_needs_restart(&server, &root, &uploads, &x);
    assert_needs_restart(&server, &root, &format!("{root}{UPLOAD}"), tree.path());
    let spool = format!(
        "[disk]\nspool = \"{}\"\n[[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:1\"]\nbuffer_requests = true\n",
        x.display()
    );
    assert_needs_restart(&server, CONTROL, &first(&spool), &x);
    let control = x.join("control");
    let moved = CONTROL.replace("unix:control", &format!("unix:{}", control.display()));
    let refused = reloaded(&server, CONTROL, &moved);
    // The client asks at the path of the file, where nobody is.
    assert_eq!(refused.status, 1);
    server.signal(Signal::HUP);
    server.says("/x/control is a new place to write to");
    assert!(!control.exists());
    assert_eq!(names(&x), Vec::<PathBuf>::new());
}

#[test]
fn what_a_link_leads_to_decides() {
    let tree = tree();
    let folders = open_folders(&["logs", "logs/inside"]);
    let outside = open_folders(&["logs"]);
    folders.link(outside.at("logs"), "logs/away");
    folders.link("logs/inside", "near");
    let first = log_to(&folders.at("logs/log"));
    let server = launch(tree.path(), &first, "").start();
    let away = folders.at("logs/away/log");
    assert_needs_restart(&server, &first, &log_to(&away), &away);
    assert_eq!(names(&outside.at("logs")), Vec::<PathBuf>::new());
    assert_reloads(&server, &first, &log_to(&folders.at("near/log")));
    wait_for_line(&server, &folders.at("logs/inside/log"));
}

#[test]
fn a_log_is_rotated_also_where_a_link_leads() {
    let tree = tree();
    let folders = open_folders(&["logs", "other"]);
    folders.link(folders.at("other/real"), "logs/log");
    let server = launch(tree.path(), &log_to(&folders.at("logs/log")), "").start();
    let real = folders.at("other/real");
    for rotated in ["other/real.1", "other/real.2"] {
        wait_for_line(&server, &real);
        fs::rename(&real, folders.at(rotated)).expect("renamed");
        server.signal(Signal::USR1);
        wait_for_line(&server, &real);
    }
}

#[cfg(feature = "upload")]
#[test]
fn a_root_of_uploads_is_swapped_by_renaming() {
    let folders = open_folders(&["www", "new"]);
    let server = launch(&folders.at("www"), "", UPLOAD).start();
    wait_for_upload(&server, &folders.at("www"));
    fs::rename(folders.at("www"), folders.at("old")).expect("renamed");
    fs::rename(folders.at("new"), folders.at("www")).expect("renamed");
    wait_for_upload(&server, &folders.at("www"));
}

#[cfg(feature = "upload")]
#[test]
fn a_root_of_uploads_is_swapped_by_a_link() {
    let folders = open_folders(&["site", "releases/1/files", "releases/2/files"]);
    folders.link(folders.at("releases/1"), "site/current");
    let root = folders.at("site/current/files");
    let server = launch(&root, "", UPLOAD).start();
    wait_for_upload(&server, &folders.at("releases/1/files"));
    folders.link(folders.at("releases/2"), "site/next");
    fs::rename(folders.at("site/next"), folders.at("site/current")).expect("renamed");
    wait_for_upload(&server, &folders.at("releases/2/files"));
}

/// Each by the thread that would write.
#[cfg(feature = "upload")]
#[test]
fn the_kernel_refuses_what_is_written_elsewhere() {
    let folders = open_folders(&["www", "logs"]);
    folders.file("www/a", "AAA");
    let outside = open_folders(&["www", "logs"]);
    outside.file("www/a", "AAA");
    let tables = log_to(&folders.at("logs/log"));
    let server = launch(&folders.at("www"), &tables, UPLOAD).start();
    wait_for_line(&server, &folders.at("logs/log"));
    for name in ["www", "logs"] {
        fs::rename(folders.at(name), folders.at(format!("{name}.old"))).expect("renamed");
        symlink(outside.at(name), folders.at(name)).expect("a link");
    }
    wait_for_refusal(&server);
    server.signal(Signal::USR1);
    server.says("cannot be reopened");
    server.get("/a").assert_status(200);
    assert_eq!(names(&outside.at("www")), [outside.at("www/a")]);
    assert_eq!(names(&outside.at("logs")), Vec::<PathBuf>::new());
    // The reload looks where the names lead to by now.
    let refused = reloaded(&server, CONTROL, CONTROL);
    let reason = "/www is a new place to write to";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
}
