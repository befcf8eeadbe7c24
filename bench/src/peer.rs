//! The servers that are compared: Levity with each engine, and the peers. A row of a table is one
//! server with one configuration; the configurations are the files in `bench/peers`.

pub mod compression;
pub mod http2;
pub mod mailbox;
pub mod proxy;
pub mod tls;

use crate::failure::{Context, Failure, Result};
use crate::load::command::Load;
use crate::mailbox::dialect::Dialect;
use crate::metrics::Metrics;
use crate::rig::Rig;
use crate::rig::cgroup::{Group, Limits};
use crate::rig::confine;
use crate::rig::slow_disk::create_dir_for_nobody;
use crate::rig::tree::FileSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time-out of the start of a server.
const START_MAX: Duration = Duration::from_secs(10);
/// The time-out of opening every cold file.
const FILL_SECONDS_MAX: f64 = 600.0;

/// The peers by their names on the command line, with their configurations.
pub const PEERS: [(&str, &str); 5] = [
    (
        "nginx-sendfile",
        include_str!("../peers/nginx-sendfile.conf"),
    ),
    ("nginx-threads", include_str!("../peers/nginx-threads.conf")),
    ("nginx-best", NGINX_BEST),
    (NGINX_BEST_FILLED, NGINX_BEST),
    ("lighttpd", include_str!("../peers/lighttpd.conf")),
];
const NGINX_BEST: &str = include_str!("../peers/nginx-best.conf");
/// Its cache of open files is filled before the measurement, so that its event loop opens no file.
const NGINX_BEST_FILLED: &str = "nginx-best-filled";
const LEVITY: &str = include_str!("../peers/levity.toml");

/// One server with one configuration.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name in the tables.
    pub name: String,
    program: Program,
    template: &'static str,
    workers: usize,
    /// Whether the scheduler places it, also if it has one event loop.
    is_unpinned: bool,
    /// Whether only its own folder is writable, as in the unit for systemd.
    is_sandboxed: bool,
    /// A quota of CPU time, in CPU seconds per second.
    processors_max: Option<f64>,
    /// The memory limit in MiB; None for that of the rig.
    memory_mib: Option<u64>,
    /// Additional lines of Levity's configuration; empty for a peer.
    settings: String,
    /// Additional placeholders of the template, with their values.
    blanks: Vec<(&'static str, String)>,
    /// The name of its control group.
    group: &'static str,
    /// How it spells requests for mailboxes.
    dialect: Option<Dialect>,
    /// The host of its requests if it speaks TLS.
    host: Option<&'static str>,
    /// The requests on a connection at a time if they are made over HTTP/2.
    streams: Option<usize>,
}

#[derive(Clone, Debug)]
enum Program {
    Levity {
        binary: PathBuf,
        engine: String,
    },
    Nginx,
    Haproxy,
    Lighttpd,
    H2o,
    Caddy,
    /// A server without files: its command line, with placeholders.
    CommandLine(Vec<String>),
}

impl AsRef<Self> for Row {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Row {
    /// A peer by its name.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn peer(name: &str) -> Result<Self> {
        let known = PEERS.iter().find(|(peer, _)| *peer == name);
        let (_, template) =
            known.ok_or_else(|| Failure::new(format!("unknown peer {name}: {}", peer_names())))?;
        let program = if name == "lighttpd" {
            Program::Lighttpd
        } else {
            Program::Nginx
        };
        Ok(Self::new(name, program, template))
    }

    /// The name of [`Row::bare_files`].
    pub const BARE_FILES: &str = "bare sendfile";

    /// The bare server of files in this program.
    ///
    /// # Errors
    /// This program has no path.
    pub fn bare_files(rig: &Rig) -> Result<Self> {
        let program = rig.own_program()?;
        let mut row = Self::bare(Self::BARE_FILES, &program, &["bare-files", "--root={root}"]);
        row.blanks = vec![("{root}", rig.docroot.display().to_string())];
        Ok(row)
    }

    /// A bare server in this program, as the `words` behind its name say.
    fn bare(name: &str, program: &Path, words: &[&str]) -> Self {
        let program = program.to_string_lossy();
        let all = [&*program].into_iter().chain(words.iter().copied());
        let command = all.chain(["--address={address}"]).map(str::to_owned);
        Self::new(name, Program::CommandLine(command.collect()), "")
    }

    fn new(name: &str, program: Program, template: &'static str) -> Self {
        Self {
            name: name.into(),
            program,
            template,
            workers: 1,
            is_unpinned: false,
            is_sandboxed: false,
            processors_max: None,
            memory_mib: None,
            settings: String::new(),
            blanks: Vec::new(),
            group: "server",
            dialect: None,
            host: None,
            streams: None,
        }
    }

    /// Levity with this engine.
    #[must_use]
    pub fn levity(binary: &Path, engine: &str) -> Self {
        let program = Program::Levity {
            binary: binary.into(),
            engine: engine.into(),
        };
        Self::new(&format!("levity {engine}"), program, LEVITY)
    }

    /// The same with this many event loops. Several event loops are not pinned.
    #[must_use]
    pub fn with_workers(&self, workers: usize) -> Self {
        Self {
            workers,
            ..self.clone()
        }
    }

    /// The same with a quota of CPU time, in CPU seconds per second.
    #[must_use]
    pub fn with_processors_max(&self, processors: f64) -> Self {
        Self {
            processors_max: Some(processors),
            ..self.clone()
        }
    }

    /// The same, placed by the scheduler.
    #[must_use]
    pub fn unpinned(&self) -> Self {
        Self {
            is_unpinned: true,
            ..self.clone()
        }
    }

    /// The same with this memory limit in MiB, page cache included.
    #[must_use]
    pub fn with_memory_mib(&self, mib: u64) -> Self {
        Self {
            memory_mib: Some(mib),
            ..self.clone()
        }
    }

    /// Whether it has a quota of CPU time.
    #[must_use]
    pub fn has_quota(&self) -> bool {
        self.processors_max.is_some()
    }

    /// Levity in a mount namespace in which only its own folder is writable. The process confines itself besides.
    #[must_use]
    pub fn sandboxed(&self) -> Self {
        Self {
            name: format!("{} sandboxed", self.name),
            is_sandboxed: true,
            ..self.clone()
        }
    }

    /// Levity that does not confine itself: it might start a program, which never comes to that.
    #[must_use]
    pub fn unconfined(&self) -> Self {
        Self {
            name: format!("{} unconfined", self.name),
            settings: "[acme]\nchallenges = [\"dns-01\"]\n[acme.dns]\nhook = [\"/bin/false\"]\n"
                .into(),
            ..self.clone()
        }
    }

    /// The same with this read size in bytes, which is configurable only in Levity.
    #[must_use]
    pub fn with_chunk(&self, bytes: usize) -> Self {
        Self {
            settings: format!("[disk]\nchunk = {bytes}\n"),
            ..self.clone()
        }
    }

    /// The same under one more name, so that both may run at a time.
    #[must_use]
    pub fn beside(&self, name: &'static str) -> Self {
        Self {
            name: format!("{} {name}", self.name),
            group: name,
            ..self.clone()
        }
    }

    /// Levity behind a proxy on this machine, which names the clients. `site` are keys of the site.
    #[must_use]
    pub fn behind_proxy(&self, site: &str) -> Self {
        Self {
            settings: "trusted_proxies = [\"127.0.0.1\"]\n".into(),
            blanks: vec![("{compression}", site.into())],
            ..self.clone()
        }
    }

    /// The same with passwords for all paths beneath `/secret/`. `users` is a file of htpasswd; None for a peer that is
    /// not prepared for this.
    #[must_use]
    pub fn with_passwords(&self, users: &Path) -> Option<Self> {
        let (users, mut row) = (users.display(), self.clone());
        match self.program {
            Program::Levity { .. } => {
                row = self.behind_proxy(&format!(
                    "[[site.route]]\npath = \"/secret/*\"\nbasic_auth = {{ users = \"{users}\" }}\nstrip_prefix = \"/secret\""
                ));
            }
            Program::Nginx => row.blanks.push((
                "{locations}",
                format!(
                    "        location /secret/ {{ alias {{root}}/; auth_basic secret; auth_basic_user_file {users}; }}"
                ),
            )),
            _ => return None,
        }
        Some(row)
    }

    /// Whether it is Levity, which has more bars to meet.
    #[must_use]
    pub fn is_levity(&self) -> bool {
        matches!(self.program, Program::Levity { .. })
    }

    /// Whether it serves files.
    #[must_use]
    pub fn has_files(&self) -> bool {
        !matches!(self.program, Program::CommandLine(_))
    }

    /// Whether its cache of open files is filled before a measurement of cold files.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.name == NGINX_BEST_FILLED
    }

    fn cpu(&self, rig: &Rig) -> Option<usize> {
        let is_pinned = self.workers == 1 && !self.is_unpinned;
        rig.server_cpu().filter(|_| is_pinned)
    }

    /// The name of its configuration file. Centrifugo knows the format by its suffix.
    fn configuration(&self) -> &'static str {
        match self.program {
            Program::CommandLine(_) => "configuration.json",
            _ => "configuration",
        }
    }

    fn command_line(&self, dir: &Path, configuration: &Path, address: SocketAddr) -> Vec<String> {
        let address = address.to_string();
        let (dir, configuration) = (dir.to_string_lossy(), configuration.to_string_lossy());
        let words: Vec<&str> = match &self.program {
            Program::Nginx => vec![
                "/usr/sbin/nginx",
                "-p",
                &dir,
                "-e",
                "stderr",
                "-c",
                &configuration,
            ],
            Program::Haproxy => vec!["/usr/sbin/haproxy", "-db", "-f", &configuration],
            Program::Lighttpd => vec!["/usr/sbin/lighttpd", "-D", "-f", &configuration],
            Program::H2o => vec!["/usr/bin/h2o", "-c", &configuration],
            Program::Caddy => vec![
                "/usr/bin/caddy",
                "run",
                "--config",
                &configuration,
                "--adapter",
                "caddyfile",
            ],
            Program::CommandLine(command) => {
                let fill = |word: &String| {
                    let word = word.replace("{configuration}", &configuration);
                    let blanks = self.blanks.iter();
                    blanks.fold(
                        word.replace("{address}", &address),
                        |word, (blank, value)| word.replace(blank, value),
                    )
                };
                return command.iter().map(fill).collect();
            }
            Program::Levity { binary, engine } => {
                let binary = binary.to_str().unwrap_or_default();
                vec![binary, "run", "-c", &configuration, "--engine", engine]
            }
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

/// The engines of this binary, in its order.
///
/// # Errors
/// It cannot be started, or is not Levity.
pub fn engines_of(levity: &Path) -> Result<Vec<String>> {
    let output = Command::new(levity)
        .args(["run", "--engine", "?"])
        .output()
        .context(|| format!("start {}", levity.display()))?;
    engines_in(&String::from_utf8_lossy(&output.stderr))
}

/// Parses the error message about an engine that does not exist.
fn engines_in(message: &str) -> Result<Vec<String>> {
    let known = message
        .lines()
        .find_map(|line| Some(line.split_once("one of ")?.1));
    let known = known.ok_or_else(|| Failure::new(format!("no list of engines: {message}")))?;
    Ok(known.split(", ").map(str::to_owned).collect())
}

fn peer_names() -> String {
    PEERS.map(|(name, _)| name).join(", ")
}

/// A running server. Dropping it kills everything in its control group.
pub struct Server {
    /// Its row.
    pub row: Row,
    /// Its address.
    pub address: SocketAddr,
    /// Its control group, which limits its memory and measures its CPU time.
    pub group: Group,
    admin: SocketAddr,
    child: Child,
}

impl Server {
    /// Starts it unprivileged in a control group of its own. Waits until it accepts connections.
    ///
    /// # Errors
    /// It does not start; its messages are in the error.
    pub fn start(rig: &Rig, row: &Row) -> Result<Self> {
        let dir = rig
            .setup
            .dir
            .join("servers")
            .join(row.name.replace(' ', "-"));
        create_dir_for_nobody(&dir)?;
        let [address, admin] = free_addresses()?;
        let configuration = dir.join(row.configuration());
        let text = fill_in(row, &dir, &rig.docroot, address, admin);
        fs::write(&configuration, text).context(|| format!("write {}", configuration.display()))?;
        let limits = Limits {
            memory_bytes_max: row.memory_mib.unwrap_or(rig.memory_mib()) << 20,
            processors_max: row.processors_max,
        };
        let group = Group::create(rig.journal(), row.group, limits)?;
        let log = dir.join("output.log");
        let output = File::create(&log).context(|| format!("create {}", log.display()))?;
        let errors = output
            .try_clone()
            .context(|| "duplicate a descriptor".into())?;
        let child = confine::server(
            &group.paths(),
            row.cpu(rig),
            Some(dir.as_path()).filter(|_| row.is_sandboxed),
            &row.command_line(&dir, &configuration, address),
        )
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .context(|| format!("start {}", row.name))?;
        let mut server = Self {
            row: row.clone(),
            address,
            group,
            admin,
            child,
        };
        server.wait_until_it_accepts(&log)?;
        Ok(server)
    }

    fn wait_until_it_accepts(&mut self, log: &Path) -> Result<()> {
        let end = Instant::now() + START_MAX;
        // The admin listener of Levity starts a moment after those for clients.
        let accepts = |server: &Self| {
            let admin = Some(server.admin).filter(|_| server.row.is_levity());
            let connects = |address| TcpStream::connect(address).is_ok();
            connects(server.address) && admin.is_none_or(connects)
        };
        while !accepts(self) {
            let ended = self
                .child
                .try_wait()
                .context(|| "wait for a server".into())?
                .is_some();
            if ended || Instant::now() > end {
                let said = fs::read_to_string(log).unwrap_or_default();
                return Err(Failure::new(format!(
                    "{} does not start: {}",
                    self.row.name,
                    said.trim_end()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// A closed loop of `seconds` on it, over TLS or HTTP/2 if the row has them.
    #[must_use]
    pub fn load(&self, path: &str, connections: usize, seconds: f64) -> Load {
        let mut load = Load::new(self.address, path, connections, seconds);
        load.tls = self.row.host.map(str::to_owned);
        load.streams = self.row.streams;
        load
    }

    /// Sends HEAD for every file of the set to fill the cache of open files.
    ///
    /// # Errors
    /// The load generator fails.
    pub fn fill_cache_of_open_files(&self, rig: &Rig, set: &FileSet) -> Result<()> {
        let mut load = Load::new(self.address, "", 64, FILL_SECONDS_MAX);
        load.method = "HEAD".into();
        load.list = Some(rig.list(set, 0, set.files)?);
        load.measure(rig.load_cpu()).map(drop)
    }

    /// The threads that must not wait for a disk: the workers of Levity, and the main thread of each process of a
    /// peer.
    ///
    /// # Errors
    /// The control group is gone.
    pub fn loops(&self) -> Result<Vec<i32>> {
        if !self.row.is_levity() {
            return self.group.processes();
        }
        let is_worker = |thread: &i32| {
            fs::read_to_string(format!("/proc/{thread}/comm"))
                .is_ok_and(|name| name.starts_with("worker-"))
        };
        Ok(self
            .group
            .threads()?
            .into_iter()
            .filter(is_worker)
            .collect())
    }

    /// Its metrics; None for a peer.
    ///
    /// # Errors
    /// The metrics of Levity cannot be fetched.
    pub fn metrics(&self) -> Result<Option<Metrics>> {
        self.row
            .is_levity()
            .then(|| Metrics::fetch(self.admin))
            .transpose()
    }

    /// Memory of all its processes in bytes, shared pages in equal parts (`Pss`, proc(5)).
    ///
    /// # Errors
    /// The control group is gone.
    pub fn proportional_bytes(&self) -> Result<u64> {
        let processes = self.group.processes()?;
        let bytes = |pid| kilobytes_in(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
        Ok(processes.into_iter().filter_map(bytes).sum::<u64>() * 1024)
    }

    /// Anonymous memory of all its processes, in bytes.
    ///
    /// # Errors
    /// The control group is gone.
    pub fn anonymous_bytes(&self) -> Result<u64> {
        Ok(self
            .group
            .processes()?
            .into_iter()
            .filter_map(anonymous_bytes_of)
            .sum())
    }

    /// The most of it within `duration`, looked at every `interval`.
    ///
    /// # Errors
    /// The control group is gone.
    pub fn most_anonymous_bytes(&self, duration: Duration, interval: Duration) -> Result<u64> {
        let end = Instant::now() + duration;
        let mut most = 0;
        while Instant::now() < end {
            most = most.max(self.anonymous_bytes()?);
            std::thread::sleep(interval);
        }
        Ok(most)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only the main process. The guard of the group, dropped next, kills the others.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn anonymous_bytes_of(pid: i32) -> Option<u64> {
    Some(kilobytes_in(&format!("/proc/{pid}/status"), "RssAnon:")? * 1024)
}

/// The number in the line of a file in `/proc` that begins with this name.
fn kilobytes_in(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn fill_in(row: &Row, dir: &Path, root: &Path, address: SocketAddr, admin: SocketAddr) -> String {
    // The number of lighttpd does not include its main process.
    let workers = match row.program {
        Program::Lighttpd if row.workers == 1 => 0,
        _ => row.workers,
    };
    let blanks = row.blanks.iter();
    blanks
        .fold(row.template.to_owned(), |text, (blank, value)| {
            text.replace(blank, value)
        })
        .replace("{workers}", &workers.to_string())
        .replace("{settings}", &row.settings)
        // Blanks without a value.
        .replace("{compression}", "")
        .replace("{locations}", "")
        .replace("{modules}", "")
        .replace("{limits}", "")
        .replace("{http2}", "")
        .replace("{h2}", "")
        .replace("{dir}", &dir.to_string_lossy())
        .replace("{root}", &root.to_string_lossy())
        .replace("{address}", &address.to_string())
        .replace("{host}", &address.ip().to_string())
        .replace("{port}", &address.port().to_string())
        .replace("{admin}", &admin.to_string())
}

/// Loopback ports that were free a moment ago: peers cannot choose one and report it.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Both are held until both are known: the kernel may give a port again that has become free.
    let find = || {
        let [first, second] = [listen()?, listen()?];
        Ok([first.local_addr()?, second.local_addr()?])
    };
    let found: std::io::Result<_> = find();
    found.context(|| "find free ports".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_placeholder_is_left_in_a_configuration() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let peers = PEERS.iter().map(|(name, _)| Row::peer(name).unwrap());
        for row in peers.chain([Row::levity(Path::new("/l"), "threads")]) {
            let row = row.with_workers(2);
            let text = fill_in(&row, Path::new("/d"), Path::new("/r"), address, address);
            let left = text
                .lines()
                .find(|line| line.contains('{') && line.contains('}') && !line.contains(" = "));
            assert_eq!(left, None);
            assert!(text.contains("8080") && text.contains("/r"));
            assert!(text.contains(['2']), "{text}");
        }
    }

    #[test]
    fn the_engines_are_those_of_the_binary() {
        let message = "error: invalid value '?' for '--engine <NAME>': one of auto, threads, sendfile\n\nFor more";
        assert_eq!(
            engines_in(message).unwrap(),
            ["auto", "threads", "sendfile"]
        );
        assert!(engines_in("error: no such option").is_err());
    }

    #[test]
    fn an_unknown_peer_is_reported_with_the_known_ones() {
        let error = Row::peer("apache").unwrap_err().to_string();
        assert!(
            error.contains("apache") && error.contains("nginx-best"),
            "{error}"
        );
    }
}
