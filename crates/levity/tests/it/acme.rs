//! Certificates by ACME, of Pebble: it rejects 15 % of the good nonces.

#[allow(dead_code, reason = "tests of updates use the rest")]
#[path = "../../../levity-acme/tests/dns/server.rs"]
mod dns;
mod renewals;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity_tls::{Certificate, Trust, client_config};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, StreamOwned};

use crate::servers::free;
use crate::support::certificates::{Authority, Key};
use crate::support::scripted::Scripted;
use crate::support::{App, EXTERNAL, Launch, Server, Tree, wait_until, wait_within};

/// How long certificates may take on a busy machine. An authority that is slow on purpose is waited for.
const ISSUED_MAX: Duration = Duration::from_secs(60);

/// A names server, the folders of servers and the addresses that authorities look at.
struct World {
    /// Has signed the certificate of the authority's own server.
    roots: Authority,
    /// The names server that authorities ask.
    names: App,
    /// What outlives a server.
    state: Tree,
    site: Tree,
    /// The addresses that authorities look at: without TLS, and with it.
    doors: [SocketAddr; 2],
}

impl World {
    fn new() -> Self {
        let roots = Authority::new("roots");
        roots.certify("acme", &["127.0.0.82"], Key::Ecdsa);
        let state = Tree::new();
        state.chmod("", 0o777);
        let site = Tree::new();
        site.file("index.html", "content");
        Self {
            roots,
            names: App::names(),
            state,
            site,
            doors: [free("127.0.0.1"), free("127.0.0.1")],
        }
    }

    fn ports(&self) -> [u16; 2] {
        self.doors.map(|door| door.port())
    }

    /// An authority that looks at the doors.
    fn pebble(&self, environment: &[(&'static str, &str)]) -> App {
        self.pebble_at(self.ports(), environment)
    }

    /// An authority that looks at other ports.
    fn pebble_at(&self, ports: [u16; 2], environment: &[(&'static str, &str)]) -> App {
        let folder = self.roots.folder();
        App::pebble(folder, &self.names, ports, false, environment)
    }

    /// An authority that wants to know [`EXTERNAL`].
    fn pebble_with_accounts(&self) -> App {
        let folder = self.roots.folder();
        App::pebble(folder, &self.names, self.ports(), true, &[])
    }

    /// `[[acme.authority]]` for it, with further keys.
    fn authority(&self, pebble: &App, keys: &str) -> String {
        // Without a profile the authority chooses any, and a certificate may end during a test.
        let profile = match keys.contains("profile") {
            true => "",
            false => "profile = \"default\"",
        };
        format!(
            "[[acme.authority]]\ndirectory = \"https://{}/dir\"\nroots = \"{}\"\n{profile}\n{keys}\n",
            pebble.address(),
            self.roots.file("ca.pem")
        )
    }

    /// A site for `hosts`, in quotes and with commas.
    fn site(&self, hosts: &str) -> String {
        let root = self.site.path().display();
        format!("[[site]]\nhosts = [{hosts}]\nroot = \"{root}\"\ntls = \"acme\"\n")
    }

    fn launch(&self, rest: &str) -> Launch {
        self.launch_at(self.doors, rest)
    }

    fn launch_at(&self, [plain, tls]: [SocketAddr; 2], rest: &str) -> Launch {
        Launch::run(&format!(
            "[tls]\nfolder = \"{}\"\n[[listen]]\naddress = \"{tls}\"\ntls = true\n\
             [[listen]]\naddress = \"{plain}\"\n[admin]\nlisten = \"unix:{{own}}/admin\"\n{rest}",
            self.state.path().display(),
        ))
        .workers(2)
    }

    fn file(&self, host: &str) -> PathBuf {
        let name = format!("acme/certificates/{host}.pem");
        self.state.at(name)
    }

    /// The certificate for `host` that is in its file.
    fn certificate(&self, host: &str) -> Option<Certificate> {
        let path = self.file(host);
        Certificate::read(&path, &path).ok()
    }

    /// What a client that trusts the authority gets from `host` at `address`.
    fn get(&self, host: &str, address: SocketAddr) -> Result<String, String> {
        self.fetch(host, address).map_err(|error| error.to_string())
    }

    /// What a client gets that trusts everybody: it cannot know yet who will sign the certificate.
    fn get_unverified(&self, host: &str) -> io::Result<String> {
        request(Trust::Anybody, host, self.doors[1])
    }

    fn fetch(&self, host: &str, address: SocketAddr) -> io::Result<String> {
        let chain = CertificateDer::pem_file_iter(self.file(host)).map_err(io::Error::other)?;
        // Its root is nowhere; what it has signed is as good.
        let issuer = chain.last().expect("a chain").expect("a certificate");
        let folder = tempfile::tempdir()?;
        let trusted = folder.path().join("issuer.pem");
        fs::write(&trusted, pem(&issuer))?;
        request(Trust::Authorities(&trusted), host, address)
    }

    #[track_caller]
    fn serves(&self, host: &str) {
        wait_within(ISSUED_MAX, &format!("a certificate for {host}"), || {
            self.get(host, self.doors[1]).is_ok()
        });
        let text = self.get(host, self.doors[1]).expect("a response");
        assert!(text.ends_with("content"), "{text}");
    }

    /// Expects the handshake of the first client to wait for a certificate.
    #[track_caller]
    fn serves_at_once(&self, host: &str) {
        let text = self.get_unverified(host).expect("a response");
        assert!(text.ends_with("content"), "{text}");
    }
}

/// What a client with this trust gets from `host` at `address`.
fn request(trust: Trust<'_>, host: &str, address: SocketAddr) -> io::Result<String> {
    let config = Arc::new(client_config(trust, None).map_err(io::Error::other)?);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(session, TcpStream::connect(address)?);
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// Nonces that are refused one after the other fail an order, which is tried again later: not for tests of what is logged first.
const ALL_NONCES: [(&str, &str); 1] = [("PEBBLE_WFE_NONCEREJECT", "0")];

/// The orders that an authority has.
fn orders(pebble: &App) -> usize {
    pebble.said().matches("Added order ").count()
}

#[test]
fn each_host_gets_a_certificate_by_each_way() {
    for way in ["tls-alpn-01", "http-01"] {
        let world = World::new();
        let pebble = world.pebble(&[]);
        let acme = format!("[acme]\nchallenges = [\"{way}\"]\ncontact = \"a@example.org\"\n");
        let sites =
            world.site("\"a.example.org\", \"b.example.org\"") + &world.site("\"c.example.org\"");
        let server = world
            .launch(&format!("{acme}{}{sites}", world.authority(&pebble, "")))
            .start();
        for host in ["a.example.org", "b.example.org", "c.example.org"] {
            world.serves(host);
            server.says(&format!("certificate for {host} from Pebble"));
        }
        // Whatever else is asked for there is the site's.
        let mut client = crate::support::Client::new(world.doors[0]);
        let other = client.get_for("a.example.org", "/.well-known/acme-challenge/other");
        other.assert_status(308);
    }
}

#[test]
fn a_restart_asks_for_nothing() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let config = world.authority(&pebble, "") + &world.site("\"a.example.org\"");
    let server = world.launch(&config).start();
    world.serves("a.example.org");
    drop(server);
    let before = orders(&pebble);
    let _server = world.launch(&config).start();
    world.serves("a.example.org");
    assert_eq!(orders(&pebble), before);
    let modes = [world.file("a.example.org"), world.state.at("acme/accounts")];
    for (path, expected) in modes.iter().zip([0o600, 0o700]) {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, expected, "{}", path.display());
    }
}

#[test]
fn certificates_are_renewed_while_clients_come() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let config = world.authority(&pebble, "profile = \"brief\"") + &world.site("\"a.example.org\"");
    let _server = world.launch(&config).start();
    world.serves("a.example.org");
    let first = world.certificate("a.example.org").expect("the first");
    wait_within(ISSUED_MAX, "another certificate", || {
        world
            .get("a.example.org", world.doors[1])
            .expect("a valid one");
        let now = world.certificate("a.example.org").expect("one");
        now.der() != first.der()
    });
    wait_until("it is used", || {
        world.get("a.example.org", world.doors[1]).is_ok()
    });
}

#[test]
fn what_an_authority_refuses_is_told_and_left_alone() {
    let world = World::new();
    let pebble = world.pebble(&ALL_NONCES);
    let sites = world.site("\"a.example.org\", \"blocked.example.org\"");
    let server = world
        .launch(&(world.authority(&pebble, "") + &sites))
        .start();
    world.serves("a.example.org");
    server.says("the certificate for a.example.org is in use");
    assert!(!server.stderr().contains("certificates were read again"));
    let line = server.says("no certificate for blocked.example.org");
    assert!(
        line.contains("rejectedIdentifier") && line.contains("the next attempt is in 6"),
        "{line}"
    );
    // That of another name would only confuse. Of many failures only some are logged.
    wait_until("the handshake is refused in words", || {
        let got = world.get_unverified("blocked.example.org");
        assert!(got.is_err(), "refused");
        let said = server.stderr();
        said.contains("there is no certificate for blocked.example.org")
    });
    drop(server);
    // Nor does a restart ask again before its time.
    let count = |app: &App| app.said().matches("order-plz").count();
    let before = count(&pebble);
    let _server = world
        .launch(&(world.authority(&pebble, "") + &sites))
        .start();
    world.serves("a.example.org");
    assert_eq!(count(&pebble), before);
}

#[test]
fn a_name_that_leads_elsewhere_is_tried_in_each_way() {
    let world = World::new();
    // It looks at ports where nobody listens.
    let elsewhere = [free("127.0.0.1").port(), free("127.0.0.1").port()];
    let pebble = world.pebble_at(elsewhere, &ALL_NONCES);
    let config = world.authority(&pebble, "") + &world.site("\"a.example.org\"");
    let server = world.launch(&config).start();
    let line = wait_for(&server, "no certificate for a.example.org");
    assert!(line.contains("Failed to connect"), "{line}");
    for way in ["by tls-alpn-01: ", "by http-01: "] {
        assert!(line.contains(way), "{line}");
    }
    assert_eq!(orders(&pebble), 2);
}

/// Waits for a line, as long as a certificate may take.
fn wait_for(server: &Server, part: &str) -> String {
    wait_within(ISSUED_MAX, part, || server.stderr().contains(part));
    server.says(part)
}

#[test]
fn the_next_way_is_tried_at_once() {
    let world = World::new();
    // It looks at a port with TLS where nobody listens.
    let ports = [world.doors[0].port(), free("127.0.0.1").port()];
    let pebble = world.pebble_at(ports, &ALL_NONCES);
    let config = world.authority(&pebble, "") + &world.site("\"a.example.org\"");
    let server = world.launch(&config).start();
    world.serves("a.example.org");
    assert_eq!(orders(&pebble), 2);
    let said = server.stderr();
    assert!(!said.contains("the next attempt is in"), "{said}");
}

#[test]
fn an_account_that_is_gone_is_made_again() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let config = world.authority(&pebble, "") + &world.site("\"a.example.org\"");
    let server = world.launch(&config).start();
    world.serves("a.example.org");
    drop(server);
    let folder = world.state.at("acme/accounts");
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let [file] = &entries.map(|entry| entry.path()).collect::<Vec<_>>()[..] else {
        panic!("one account");
    };
    let text = fs::read_to_string(file).expect("an account");
    let mut account: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let id = account["id"].as_str().expect("a URL").to_owned();
    account["id"] = format!("{id}0").into();
    fs::write(file, account.to_string()).expect("written");
    let sites =
        world.site("\"a.example.org\"") + &world.site("\"b.example.org\", \"c.example.org\"");
    let config = world.authority(&pebble, "") + &sites;
    let server = world.launch(&config).start();
    for host in ["b.example.org", "c.example.org"] {
        world.serves(host);
    }
    let said = server.stderr();
    assert!(!said.contains("the next attempt is in"), "{said}");
    assert!(
        !fs::read_to_string(file)
            .expect("an account")
            .contains(&format!("{id}0\""))
    );
}

#[test]
fn an_authority_that_cannot_be_reached_is_told_and_left_out() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let closed = free("127.0.0.1");
    let down = format!("[[acme.authority]]\ndirectory = \"https://{closed}/dir\"\n");
    let sites = world.site("\"a.example.org\"") + &world.site("\"b.example.org\"");
    let config = down + &world.authority(&pebble, "") + &sites;
    let server = world.launch(&config).start();
    let line = server.says(&format!("the authority {closed} cannot be reached"));
    assert!(line.contains("Connection refused"), "{line}");
    for host in ["a.example.org", "b.example.org"] {
        world.serves(host);
    }
    let said = server.stderr();
    assert_eq!(said.matches("cannot be reached").count(), 1, "{said}");
}

#[test]
fn what_makes_an_authority_trusted_is_told() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let other = Authority::new("other");
    let config = world.authority(&pebble, "") + &world.site("\"a.example.org\"");
    let config = config.replace(&world.roots.file("ca.pem"), &other.file("ca.pem"));
    let server = world.launch(&config).start();
    let line = server.says("no certificate for a.example.org");
    let said =
        "it is not signed by an authority that is trusted here; `roots` of `[[acme.authority]]`";
    assert!(line.contains(said), "{line}");
}

#[test]
fn another_authority_replaces_certificates_at_once() {
    let world = World::new();
    let [first, second] = [world.pebble(&[]), world.pebble(&[])];
    let of = |pebble| {
        world.authority(pebble, "profile = \"minutes\"") + &world.site("\"a.example.org\"")
    };
    let server = world.launch(&of(&first)).start();
    world.serves("a.example.org");
    drop(server);
    let _server = world.launch(&of(&second)).start();
    wait_within(ISSUED_MAX, "another certificate", || orders(&second) == 1);
}

#[test]
fn an_operator_has_a_name_tried_again() {
    let world = World::new();
    let pebble = world.pebble(&[("PEBBLE_VA_ALWAYS_VALID", "1")]);
    let hook = |text: &str| {
        let hook = world.site.file("hook", format!("#!/bin/sh\n{text}\n"));
        world.site.chmod("hook", 0o755);
        hook
    };
    let path = hook("echo no access >&2; exit 3");
    let acme = format!("[acme.dns]\nhook = [\"{}\"]\n", path.display());
    let config = acme + &world.authority(&pebble, "") + &world.site("\"*.example.org\"");
    let server = world.launch(&config).start();
    let line = wait_for(&server, "no certificate for *.example.org");
    assert!(line.contains("no access"), "{line}");
    assert!(!server.stderr().contains("stays"), "{}", server.stderr());
    hook("exit 0");
    let file = server.config();
    let file = file.to_str().expect("a path in UTF-8");
    let ran = Launch::levity(["certs", file, "--retry"]).ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stdout
            .starts_with("*.example.org: another attempt is made now"),
        "{}",
        ran.stdout
    );
    // Otherwise the next attempt would be made after a minute.
    wait_until("a certificate", || {
        world.certificate("_.example.org").is_some()
    });
    wait_until("no failure is known any more", || {
        let ran = Launch::levity(["certs", file]).ran();
        !ran.stdout.contains("error: ")
    });
    let ran = Launch::levity(["certs", file, "--retry"]).ran();
    assert!(ran.stdout.ends_with("has failed\n"), "{}", ran.stdout);
}

#[test]
fn a_record_of_an_attempt_that_was_cut_off_is_removed() {
    let world = World::new();
    let pebble = world.pebble(&[("PEBBLE_VA_ALWAYS_VALID", "1")]);
    let calls = world.state.at("calls");
    let shown = calls.display();
    let text = format!(
        "#!/bin/sh\necho $1 $3 >> {shown}\n[ $(wc -l < {shown}) = 1 ] && exec sleep 1000\nexit 0\n"
    );
    let hook = world.site.file("hook", text);
    world.site.chmod("hook", 0o755);
    let acme = format!("[acme]\n[acme.dns]\nhook = [\"{}\"]\n", hook.display());
    let config = acme + &world.authority(&pebble, "") + &world.site("\"*.example.org\"");
    let server = world.launch(&config).start();
    let lines = || {
        let text = fs::read_to_string(&calls).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    wait_within(ISSUED_MAX, "a call", || lines().len() == 1);
    let file = server.config();
    let ran = Launch::levity(["certs", file.to_str().expect("a path")]).ran();
    assert!(ran.stdout.contains("in progress"), "{}", ran.stdout);
    server.reload(&["[acme]\n"], &["[acme]\ncontact = \"a@example.org\"\n"]);
    wait_within(ISSUED_MAX, "a certificate", || {
        world.certificate("_.example.org").is_some()
    });
    let lines = lines();
    let value = lines[0].strip_prefix("set ").expect("a value");
    assert_eq!(lines[1], format!("remove {value}"), "{lines:?}");
}

#[test]
fn the_next_authority_is_asked_when_the_first_refuses() {
    let world = World::new();
    let first = world.pebble_with_accounts();
    let second = world.pebble(&[]);
    let authorities = world.authority(&first, "") + &world.authority(&second, "");
    let _server = world
        .launch(&(authorities + &world.site("\"a.example.org\"")))
        .start();
    world.serves("a.example.org");
    assert_eq!((orders(&first), orders(&second)), (0, 1));
}

#[test]
fn an_account_that_was_made_elsewhere_is_used() {
    let world = World::new();
    let pebble = world.pebble_with_accounts();
    let (id, key) = EXTERNAL;
    world.site.file("key", format!("{key}\n"));
    let keys = format!(
        "account = \"{id}\"\naccount_key = \"{}\"",
        world.site.at("key").display()
    );
    let config = world.authority(&pebble, &keys) + &world.site("\"a.example.org\"");
    let _server = world.launch(&config).start();
    world.serves("a.example.org");
}

#[test]
fn servers_share_a_folder() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let authority = world.authority(&pebble, "");
    let [one, both] = ["\"b.example.org\"", "\"a.example.org\", \"b.example.org\""];
    let [one, both] = [one, both].map(|hosts| authority.clone() + &world.site(hosts));
    // The authority comes to the first one only, whoever has asked.
    let other = [free("127.0.0.1"), free("127.0.0.1")];
    let _servers = [
        world.launch(&one).start(),
        world.launch_at(other, &both).start(),
    ];
    wait_within(ISSUED_MAX, "a certificate for the second one", || {
        world.get("a.example.org", other[1]).is_ok()
    });
    world.serves("b.example.org");
    wait_until("the other has it, too", || {
        world.get("b.example.org", other[1]).is_ok()
    });
    assert_eq!(orders(&pebble), 2);
}

#[test]
fn an_order_survives_a_restart() {
    let world = World::new();
    // It does not give the order up while nobody answers.
    let slow = [
        ("PEBBLE_VA_ALWAYS_VALID", "1"),
        ("PEBBLE_VA_NOSLEEP", "0"),
        ("PEBBLE_VA_SLEEPTIME", "4"),
    ];
    let pebble = world.pebble(&slow);
    let config = world.authority(&pebble, "") + &world.site("\"a.example.org\"");
    let mut server = world.launch(&config).start();
    let state = world.state.at("acme/certificates/a.example.org.json");
    wait_within(ISSUED_MAX, "an order", || {
        fs::read_to_string(&state).is_ok_and(|text| text.contains("\"url\": \"https://"))
    });
    server.signal(Signal::KILL);
    server.wait();
    let _server = world.launch(&config).start();
    world.serves("a.example.org");
    assert_eq!(orders(&pebble), 1);
}

#[test]
fn a_name_that_nobody_knew_gets_one_if_it_may() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let asked = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let status = match request.target.ends_with("=good.example.org") {
                true => "200 OK",
                false => "404 Not Found",
            };
            conn.answer(status, "");
        }
    });
    let ask = format!("[acme]\nask = \"http://{}/may?a=b\"\n", asked.address());
    let root = world.site.path().display();
    let site = format!("[[site]]\nroot = \"{root}\"\ntls = \"acme\"\n");
    let config = ask + &world.authority(&pebble, "") + &site;
    let server = world.launch(&config).start();
    world.serves_at_once("good.example.org");
    assert!(world.get("good.example.org", world.doors[1]).is_ok());
    assert_eq!(orders(&pebble), 1);
    drop(server);
    let server = world.launch(&config).start();
    world.serves_at_once("good.example.org");
    assert_eq!(orders(&pebble), 1);
    server.reload(&["[acme]\n"], &["[acme]\ncontact = \"a@example.org\"\n"]);
    world.serves_at_once("good.example.org");
    assert_eq!(orders(&pebble), 1);
    for _ in 0..3 {
        assert!(world.get_unverified("bad.example.org").is_err());
    }
    let line = server.says("no certificate on demand for bad.example.org");
    assert!(line.contains("404"), "{line}");
    let about_bad = |requests: &[crate::support::scripted::Request]| {
        let bad = requests.iter().filter(|one| one.target.contains("bad"));
        bad.map(|one| one.target.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        about_bad(&asked.requests()),
        ["/may?a=b&domain=bad.example.org"]
    );
}

/// A program that changes the names server whose management is at `{management}`.
const HOOK: &str = "#!/bin/sh
case $1 in set) to=set-txt ;; remove) to=clear-txt ;; esac
exec curl --silent --fail --noproxy '*' --data \
    \"{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}\" http://{management}/$to
";

#[test]
fn a_name_with_a_star_is_proved_by_a_program() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let said = world.names.said();
    let management = said.split("management server on ").nth(1);
    let management = management
        .and_then(|rest| rest.lines().next())
        .expect("an address");
    let hook = world
        .site
        .file("hook", HOOK.replace("{management}", management));
    world.site.chmod("hook", 0o755);
    let acme = format!("[acme.dns]\nhook = [\"{}\"]\n", hook.display());
    let config = acme + &world.authority(&pebble, "") + &world.site("\"*.example.org\"");
    let _server = world.launch(&config).start();
    wait_within(ISSUED_MAX, "a certificate", || {
        world.certificate("_.example.org").is_some()
    });
    wait_until("it is used", || {
        world.get_unverified("any.example.org").is_ok()
    });
    let certificate = world.certificate("_.example.org").expect("a certificate");
    assert_eq!(certificate.names, ["*.example.org"]);
    drop(_server);
    world
        .site
        .file("hook", "#!/bin/sh\necho no access >&2\nexit 3\n");
    world.site.chmod("hook", 0o755);
    let config = config.replace("*.example.org", "*.a.example.org");
    let server = world.launch(&config).start();
    let line = server.says("no certificate for *.a.example.org");
    assert!(line.contains("no access") && line.contains('3'), "{line}");
}

#[test]
fn names_are_proved_by_updates_of_the_dns() {
    let (world, names) = (World::new(), dns::Server::start(dns::Kind::Bind));
    let address = names.address.to_string();
    let pebble = App::pebble_with(world.roots.folder(), &address, world.ports());
    let key = world
        .site
        .file("key", fs::read(names.key_file("sha256")).expect("a key"));
    let acme = format!(
        "[acme]\nchallenges = [\"dns-01\"]\n[acme.dns]\nserver = \"{address}\"\nkey = \"{}\"\n",
        key.display()
    );
    let sites = world.site("\"a.example.org\"") + &world.site("\"*.a.example.org\"");
    let config = acme + &world.authority(&pebble, "") + &sites;
    let _server = world.launch(&config).start();
    // Both have a record of the same name.
    for name in ["a.example.org", "_.a.example.org"] {
        wait_within(ISSUED_MAX, name, || world.certificate(name).is_some());
    }
    world.serves("a.example.org");
    wait_until("the records are gone", || {
        names.values("_acme-challenge.a.example.org").is_empty()
    });
}

#[test]
fn a_folder_that_cannot_be_written_leaves_the_old_certificate_in_use() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let config = world.authority(&pebble, "profile = \"brief\"") + &world.site("\"a.example.org\"");
    let server = world.launch(&config).start();
    world.serves("a.example.org");
    let first = world.certificate("a.example.org").expect("a certificate");
    world.state.chmod("acme/certificates", 0o555);
    if !crate::support::is_root() {
        return;
    }
    wait_within(ISSUED_MAX, "an attempt", || {
        let text = server.stderr();
        let mut failures = text
            .lines()
            .filter(|line| line.starts_with("levity: no certificate for a.example.org"));
        failures.any(|line| line.contains("cannot be written"))
    });
    assert!(world.get("a.example.org", world.doors[1]).is_ok());
    world.state.chmod("acme/certificates", 0o777);
    wait_within(ISSUED_MAX, "another one", || {
        let now = world.certificate("a.example.org");
        now.is_some_and(|now| now.der() != first.der())
    });
}

#[test]
fn a_folder_that_cannot_be_used_is_told_and_the_rest_is_served() {
    if !crate::support::is_root() {
        return;
    }
    let world = World::new();
    let pebble = world.pebble(&[]);
    world.state.chmod("", 0o000);
    let plain = format!(
        "[[site]]\nhosts = [\"b.test\"]\nroot = \"{}\"\n",
        world.site.path().display()
    );
    let config = world.authority(&pebble, "") + &world.site("\"a.example.org\"") + &plain;
    let server = world.launch(&config).start();
    let line = server.says("certificates are neither got nor renewed");
    assert!(line.contains("Permission denied"), "{line}");
    let mut client = crate::support::Client::new(world.doors[0]);
    client.get_for("b.test", "/").assert_status(200);
    world.state.chmod("", 0o777);
    world.serves("a.example.org");
}
