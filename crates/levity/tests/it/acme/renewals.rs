//! A hundred renewals by an authority that is seldom well.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levity_tls::{Trust, client_config};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::{World, orders};
use crate::support::certificates::Key;
use crate::support::{App, WAIT_MAX, wait_within};

const SITES: usize = 20;
const RENEWALS: usize = 100;
/// Five renewals of certificates that live for ten minutes: an attempt may take one, and sixteen are made at a time.
const TIME_MAX: Duration = Duration::from_secs(45 * 60);

/// Stands before an authority, and answers every second request with 503.
struct Moody {
    address: SocketAddr,
    rejected: Arc<AtomicUsize>,
}

impl Moody {
    fn start(world: &World, authority: &App) -> Self {
        world.roots.certify("moody", &["127.0.0.1"], Key::Ecdsa);
        let files = ["moody.pem", "moody.key"].map(|name| world.roots.file(name));
        let chain = CertificateDer::pem_file_iter(&files[0]).expect("a file");
        let chain = chain.collect::<Result<_, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(&files[1]).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config
            .with_safe_default_protocol_versions()
            .expect("versions");
        let config = config.with_no_client_auth().with_single_cert(chain, key);
        let config = Arc::new(config.expect("a configuration"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let to = authority.address().to_owned();
        let rejected = Arc::new(AtomicUsize::new(0));
        let count = rejected.clone();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (config, to, count) = (config.clone(), to.clone(), count.clone());
                thread::spawn(move || {
                    // Whoever has left has seen enough.
                    let _ = serve(stream, config, &to, number, &count);
                });
            }
        });
        Self { address, rejected }
    }
}

/// Answers one request.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    to: &str,
    number: usize,
    rejected: &AtomicUsize,
) -> io::Result<()> {
    let session = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut client = BufReader::new(StreamOwned::new(session, stream));
    let request = message(&mut client)?;
    // A hash of a kind: requests come in patterns.
    if number.wrapping_mul(2_654_435_761) >> 7 & 1 == 0 {
        rejected.fetch_add(1, Ordering::Relaxed);
        let refusal =
            b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        client.get_mut().write_all(refusal)?;
        client.get_mut().conn.send_close_notify();
        return client.get_mut().flush();
    }
    let config = client_config(Trust::Anybody, None).map_err(io::Error::other)?;
    let name = ServerName::try_from("127.0.0.82").map_err(io::Error::other)?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut authority = StreamOwned::new(session, TcpStream::connect(to)?);
    let line = memchr::memmem::find(&request, b"\r\n").unwrap_or_default();
    let (line, fields) = request.split_at(line);
    authority.write_all(&[line, b"\r\nConnection: close", fields].concat())?;
    // Long responses are chunked, so they end with the connection here.
    let mut response = Vec::new();
    authority.read_to_end(&mut response)?;
    client.get_mut().write_all(&response)?;
    client.get_mut().conn.send_close_notify();
    client.get_mut().flush()
}

/// A request, whole.
fn message(stream: &mut BufReader<impl Read>) -> io::Result<Vec<u8>> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    loop {
        let start = bytes.len();
        stream.read_until(b'\n', &mut bytes)?;
        let line = String::from_utf8_lossy(&bytes[start..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let start = bytes.len();
    bytes.resize(start + length, 0);
    stream.read_exact(&mut bytes[start..])?;
    Ok(bytes)
}

#[test]
#[ignore = "slow: renews certificates for minutes"]
fn a_hundred_renewals_of_twenty_sites() {
    let world = World::new();
    let pebble = world.pebble(&[]);
    let moody = Moody::start(&world, &pebble);
    let host = |number: usize| format!("site{number}.example.org");
    let sites: String = (0..SITES)
        .map(|number| world.site(&format!("\"{}\"", host(number))))
        .collect();
    let config = format!(
        "[[acme.authority]]\ndirectory = \"https://{}/dir\"\nroots = \"{}\"\nprofile = \"patient\"\n{sites}",
        moody.address,
        world.roots.file("ca.pem")
    );
    let mut server = world.launch(&config).start();
    let all = || (0..SITES).all(|number| world.get(&host(number), world.doors[1]).is_ok());
    wait_within(TIME_MAX, "all sites", all);
    let mut known: Vec<_> = (0..SITES)
        .map(|number| world.certificate(&host(number)))
        .collect();
    let (mut renewals, mut restarts, start) = (0, 0, Instant::now());
    while renewals < RENEWALS {
        assert!(start.elapsed() < TIME_MAX, "{renewals} renewals");
        for (number, before) in known.iter_mut().enumerate() {
            let now = world.certificate(&host(number));
            let [new, old] = [&now, before].map(|one| one.as_ref().map(|one| one.der().clone()));
            if new != old {
                renewals += 1;
                *before = now;
            }
            let got = world.get(&host(number), world.doors[1]);
            assert!(got.is_ok(), "{}: {got:?}", host(number));
        }
        if renewals / 25 > restarts {
            restarts += 1;
            drop(server);
            server = world.launch(&config).start();
            wait_within(WAIT_MAX, "all sites again", all);
        }
    }
    let (issued, ordered) = (SITES + renewals, orders(&pebble));
    let rejected = moody.rejected.load(Ordering::Relaxed);
    eprintln!(
        "{issued} certificates, {ordered} orders, {restarts} restarts, {rejected} requests rejected"
    );
    assert!(
        ordered * 10 <= issued * 11,
        "{ordered} orders for {issued} certificates"
    );
}
