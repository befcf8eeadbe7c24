//! `levity reload` and `levity health`: commands for a running server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use levity_config::AdminPlaces;
use levity_config::address::Address;

use super::{EXIT_FAILURE, EXIT_USAGE, Environment, Streams, admin_places, usual_file};
use crate::process::admin::control::{self, FILE, WAIT};

/// How long a server may take to answer for its health.
const HEALTH_TIME_MAX: Duration = Duration::from_secs(5);

/// How long it may take to reload: no shorter than the server permits.
const RELOAD_TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// The rest of a longer response is not shown. Reasons against a reload are bounded in number, and shorter unless the configuration
/// has values of kilobytes.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
pub(super) struct Socket {
    /// The configuration file of the server, whose `[admin]` says where it is asked [default: /etc/levity/levity.toml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same, as an option
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// The socket, without a configuration file: unix:PATH
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["file", "config"])]
    control: Option<Address>,
    #[command(flatten)]
    environment: Environment,
}

/// Where a server is asked.
struct Places {
    control: PathBuf,
    /// The file names the socket.
    is_named: bool,
    /// The socket of the service, if the file names another one.
    of_service: Option<PathBuf>,
    /// Its pages, where its health is asked unless the file names a socket.
    pages: Option<Address>,
    /// What the server is to have been started with, for the query.
    file: Option<String>,
}

impl Socket {
    /// The file that is given, or the usual one if there is one.
    fn file(&self) -> Option<PathBuf> {
        let given = self.file.clone().or_else(|| self.config.clone());
        let usual = || self.control.is_none().then(usual_file)?;
        given.or_else(usual)
    }

    fn places(&self, streams: &mut Streams<'_>) -> Result<Places, u8> {
        let file = self.file();
        let (named, pages) = match (&self.control, &file) {
            (Some(Address::Unix(path)), _) => (Some(path.clone()), None),
            (Some(Address::Tcp(address)), _) => {
                streams.err(&format!(
                    "error: {address} is no Unix socket; write unix:PATH\n"
                ));
                return Err(EXIT_USAGE);
            }
            (None, Some(file)) => {
                let is_enough = |places: &AdminPlaces| places.control.is_some();
                let places = admin_places(file, &self.environment, is_enough, streams)?;
                (places.control, places.listen)
            }
            (None, None) => (None, None),
        };
        let absolute = file.and_then(|file| std::path::absolute(file).ok());
        Ok(Places {
            control: control::path(named.as_deref()).unwrap_or_else(control::path_usual),
            of_service: match &self.control {
                None if named.is_some() => {
                    Some(control::path(None).unwrap_or_else(control::path_usual))
                }
                _ => None,
            },
            is_named: named.is_some(),
            pages,
            file: absolute.map(|file| file.to_string_lossy().into_owned()),
        })
    }
}

impl Places {
    fn target(&self, path: &str, waits: bool) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(file) = &self.file {
            query.append_pair(FILE, file);
        }
        if waits {
            query.append_pair(WAIT, "");
        }
        format!("{path}?{}", query.finish())
    }
}

/// Has a server reload. Blocks.
pub(super) fn reload(socket: &Socket, waits: bool, streams: &mut Streams<'_>) -> u8 {
    let places = match socket.places(streams) {
        Ok(places) => places,
        Err(status) => return status,
    };
    let request = format!("POST {}", places.target("/reload", waits));
    let path = &places.control;
    let ask = |path: &Path| ask_socket(path, &request, RELOAD_TIME_MAX);
    let answered = ask(path).or_else(|error| match &places.of_service {
        // The server may still have the configuration in which no socket was named.
        Some(path) if is_absent(&error) => ask(path).map_err(|_| error),
        _ => Err(error),
    });
    report(answered.map_err(|error| with_hint(path, &error)), streams)
}

/// Asks whether a server is well. Blocks.
pub(super) fn health(socket: &Socket, streams: &mut Streams<'_>) -> u8 {
    let places = match socket.places(streams) {
        Ok(places) => places,
        Err(status) => return status,
    };
    let request = format!("GET {}", places.target("/health", false));
    let answered = match &places.pages {
        Some(Address::Tcp(address)) if !places.is_named => {
            let asked = ask_pages(*address, &request);
            asked.map_err(|error| cannot_ask(&address.to_string(), &error))
        }
        Some(Address::Unix(path)) if !places.is_named => {
            let asked = ask_socket(path, &request, HEALTH_TIME_MAX);
            asked.map_err(|error| cannot_ask(&path.display().to_string(), &error))
        }
        _ => {
            let path = &places.control;
            let asked = ask_socket(path, &request, HEALTH_TIME_MAX);
            asked.map_err(|error| with_hint(path, &error))
        }
    };
    report(answered, streams)
}

fn report(answered: Result<Answer, String>, streams: &mut Streams<'_>) -> u8 {
    match answered {
        Ok(answer) if answer.is_success => {
            streams.out(&answer.body);
            0
        }
        Ok(answer) => {
            // The errors of a file begin with the word.
            let text = answer.body.trim_end();
            let text = text.strip_prefix("error: ").unwrap_or(text);
            streams.err(&format!("error: {text}\n"));
            EXIT_FAILURE
        }
        Err(reason) => {
            streams.err(&format!("error: {reason}\n"));
            EXIT_FAILURE
        }
    }
}

fn cannot_ask(place: &str, error: &io::Error) -> String {
    match error.kind() {
        // What a time-out of a socket is called.
        io::ErrorKind::WouldBlock => format!("the server at {place} does not answer in time"),
        _ => format!("cannot ask the server at {place}: {error}; is it running?"),
    }
}

fn with_hint(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    let hint = match error.kind() {
        _ if is_absent(error) => format!(
            " Its configuration needs `[admin]` with `control = \"unix:{shown}\"`. A server that was started with another path is asked there \
             with --control; one without any reloads at SIGHUP"
        ),
        io::ErrorKind::PermissionDenied => {
            " Only root and the user of the server can use the socket".to_owned()
        }
        _ => String::new(),
    };
    cannot_ask(&shown.to_string(), error) + &hint
}

/// Whether nobody listens at a socket.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound)
}

fn ask_socket(path: &Path, request: &str, time_max: Duration) -> io::Result<Answer> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(time_max))?;
    stream.set_write_timeout(Some(time_max))?;
    ask(stream, request)
}

fn ask_pages(address: SocketAddr, request: &str) -> io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&address, HEALTH_TIME_MAX)?;
    stream.set_read_timeout(Some(HEALTH_TIME_MAX))?;
    ask(stream, request)
}

/// The response of a server.
struct Answer {
    is_success: bool,
    body: String,
}

/// Sends a request and reads the response, which the server ends by closing the connection.
fn ask(mut stream: impl Read + Write, request: &str) -> io::Result<Answer> {
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut response = String::new();
    stream
        .take(RESPONSE_BYTES_MAX)
        .read_to_string(&mut response)?;
    if response.is_empty() {
        return Err(io::Error::other("the server has ended"));
    }
    let strange = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "what answers there is no Levity",
        )
    };
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(strange)?;
    let status = head
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    Ok(Answer {
        is_success: status.ok_or_else(strange)?.starts_with('2'),
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::EXIT_CONFIG;
    use super::super::tests::{Folder, levity};
    use super::*;

    #[test]
    fn the_usual_socket_is_asked_only_if_the_files_name_none() {
        let folder = Folder::new();
        let file = folder.write("levity.toml", "[admin]\ncontrol = \"unix:${SOCKET}\"\n");
        let values = folder.write("values", "SOCKET=none\n");
        for command in ["reload", "health"] {
            let ran = levity(&[command, &file]);
            ran.exits(EXIT_CONFIG);
            assert!(ran.err.contains("`${SOCKET}` is not set"), "{}", ran.err);
            let ran = levity(&[command, &file, "--env-file", &values]);
            ran.exits(EXIT_FAILURE);
            let place = format!("cannot ask the server at {}/none: ", folder.path());
            assert!(ran.err.contains(&place), "{}", ran.err);
        }
        folder.write("levity.toml", "include = [\"none.toml\"]\n");
        let ran = levity(&["reload", &file]);
        ran.exits(EXIT_CONFIG);
        assert!(ran.err.contains("cannot read "), "{}", ran.err);
    }
}
