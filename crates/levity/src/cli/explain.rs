//! `levity explain`: from a URL to a request.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use clap::Args;
use levity_config::Config;
use levity_config::address::Address;

use crate::process::explain::Question;

use super::{EXIT_CONFIG, EXIT_USAGE, Environment, Step, Streams, given_or_usual};

/// The host of a path.
const LOCALHOST: &str = "localhost";

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
pub(super) struct Options {
    /// The configuration file [default: /etc/levity/levity.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    environment: Environment,
    /// http://HOST/PATH, https://HOST/PATH, or a path of the site for all hosts
    #[arg(value_name = "URL")]
    url: String,
    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// A header of the request; may be repeated
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The address of the client
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    client: IpAddr,
    /// The listener that the client connects to. Default: that with the port of the URL, else the first in the file that has TLS for
    /// https:// and none for http://
    #[arg(long, value_name = "ADDR")]
    listen: Option<Address>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reads what is to be explained.
///
/// # Errors
/// The exit status, after a message.
pub(super) fn explain(options: Options, streams: &mut Streams<'_>) -> Result<Step, u8> {
    let header = request(&options).map_err(|message| {
        streams.err(&format!("error: {message}\n"));
        EXIT_USAGE
    })?;
    let usage = "levity explain -c FILE URL";
    let file = given_or_usual(options.config.clone(), usage, streams)?;
    let variables = options.environment.variables(streams)?;
    // The explanation says what is wrong with certificates.
    match levity_config::load_without_certificates(&file, &variables) {
        Ok(config) if !is_listener(options.listen.as_ref(), &config) => {
            let error = no_listener(&options, &file, &config);
            streams.err(&config.hidden.hide(&error));
            Err(EXIT_USAGE)
        }
        Ok(config) => Ok(Step::Explain(Box::new(Question {
            config,
            header,
            client: options.client,
            listener: options.listen,
            https: (options.url.split_once("://")).map(|(scheme, _)| scheme == "https"),
            host: host(&options.url),
            port: port(&options.url),
            json: options.json,
        }))),
        Err(errors) => {
            streams.err(&errors.render(streams.colour));
            Err(EXIT_CONFIG)
        }
    }
}

/// Host and port of a URL; `None` for a path.
fn authority(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split(['/', '?', '#']).next()
}

/// The port of a URL that has one.
fn port(url: &str) -> Option<u16> {
    authority(url)?.rsplit_once(':')?.1.parse().ok()
}

/// The host of a URL in lower case; for a path, that of [`request`].
fn host(url: &str) -> String {
    let authority = authority(url).unwrap_or(LOCALHOST);
    let before_port = authority.rsplit_once(':').map(|(host, port)| {
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
        if is_port { host } else { authority }
    });
    before_port.unwrap_or(authority).to_ascii_lowercase()
}

fn is_listener(address: Option<&Address>, config: &Config) -> bool {
    address.is_none_or(|address| config.listens_on(address))
}

/// The error for an address that the server would not listen on: no route with `when.listen` could match there.
fn no_listener(options: &Options, file: &Path, config: &Config) -> String {
    let address = options.listen.as_ref().map(Address::to_string);
    let known: Vec<_> = (config.listen.iter())
        .map(|listen| format!("`{}`", listen.address))
        .collect();
    format!(
        "error: `{}` is no listener of {}, which has {}\n",
        address.unwrap_or_default(),
        file.display(),
        known.join(", ")
    )
}

/// The header of the request. The parser of the server judges it; only what would be another request is refused here.
fn request(options: &Options) -> Result<Vec<u8>, String> {
    let url = options.url.as_str();
    let (host, target) = match url.split_once("://") {
        Some(("http" | "https", rest)) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (host, target) = rest.split_at(end);
            let slash = if target.starts_with('/') { "" } else { "/" };
            (host, format!("{slash}{target}"))
        }
        Some((scheme, _)) => return Err(format!("`{scheme}` is not a scheme of this server")),
        None if url.starts_with('/') => (LOCALHOST, url.to_owned()),
        None => return Err(format!("`{url}` is no URL: http://HOST/PATH, or /PATH")),
    };
    let target = target
        .split_once('#')
        .map_or(&*target, |(target, _)| target);
    let mut lines = vec![format!("{} {target} HTTP/1.1", options.method)];
    let is_host = |line: &String| line.to_ascii_lowercase().starts_with("host:");
    if !options.header.iter().any(is_host) {
        lines.push(format!("Host: {host}"));
    }
    lines.extend(options.header.iter().cloned());
    lines.push("Connection: close".to_owned());
    let has_break = |line: &String| line.contains(['\r', '\n']);
    if lines.iter().any(has_break) {
        return Err("a line break is in the request".to_owned());
    }
    Ok((lines.join("\r\n") + "\r\n\r\n").into_bytes())
}
