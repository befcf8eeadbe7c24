//! A server with one zone that may be changed, in a temporary folder.

use std::fs;
use std::iter;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use levity_acme::dns::TsigKey;
use tempfile::TempDir;

/// The keys, by their names, and their algorithms. All except `stranger` may change the zone.
const KEYS: [(&str, &str); 4] = [
    ("sha256", "hmac-sha256"),
    ("sha384", "hmac-sha384"),
    ("sha512", "hmac-sha512"),
    ("stranger", "hmac-sha256"),
];

const ZONE: &str = "\
$TTL 60
@ SOA ns admin 1 3600 600 86400 60
@ NS ns
_acme-challenge.alias CNAME target
delegated NS ns.example.net.
";

/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a query waits for a response until it is sent again.
const QUERY_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Bind,
    Knot,
}

/// A server, which is stopped when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    kind: Kind,
    folder: TempDir,
    process: Child,
}

impl Server {
    /// Starts a server, and waits until it has loaded its zone.
    pub fn start(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = free_address();
        let zone = format!("{ZONE}ns A {}\n", address.ip());
        fs::write(folder.path().join("example.org.zone"), zone).unwrap();
        for (name, algorithm) in KEYS {
            write_key(kind, folder.path(), name, algorithm);
        }
        let mut command = match kind {
            Kind::Bind => named(folder.path(), address),
            Kind::Knot => knotd(folder.path(), address),
        };
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut server = Self {
            address,
            kind,
            folder,
            process,
        };
        server.wait_until_loaded();
        server
    }

    /// The key of the file that the server itself reads.
    pub fn key(&self, name: &str) -> TsigKey {
        TsigKey::read(&self.key_file(name)).unwrap()
    }

    /// The file with the key of that name.
    pub fn key_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.key"))
    }

    /// The values of a TXT record, in order.
    pub fn values(&self, name: &str) -> Vec<String> {
        let mut values: Vec<String> = self
            .query(name, RecordType::TXT)
            .unwrap()
            .answers
            .iter()
            .filter_map(|record| match &record.data {
                RData::TXT(text) => Some(text.to_string()),
                _ => None,
            })
            .collect();
        values.sort();
        values
    }

    /// What is said about a server that does not let the key `stranger` change its zone, nor someone without a key.
    pub fn refusals(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Bind => (
                "refuses an update of the zone example.org with the key stranger (REFUSED)",
                "refuses an update of the zone example.org without a key (REFUSED)",
            ),
            Kind::Knot => (
                "does not accept the key stranger (BADKEY)",
                "refuses an update of the zone example.org without a key (NOTAUTH)",
            ),
        }
    }

    /// Stops the process, but keeps the rest.
    pub fn stop(mut self) -> Self {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self
    }

    fn wait_until_loaded(&mut self) {
        let start = Instant::now();
        while !self.is_loaded() {
            let ended = self.process.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
                panic!("{:?} does not start: {ended:?}\n{log}", self.kind);
            }
        }
    }

    fn is_loaded(&self) -> bool {
        let response = self.query("example.org", RecordType::SOA);
        response.is_some_and(|response| !response.answers.is_empty())
    }

    /// The response to a query over UDP, if there is one within `QUERY_TIMEOUT`.
    fn query(&self, name: &str, record_type: RecordType) -> Option<Message> {
        let mut message = Message::query();
        let name = Name::from_ascii(name).unwrap();
        message.add_query(Query::query(name, record_type));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(QUERY_TIMEOUT)).unwrap();
        socket.connect(self.address).unwrap();
        socket.send(&message.to_vec().unwrap()).ok()?;
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).ok()?;
        Some(Message::from_vec(&bytes[..length]).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address with a port that no other test gets: `named` would share the port of another one without an error. The
/// kernel gives none of these to clients.
fn free_address() -> SocketAddr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let is_free = |address: &SocketAddr| {
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    };
    let mut addresses = iter::repeat_with(|| {
        let number = (process::id() << 4) + COUNT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + u16::try_from(number % 20_000).unwrap();
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    });
    addresses.find(is_free).unwrap()
}

/// Writes the file of a new key with the program of the server.
fn write_key(kind: Kind, folder: &Path, name: &str, algorithm: &str) {
    let mut command = match kind {
        Kind::Bind => Command::new("/usr/sbin/tsig-keygen"),
        Kind::Knot => Command::new("/usr/sbin/keymgr"),
    };
    match kind {
        Kind::Bind => command.args(["-a", algorithm, name]),
        Kind::Knot => command.args(["-t", name, algorithm]),
    };
    let written = command.output().unwrap();
    assert!(written.status.success(), "{written:?}");
    fs::write(folder.join(format!("{name}.key")), written.stdout).unwrap();
}

fn named(folder: &Path, address: SocketAddr) -> Command {
    let config = format!(
        "options {{ directory \"{}\"; pid-file none; session-keyfile none; recursion no; dnssec-validation no;
            listen-on port {} {{ {}; }}; listen-on-v6 {{ none; }}; }};
        controls {{ }};
        include \"sha256.key\"; include \"sha384.key\"; include \"sha512.key\"; include \"stranger.key\";
        zone example.org {{ type primary; file \"example.org.zone\";
            allow-update {{ key sha256; key sha384; key sha512; }}; }};\n",
        folder.display(),
        address.port(),
        address.ip()
    );
    fs::write(folder.join("named.conf"), config).unwrap();
    // AppArmor lets the program at its usual path read no temporary files. A process copies it, since a program cannot be
    // started while a child of another thread still has it open for writing.
    let program = folder.join("named");
    let copied = Command::new("cp")
        .arg("/usr/sbin/named")
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(program);
    command.args(["-g", "-n", "1", "-c", "named.conf"]);
    command.current_dir(folder);
    command
}

fn knotd(folder: &Path, address: SocketAddr) -> Command {
    let folder_name = folder.display();
    let config = format!(
        "include: {folder_name}/sha256.key\ninclude: {folder_name}/sha384.key\n\
         include: {folder_name}/sha512.key\ninclude: {folder_name}/stranger.key\n\
         server:\n  rundir: {folder_name}\n  listen: {}@{}\n  udp-workers: 1\n  tcp-workers: 1\n  \
         background-workers: 1\n\
         database:\n  storage: {folder_name}\n  journal-db-max-size: 10M\n\
         log:\n- target: stderr\n  any: info\n\
         acl:\n- id: changes\n  action: update\n  key: [sha256, sha384, sha512]\n\
         zone:\n- domain: example.org\n  storage: {folder_name}\n  file: example.org.zone\n  acl: changes\n",
        address.ip(),
        address.port()
    );
    fs::write(folder.join("knot.conf"), config).unwrap();
    let mut command = Command::new("/usr/sbin/knotd");
    command.arg("-c").arg(folder.join("knot.conf"));
    command
}
