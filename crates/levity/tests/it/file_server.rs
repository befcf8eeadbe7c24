//! A server of two files, for tests with clients of others.

use crate::support::certificates::{Authority, Key};
use crate::support::scripted::Scripted;
use crate::support::{Launch, Metrics, Server, Tree};
use crate::tls::{LISTEN, site};

/// A server of a small and a large file, and of an application that returns what it gets at `/echo`: with TLS as `a.test` or without.
pub struct FileServer {
    pub server: Server,
    _echo: Scripted,
    authority: Option<Authority>,
    pub tree: Tree,
    pub small: Vec<u8>,
    pub large: Vec<u8>,
}

impl FileServer {
    pub fn plain() -> Self {
        const TABLES: &str = "[log]\naccess = \"stdout\"\nformat = \"json\"\n\
            [admin]\nlisten = \"unix:{own}/admin\"\n[limits]\nidle_timeout = \"60s\"\nbody_bytes = \"4MiB\"\n";
        Self::new(|tree, routes| (Launch::site(tree.path(), TABLES, routes), None))
    }

    pub fn tls() -> Self {
        Self::tls_with("")
    }

    /// With further routes and tables.
    pub fn tls_with(more: &str) -> Self {
        Self::new(|tree, routes| {
            let authority = Authority::new("authority");
            authority.certify("a", &["a.test"], Key::Ecdsa);
            let tables = format!("{}\n{routes}\n{more}", authority.table(&["a"]));
            let site = site("\"a.test\"", tree, &tables);
            let limits = "[limits]\nbody_bytes = \"4MiB\"\n";
            let launch = Launch::run(&format!("{limits}{LISTEN}{site}"));
            (launch, Some(authority))
        })
    }

    fn new(launch: impl FnOnce(&Tree, &str) -> (Launch, Option<Authority>)) -> Self {
        let tree = Tree::new();
        let small = tree.filled("small", 300);
        let large = tree.filled("large", 3_000_000);
        let echo = Scripted::tcp(|conn| {
            while let Some(request) = conn.read_request() {
                conn.answer("200 OK", request.body);
            }
        });
        let (launch, authority) = launch(&tree, &route("/echo", "echo", &echo));
        Self {
            server: launch.start(),
            _echo: echo,
            authority,
            tree,
            small,
            large,
        }
    }

    pub fn has_tls(&self) -> bool {
        self.authority.is_some()
    }

    /// The authority of a server with TLS.
    #[track_caller]
    pub fn authority(&self) -> &Authority {
        self.authority.as_ref().expect("TLS")
    }

    /// The file with the certificate of the authority; `None` without TLS.
    pub fn ca(&self) -> Option<String> {
        let authority = self.authority.as_ref();
        authority.map(|authority| authority.file("ca.pem"))
    }

    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        self.server.metrics(&self.server.own("admin"))
    }

    /// The argument by which Java takes `a.test` for the server.
    pub fn java_hosts(&self) -> String {
        let hosts = self.tree.file("hosts", "127.0.0.1 a.test\n");
        format!("-Djdk.net.hosts.file={}", hosts.display())
    }

    pub fn port(&self) -> String {
        self.server.address().port().to_string()
    }

    pub fn url(&self, path: &str) -> String {
        match self.has_tls() {
            true => format!("https://a.test:{}{path}", self.port()),
            false => format!("http://127.0.0.1:{}{path}", self.port()),
        }
    }
}

/// The tables by which `backend` answers for `path`.
pub fn route(path: &str, name: &str, backend: &Scripted) -> String {
    let address = backend.address();
    format!(
        "[[site.route]]\npath = \"{path}\"\nproxy = \"{name}\"\n\
         [[upstream]]\nname = \"{name}\"\nto = [\"{address}\"]\n"
    )
}
