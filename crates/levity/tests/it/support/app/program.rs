//! How each application is started.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::sources;
use crate::servers::free;

/// A command line, run in a folder of its own.
pub struct Program {
    pub words: Vec<OsString>,
    pub environment: Vec<(&'static str, OsString)>,
    pub listens: Listens,
}

/// How its address is found out.
pub enum Listens {
    /// On this Unix socket.
    On(PathBuf),
    /// On a port of loopback that it chooses and prints behind this text.
    Saying(&'static str),
    /// On this address of loopback.
    At(SocketAddr),
}

impl Program {
    fn new(words: &[&str], listens: Listens) -> Self {
        Self {
            words: words.iter().map(OsString::from).collect(),
            environment: Vec::new(),
            listens,
        }
    }

    fn words(mut self, more: &[&str]) -> Self {
        self.words.extend(more.iter().map(OsString::from));
        self
    }

    fn environment(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }
}

/// A child that is asked to keep a connection has it for itself, hence as many children as tests may
/// have idle connections.
pub fn php_fpm(own: &Path) -> Program {
    php_fpm_with(own, "32M")
}

fn php_fpm_with(own: &Path, memory: &str) -> Program {
    let config = "\
[global]
error_log = {own}/log
[all]
listen = {own}/socket
pm = ondemand
pm.max_children = 64
php_admin_value[post_max_size] = 0
php_admin_value[memory_limit] = {memory}
php_admin_value[include_path] = /usr/share/php
php_admin_flag[log_errors] = on
";
    let text = config
        .replace("{own}", utf8(own))
        .replace("{memory}", memory);
    fs::write(own.join("fpm.conf"), text).expect("write");
    // Debian has the version in the name.
    let fpm = newest("/usr/sbin", "php-fpm");
    let words = [
        &fpm,
        "--nodaemonize",
        "--force-stderr",
        "--fpm-config",
        "fpm.conf",
    ];
    Program::new(&words, Listens::On(own.join("socket")))
}

pub fn gunicorn(own: &Path) -> Program {
    copy(&sources("python"), own);
    // Django's sendfile is no package of Debian: `cargo xtask test` puts it there.
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python");
    if packages.is_dir() {
        copy(&packages, own);
    }
    let words = [
        "gunicorn",
        "--bind",
        "127.0.0.1:0",
        "--worker-class",
        "gthread",
    ];
    Program::new(&words, Listens::Saying("Listening at: http://127.0.0.1:"))
        .words(&["--threads", "8", "--keep-alive", "60"])
        .words(&["--worker-tmp-dir", ".", "wsgi"])
        .environment("PYTHONDONTWRITEBYTECODE", "1")
}

pub fn uvicorn(own: &Path) -> Program {
    copy(&sources("python"), own);
    let words = [
        "uvicorn",
        "--port",
        "0",
        "--lifespan",
        "off",
        "--ws",
        "websockets",
    ];
    Program::new(
        &words,
        Listens::Saying("Uvicorn running on http://127.0.0.1:"),
    )
    .words(&["--no-use-colors", "--app-dir", ".", "asgi:application"])
    .environment("PYTHONDONTWRITEBYTECODE", "1")
}

pub fn uwsgi(own: &Path) -> Program {
    copy(&sources("python"), own);
    let words = ["uwsgi", "--plugin", "python3", "--scgi-socket", "socket"];
    Program::new(&words, Listens::On(own.join("socket")))
        .words(&["--wsgi-file", "wsgi.py", "--need-app", "--threads", "4"])
        .words(&["--chmod-socket=666"])
        .environment("PYTHONDONTWRITEBYTECODE", "1")
}

/// The application of `examples/chat`.
pub fn chat(own: &Path) -> Program {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/chat/app.py");
    fs::copy(source, own.join("app.py")).expect("copy");
    let listens = Listens::Saying("Running on http://127.0.0.1:");
    Program::new(&["/usr/bin/python3", "app.py"], listens).environment("PORT", "0")
}

/// With the packages that `cargo xtask test` has installed.
pub fn express(own: &Path) -> Program {
    fs::copy(sources("node/grip.mjs"), own.join("grip.mjs")).expect("copy");
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node");
    for name in packages(&["express", "@fanoutio/serve-grip"]) {
        let to = own.join("node_modules").join(&name);
        fs::create_dir_all(&to).expect("mkdir");
        copy(&installed.join("node_modules").join(&name), &to);
    }
    Program::new(
        &["node", "grip.mjs"],
        Listens::Saying("listening at http://127.0.0.1:"),
    )
}

/// These packages of Node.js and all that they need.
fn packages(names: &[&str]) -> BTreeSet<String> {
    let lock = fs::read(sources("node/package-lock.json")).expect("read");
    let lock: serde_json::Value = serde_json::from_slice(&lock).expect("JSON");
    let mut wanted: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut all = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        let needed = &lock["packages"][format!("node_modules/{name}")]["dependencies"];
        let needed = needed.as_object().into_iter().flat_map(|it| it.keys());
        if all.insert(name) {
            wanted.extend(needed.cloned());
        }
    }
    all
}

pub fn puma(own: &Path) -> Program {
    copy(&sources("ruby"), own);
    let words = [
        "puma",
        "--bind",
        "unix://socket",
        "--threads",
        "4:4",
        "config.ru",
    ];
    Program::new(&words, Listens::On(own.join("socket")))
}

pub fn tomcat(own: &Path) -> Program {
    copy(&sources("tomcat"), own);
    // Tomcat makes folders beside those that are there.
    for folder in ["conf", "webapps"] {
        fs::set_permissions(own.join(folder), Permissions::from_mode(0o777)).expect("chmod");
    }
    // What `catalina.sh` would do, but for options of a large server: it starts in half the time.
    let words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx128m"];
    Program::new(
        &words,
        Listens::Saying("Starting ProtocolHandler [\"ajp-nio-127.0.0.1-auto-1-"),
    )
    .words(&["-Djava.io.tmpdir=.", "-Dcatalina.base=."])
    .words(&["-Dcatalina.home=/usr/share/tomcat10", "-classpath"])
    .words(&["/usr/share/tomcat10/bin/bootstrap.jar:/usr/share/tomcat10/bin/tomcat-juli.jar"])
    .words(&["org.apache.catalina.startup.Bootstrap", "start"])
}

/// The same with the memory that WordPress needs.
pub fn php_fpm_large(own: &Path) -> Program {
    php_fpm_with(own, "128M")
}

/// With an empty database `wordpress` that everybody may write to.
pub fn mariadb(own: &Path) -> Program {
    fs::write(
        own.join("init.sql"),
        "CREATE DATABASE IF NOT EXISTS wordpress;\n",
    )
    .expect("write");
    let script = "mariadb-install-db --no-defaults --datadir=\"$PWD/data\" --skip-test-db >&2 && \
                  exec /usr/sbin/mariadbd --no-defaults --datadir=\"$PWD/data\" --socket=\"$PWD/socket\" \
                  --pid-file=\"$PWD/pid\" --init-file=\"$PWD/init.sql\" --skip-networking --skip-grant-tables";
    Program::new(&["sh", "-c", script], Listens::On(own.join("socket")))
}

/// Serves the files of `root`, compressed with gzip.
pub fn apache(own: &Path, root: &Path) -> Program {
    let address = free("127.0.0.80");
    let config = "\
ServerName localhost
Listen {address}
PidFile {own}/pid
ErrorLog {own}/log
Mutex pthread
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule mime_module modules/mod_mime.so
LoadModule filter_module modules/mod_filter.so
LoadModule deflate_module modules/mod_deflate.so
DocumentRoot {root}
TypesConfig /dev/null
AddType text/html .html
AddType image/png .png
AddOutputFilterByType DEFLATE text/html text/plain
";
    let config = config
        .replace("{address}", &address.to_string())
        .replace("{own}", utf8(own))
        .replace("{root}", utf8(root));
    fs::write(own.join("apache.conf"), config).expect("write");
    let file = own.join("apache.conf");
    let words = [
        "/usr/sbin/apache2",
        "-d",
        "/usr/lib/apache2",
        "-f",
        utf8(&file),
    ];
    Program::new(&words, Listens::At(address)).words(&["-DFOREGROUND"])
}

pub fn nginx(own: &Path, servers: &str) -> Program {
    let address = free("127.0.0.81");
    let config = "\
daemon off;
pid {own}/pid;
error_log stderr;
events {}
http {
include /etc/nginx/mime.types;
access_log off;
absolute_redirect off;
client_body_temp_path {own}/body;
proxy_temp_path {own}/proxy;
fastcgi_temp_path {own}/fastcgi;
uwsgi_temp_path {own}/uwsgi;
scgi_temp_path {own}/scgi;
";
    let servers = servers
        .replace("listen 80", &format!("listen {address}"))
        .replace("fastcgi_params", "/etc/nginx/fastcgi_params");
    let config = config.replace("{own}", utf8(own)) + &servers + "}\n";
    fs::write(own.join("nginx.conf"), config).expect("write");
    let file = own.join("nginx.conf");
    let words = ["/usr/sbin/nginx", "-e", "stderr", "-c", utf8(&file)];
    Program::new(&words, Listens::At(address))
}

/// The identifier of an account, and its key in base64url.
pub const EXTERNAL: (&str, &str) = (
    "account-1",
    "bGV2aXR5IHRlc3RzIGtub3cgdGhpcyBrZXksIGFuZCBvbmx5IHRoZXkgZG8",
);

/// An authority that speaks ACME. It trusts what the names server at `names` says, and looks at the ports of `doors`: without TLS and
/// with it. Where it `wants_accounts`, they are those of [`EXTERNAL`]. `folder` has its own certificate as `acme.pem` and `acme.key`.
pub fn pebble(
    own: &Path,
    folder: &Path,
    names: &str,
    doors: [u16; 2],
    wants_accounts: bool,
    environment: &[(&'static str, &str)],
) -> Program {
    let address = free("127.0.0.82");
    let profile = |seconds: u32| serde_json::json!({"description": "", "validityPeriod": seconds});
    let config = serde_json::json!({"pebble": {
        "listenAddress": address.to_string(),
        "managementListenAddress": "",
        "certificate": folder.join("acme.pem"),
        "privateKey": folder.join("acme.key"),
        "httpPort": doors[0],
        "tlsPort": doors[1],
        "domainBlocklist": ["blocked.example.org"],
        "retryAfter": {"authz": 1, "order": 1},
        "externalAccountBindingRequired": wants_accounts,
        "externalAccountMACKeys": {EXTERNAL.0: EXTERNAL.1},
        "profiles": {"default": profile(90 * 24 * 60 * 60), "shortlived": profile(6 * 24 * 60 * 60), "brief": profile(40), "minutes": profile(120), "patient": profile(600)},
    }});
    fs::write(own.join("config.json"), config.to_string()).expect("write");
    let file = own.join("config.json");
    let program = go_program("pebble");
    let words = [utf8(&program), "-config", utf8(&file), "-dnsserver", names];
    let usual = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "5")];
    let program = Program::new(&words, Listens::At(address));
    let environment = usual.iter().chain(environment);
    environment.fold(program, |program, &(name, value)| {
        program.environment(name, value)
    })
}

/// A names server that has the address 127.0.0.1 for every name.
pub fn names(_: &Path) -> Program {
    let [names, management] = [free("127.0.0.83"), free("127.0.0.83")].map(|one| one.to_string());
    let program = go_program("pebble-challtestsrv");
    let off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""];
    let addresses = ["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""];
    let at = ["-dnsserver", &names, "-management", &management];
    let listens = Listens::At(names.parse().expect("an address"));
    Program::new(&[utf8(&program)], listens)
        .words(&off)
        .words(&addresses)
        .words(&at)
}

/// A program that `cargo xtask test` has built.
fn go_program(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/go/bin");
    let path = folder.join(name);
    let path = path.canonicalize();
    path.unwrap_or_else(|_| panic!("no {name}: run `cargo xtask test`, which builds it"))
}

/// The last by name of the programs that start so.
fn newest(folder: &str, start: &str) -> String {
    let entries = fs::read_dir(folder)
        .expect("a folder of programs")
        .flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.filter(|name| name.starts_with(start)).max();
    let name = name.unwrap_or_else(|| panic!("no {start}: run `cargo xtask test`"));
    format!("{folder}/{name}")
}

/// Copies what is in a folder, for somebody who may not see the original.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let copied = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            fs::create_dir(&copied).expect("mkdir");
            fs::set_permissions(&copied, Permissions::from_mode(0o755)).expect("chmod");
            copy(&path, &copied);
        } else {
            fs::copy(&path, &copied).expect("copy");
            fs::set_permissions(&copied, Permissions::from_mode(0o644)).expect("chmod");
        }
    }
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
