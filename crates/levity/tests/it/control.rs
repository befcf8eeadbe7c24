//! Commands for a running server, and what a service manager gives it and is told.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid as NixPid;
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::{Signal, kill_process};

use crate::servers::free;
use crate::support::{Launch, Ran, Server, Tree, is_root, wait_until};

const CONTROL: &str = "[admin]\ncontrol = \"unix:control\"\n";

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("a", "AAA");
    tree
}

fn server(tree: &Tree, tables: &str) -> Server {
    Launch::site(tree.path(), tables, "").start()
}

#[track_caller]
fn ran(server: &Server, words: &[&str]) -> Ran {
    let config = server.config();
    let file = config.to_str().expect("a path in UTF-8");
    Launch::levity([words, &["-c", file]].concat()).ran()
}

/// Writes the configuration with `more` at its end.
fn add(server: &Server, more: &str) {
    let text = fs::read_to_string(server.config()).expect("read");
    fs::write(server.config(), text + more).expect("write");
}

#[test]
fn a_reload_tells_its_outcome() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    add(&server, "headers = { set = { X-Version = \"1\" } }\n");
    let reloaded = ran(&server, &["reload", "--wait"]);
    assert_eq!(
        (reloaded.status, reloaded.stdout.as_str()),
        (0, "the configuration is reloaded\n"),
        "{}",
        reloaded.stderr
    );
    assert_eq!(server.get("/a").header("x-version"), Some("1"));

    add(&server, "nonsense = 1\n");
    let refused = ran(&server, &["reload", "--wait"]);
    assert_eq!(refused.status, 1, "{}", refused.stdout);
    let said = &refused.stderr;
    assert!(said.starts_with("error: unknown key `nonsense`"), "{said}");
    assert!(said.contains("the old one stays"), "{said}");
    assert_eq!(server.get("/a").header("x-version"), Some("1"));
    // Errors elsewhere in the file do not keep the server from being asked.
    assert_eq!(ran(&server, &["health"]).stdout, "ok\n");
}

#[test]
fn a_reload_that_needs_a_restart_says_so() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    let text = fs::read_to_string(server.config()).expect("read");
    fs::write(
        server.config(),
        "[server]\nworkers = 3\n".to_owned() + &text,
    )
    .expect("write");
    let refused = ran(&server, &["reload", "--wait"]);
    assert_eq!(refused.status, 1);
    assert!(
        refused
            .stderr
            .contains("server.workers changed, which needs a restart"),
        "{}",
        refused.stderr
    );
}

#[test]
fn without_wait_a_reload_is_only_begun() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    add(&server, "headers = { set = { X-Version = \"1\" } }\n");
    let begun = ran(&server, &["reload"]);
    assert_eq!(begun.status, 0, "{}", begun.stderr);
    assert_eq!(begun.stdout, "the configuration is being reloaded\n");
    wait_until("the new configuration", || {
        server.get("/a").header("x-version") == Some("1")
    });
}

#[test]
fn reloads_at_the_same_time_are_each_told_of_one_that_began_later() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    let ask = || {
        let mut stream = UnixStream::connect(server.own("control")).expect("connect");
        let request = "POST /reload?wait HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("write");
        stream
    };
    let waiting: Vec<_> = (0..8).map(|_| ask()).collect();
    for mut stream in waiting {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn a_reload_that_is_asked_for_during_another_one_reads_the_files_after_that() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    let text = fs::read_to_string(server.config()).expect("read");
    let version =
        |number: u32| format!("{text}headers = {{ set = {{ X-Version = \"{number}\" }} }}\n");
    let ask = || {
        let mut stream = UnixStream::connect(server.own("control")).expect("connect");
        let request = "POST /reload?wait HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("write");
        stream
    };
    // The first one waits for the end of the text.
    fs::remove_file(server.config()).expect("unlink");
    mknodat(CWD, server.config(), FileType::Fifo, 0o644.into(), 0).expect("mkfifo");
    let mut first = ask();
    let mut writer = fs::File::options()
        .write(true)
        .open(server.config())
        .expect("a reader");
    fs::remove_file(server.config()).expect("unlink");
    fs::write(server.config(), version(2)).expect("write");
    let mut second = ask();
    second.set_nonblocking(true).expect("a flag");
    // Asked later, it is answered: the control thread has taken the second one.
    assert_eq!(ran(&server, &["health"]).stdout, "ok\n");
    let early = second.read(&mut [0]).expect_err("no answer");
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    assert_eq!(server.get("/a").header("x-version"), None);
    writer.write_all(version(1).as_bytes()).expect("write");
    drop(writer);
    second.set_nonblocking(false).expect("a flag");
    for stream in [&mut first, &mut second] {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(server.get("/a").header("x-version"), Some("2"));
}

#[test]
fn only_the_user_of_the_server_and_root_can_use_it() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    let socket = server.own("control");
    let mode = fs::metadata(&socket)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    if !is_root() {
        return;
    }
    // Even if the file would let others in.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("chmod");
    let asked = |user: &str| {
        let answer = Command::new("setpriv")
            .args(["--reuid", user, "--clear-groups", "curl", "-s", "-o", "-"])
            .args(["-w", "%{http_code}", "--unix-socket"])
            .arg(&socket)
            .arg("http://localhost/health")
            .output()
            .expect("curl");
        String::from_utf8_lossy(&answer.stdout).into_owned()
    };
    assert_eq!(asked("0"), "ok\n200");
    assert_eq!(asked("65534"), "ok\n200");
    let refused = asked("65533");
    assert!(refused.ends_with("403"), "{refused}");
}

#[test]
fn other_requests_are_refused() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    for (request, status) in [
        ("GET /reload", "405"),
        ("POST /health", "405"),
        ("GET /status", "404"),
    ] {
        let mut stream = UnixStream::connect(server.own("control")).expect("connect");
        let request = format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert_eq!(answer.get(9..12), Some(status), "{answer}");
    }
}

#[test]
fn health_is_also_asked_at_the_pages() {
    let tree = tree();
    let own = server(&tree, "[admin]\nlisten = \"unix:pages\"\n");
    let asked = ran(&own, &["health"]);
    assert_eq!((asked.status, asked.stdout.as_str()), (0, "ok\n"));
    let port = free("127.0.0.1");
    let own = server(&tree, &format!("[admin]\nlisten = \"{port}\"\n"));
    let asked = ran(&own, &["health"]);
    assert_eq!((asked.status, asked.stdout.as_str()), (0, "ok\n"));
}

#[test]
fn a_server_that_cannot_be_asked_is_not_well() {
    let tree = tree();
    let mut server = server(&tree, CONTROL);
    server.signal(Signal::TERM);
    server.wait();
    assert!(!server.own("control").exists());
    for command in ["health", "reload"] {
        let refused = ran(&server, &[command]);
        assert_eq!(refused.status, 1);
        assert!(
            refused.stderr.contains("is it running?")
                && refused.stderr.contains("`control = \"unix:"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_reload_moves_the_socket() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    let text = fs::read_to_string(server.config()).expect("read");
    let moved = text.replace("unix:control", "unix:moved");
    fs::write(server.config(), moved).expect("write");
    let old = server.own("control");
    let old = format!("unix:{}", old.display());
    let reloaded = Launch::levity(["reload", "--wait", "--control", &old]).ran();
    assert_eq!(reloaded.status, 0, "{}", reloaded.stderr);
    assert_eq!(ran(&server, &["health"]).status, 0);
    assert!(!server.own("control").exists());
}

/// How long one of its tests waits for a message.
const MANAGER_PATIENCE: Duration = Duration::from_secs(20);

/// A service manager, as far as the server sees one.
struct Manager {
    socket: UnixDatagram,
    folder: Tree,
}

impl Manager {
    fn new() -> Self {
        let folder = Tree::new();
        folder.chmod(".", 0o777);
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("chmod");
        let patience = Some(MANAGER_PATIENCE);
        socket.set_read_timeout(patience).expect("a time-out");
        Self { socket, folder }
    }

    fn launch(&self, launch: Launch) -> Launch {
        let path = self.folder.path();
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        launch
            .environment("NOTIFY_SOCKET", &text(&path.join("notify")))
            .environment("RUNTIME_DIRECTORY", &text(path))
    }

    /// What it is told next.
    fn told(&self) -> String {
        let mut bytes = [0; 512];
        let length = self.socket.recv(&mut bytes).expect("it is told something");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

#[test]
fn the_service_manager_is_told_of_each_state() {
    let tree = tree();
    let manager = Manager::new();
    let mut server = manager.launch(Launch::site(tree.path(), "", "")).start();
    assert_eq!(manager.told(), "READY=1\n");
    // The socket is in the folder that the manager has made.
    let control = format!("unix:{}/control", manager.folder.path().display());
    let reload = || Launch::levity(["reload", "--wait", "--control", &control]).ran();
    assert_eq!(reload().status, 0);
    let reloading = manager.told();
    let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    let usec = usec.and_then(|text| text.trim_end().parse::<u64>().ok());
    assert!(usec.is_some_and(|usec| usec > 0), "{reloading}");
    assert_eq!(manager.told(), "READY=1\n");
    // One that is refused ends as well.
    add(&server, "nonsense = 1\n");
    assert_eq!(reload().status, 1);
    assert!(manager.told().starts_with("RELOADING=1\n"));
    assert_eq!(manager.told(), "READY=1\n");
    server.signal(Signal::TERM);
    assert_eq!(manager.told(), "STOPPING=1\n");
    server.wait();
}

#[test]
fn the_watchdog_is_fed_while_the_loops_answer() {
    let tree = tree();
    let manager = Manager::new();
    let _server = manager
        .launch(Launch::site(tree.path(), "", ""))
        .environment("WATCHDOG_USEC", "400000")
        .start();
    let told: Vec<_> = (0..6).map(|_| manager.told()).collect();
    let fed = told.iter().filter(|told| *told == "WATCHDOG=1\n").count();
    assert_eq!(fed, 5, "{told:?}");
}

/// A thread that a debugger has stopped, until this is dropped. To be dropped by the thread that made it.
struct Stopped(NixPid);

impl Stopped {
    fn new(server: &Server, name: &str) -> Self {
        let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
        let mut tasks = fs::read_dir(tasks).expect("threads").flatten();
        let is_it = |task: &fs::DirEntry| {
            let known = fs::read_to_string(task.path().join("comm"));
            known.is_ok_and(|known| known.trim_end() == name)
        };
        let task = tasks.find(is_it).expect("a thread of this name");
        let number = task.file_name().to_string_lossy().parse();
        let thread = NixPid::from_raw(number.expect("a number"));
        ptrace::seize(thread, ptrace::Options::empty()).expect("a thread of a child");
        ptrace::interrupt(thread).expect("it is traced");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
        Self(thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        ptrace::detach(self.0, None).expect("it is stopped");
    }
}

#[test]
fn a_loop_that_does_not_turn_stops_the_feeding() {
    let tree = tree();
    let manager = Manager::new();
    let time_max = Duration::from_millis(800);
    let server = manager
        .launch(Launch::site(tree.path(), CONTROL, ""))
        .workers(2)
        .environment("WATCHDOG_USEC", &time_max.as_micros().to_string())
        .start();
    assert_eq!(manager.told(), "READY=1\n");
    assert_eq!(manager.told(), "WATCHDOG=1\n");
    let stuck = Stopped::new(&server, "worker-1");
    server.says(
        "event loop 1 has not answered for 400ms: the watchdog of the service manager is not fed",
    );
    // What it was told before.
    manager.socket.set_nonblocking(true).expect("a flag");
    while manager.socket.recv(&mut [0; 64]).is_ok() {}
    manager.socket.set_nonblocking(false).expect("a flag");
    manager
        .socket
        .set_read_timeout(Some(time_max))
        .expect("a time-out");
    let nothing = manager.socket.recv(&mut [0; 64]);
    assert_eq!(nothing.expect_err("silence").kind(), ErrorKind::WouldBlock);
    drop(stuck);
    manager
        .socket
        .set_read_timeout(Some(MANAGER_PATIENCE))
        .expect("a time-out");
    assert_eq!(manager.told(), "WATCHDOG=1\n");
}

#[test]
fn sockets_of_the_service_manager_are_used() {
    let tree = tree();
    let (used, unused) = (free("127.0.0.1"), free("127.0.0.1"));
    let config = format!(
        "[server]\nworkers = 2\n[[listen]]\naddress = \"{used}\"\n[[site]]\nroot = \"{}\"\n",
        tree.path().display()
    );
    let folder = Tree::new();
    let file = folder.file("levity.toml", &config);
    let said = folder.path().join("said");
    let mut manager = Command::new("systemd-socket-activate")
        .args(["-l", &used.to_string(), "-l", &unused.to_string()])
        .arg(env!("CARGO_BIN_EXE_levity"))
        .arg("run")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&said).expect("a file"))
        .spawn()
        .expect("systemd-socket-activate");
    let mut answer = String::new();
    wait_until("a connection", || {
        let Ok(mut stream) = TcpStream::connect(used) else {
            return false;
        };
        let request = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("write");
        stream.read_to_string(&mut answer).expect("read");
        true
    });
    assert!(answer.ends_with("\r\n\r\nAAA"), "{answer}");
    let line = format!("the service manager listens on {unused}, and no `[[listen]]`");
    wait_until("a line about the other socket", || {
        fs::read_to_string(&said).is_ok_and(|text| text.contains(&line))
    });
    // It has become the server.
    let pid = rustix::process::Pid::from_child(&manager);
    kill_process(pid, Signal::TERM).expect("kill");
    assert!(manager.wait().expect("wait").success());
}

#[test]
fn another_server_at_the_socket_is_left_alone() {
    let tree = tree();
    let server = server(&tree, CONTROL);
    let other = Tree::new();
    let control = server.own("control");
    let text = format!(
        "[admin]\ncontrol = \"unix:{}\"\n[[site]]\nroot = \".\"\n",
        control.display()
    );
    let file = other.file("levity.toml", text);
    for command in ["reload", "health"] {
        let file = file.to_str().expect("a path in UTF-8");
        let refused = Launch::levity([command, "-c", file]).ran();
        assert_eq!(refused.status, 1, "{}", refused.stdout);
        let reason = format!(
            "was started with {}, not with {file}",
            server.config().display()
        );
        assert!(refused.stderr.contains(&reason), "{}", refused.stderr);
    }
}

#[test]
fn a_socket_that_is_only_suggested_is_no_reason_not_to_start() {
    let tree = tree();
    let manager = Manager::new();
    let start = || manager.launch(Launch::site(tree.path(), "", "")).start();
    let _first = start();
    let second = start();
    second.says("there is no socket for `levity reload`: cannot listen on");
    second.get("/a").assert_status(200);
}

#[test]
fn calls_that_no_server_needs_are_given_up_by_all_threads() {
    let tree = tree();
    let server = server(&tree, "");
    let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
    for task in fs::read_dir(tasks).expect("threads").flatten() {
        // A thread of the start may have ended meanwhile.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        for line in ["NoNewPrivs:\t1\n", "Seccomp:\t2\n"] {
            assert!(status.contains(line), "{status}");
        }
    }
}

#[test]
fn folders_that_a_unit_hides_are_named_with_what_shows_them() {
    let folder = Tree::new();
    let said = |root: &str| {
        let file = folder.file("levity.toml", format!("[[site]]\nroot = \"{root}\"\n"));
        let checked = Command::new("sh")
            .args(["-c", "SYSTEMD_EXEC_PID=$$ exec \"$0\" check \"$1\""])
            .arg(env!("CARGO_BIN_EXE_levity"))
            .arg(file)
            .output()
            .expect("sh");
        String::from_utf8_lossy(&checked.stderr).into_owned()
    };
    let text = said("/home/nobody-at-all/www");
    assert!(text.contains("`ProtectHome=read-only`"), "{text}");
    let text = said("/tmp/no-such-folder");
    assert!(text.contains("`PrivateTmp=yes`"), "{text}");
    let text = said("/srv/no-such-folder");
    assert!(!text.contains("unit"), "{text}");
}

#[test]
fn the_unit_is_a_sandbox() {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/levity.service"
    );
    // In tenths; exposed is 10.
    let rated = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=25", unit])
        .output()
        .expect("systemd-analyze");
    let text = String::from_utf8_lossy(&rated.stdout);
    assert!(rated.status.success(), "{text}");
    // It forbids openat2, and then no root can be opened.
    let text = fs::read_to_string(unit).expect("read");
    assert!(
        !text
            .lines()
            .any(|line| line.starts_with("RestrictSUIDSGID="))
    );
}

#[test]
fn a_reload_that_names_a_socket_is_asked_for_at_that_of_the_service() {
    let tree = tree();
    let manager = Manager::new();
    let server = manager.launch(Launch::site(tree.path(), "", "")).start();
    let text = fs::read_to_string(server.config()).expect("read");
    // Beside the one of the service: the process may write to that folder.
    let named = manager.folder.path().join("named");
    let admin = format!("[admin]\ncontrol = \"unix:{}\"\n", named.display());
    fs::write(server.config(), format!("{text}\n{admin}")).expect("write");
    let command = ["reload", "--wait", "-c"].map(OsStr::new);
    let file = server.config();
    let asked = Launch::levity(command.into_iter().chain([file.as_os_str()]));
    let reloaded = manager.launch(asked).ran();
    assert_eq!(reloaded.status, 0, "{}", reloaded.stderr);
    assert!(named.exists());
}
