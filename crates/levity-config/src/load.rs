//! From a TOML file to a [`Config`].

use std::io;
use std::path::{Path, PathBuf};

use levity_disk::read_patiently;
use toml::de::DeTable;

use crate::keys::SCHEMA;
use crate::location::References;
use crate::mailbox::read::Mailboxes;
use crate::mailbox::store;
use crate::model::{Admin, Config, Server};
use crate::network::TrustedProxies;
use crate::problem::{Errors, Problem, Source};
use crate::reader::{NamedFile, Reader};
use crate::section::Section;
use crate::upstream::read::Upstreams;
use crate::{
    acme, bypass, disk, headers, limits, listen, log, rate_limit, recognise, site, tls, upload,
};

/// Maximum length of a configuration file. A longer one is most likely another file.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

impl Default for Config {
    fn default() -> Self {
        let reader = Reader::new("", None, SCHEMA);
        config(&Section::empty(&reader, ""))
    }
}

/// Parses the text of a configuration file. Makes no system call: relative paths stay relative, and folders need
/// not exist.
///
/// # Errors
///
/// All problems, in the order of the text.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    read(text, None, None, false)
}

/// Parses a configuration that no file has. Relative paths are relative to `folder`, and every root must exist. May block.
///
/// # Errors
///
/// All problems, in the order of the text.
pub fn parse_beneath(folder: &Path, text: &str) -> Result<Config, Vec<Problem>> {
    read(text, Some(folder), None, true)
}

/// Reads and parses a configuration file. Relative paths are relative to its folder, and every root must exist.
/// May block.
///
/// # Errors
///
/// All problems, in the order of the file; also when it cannot be read, is not UTF-8 or has more than 1 MiB.
pub fn load(path: &Path) -> Result<Config, Errors> {
    load_file(path, true)
}

/// The same for whoever reads the certificates of sites: here these files are not touched, and may be missing.
///
/// # Errors
///
/// As those of [`load`], without those of certificates.
pub fn load_without_certificates(path: &Path) -> Result<Config, Errors> {
    load_file(path, false)
}

/// Where a server with the configuration in this file is controlled, and where its pages are. Errors elsewhere in the file do not matter:
/// the server has read it before they were made.
///
/// # Errors
///
/// When the file cannot be read.
pub fn load_admin(path: &Path) -> Result<(Option<PathBuf>, Option<Admin>), Errors> {
    let unread = |(message, is_silent): (String, bool)| Errors {
        file: path.to_owned(),
        problems: vec![Problem::without_position(message)],
        is_silent,
    };
    let text = text(path).map_err(unread)?;
    let (document, _) = DeTable::parse_recoverable(&text);
    let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let reader = Reader::new(&text, file.parent(), SCHEMA);
    let root = Section::root(&reader, document.get_ref());
    let listen = listen::listen(&root);
    let admin = root.child("admin");
    Ok((
        listen::control(&admin, &listen),
        listen::admin(&admin, &listen),
    ))
}

fn load_file(path: &Path, reads_certificates: bool) -> Result<Config, Errors> {
    let unread = |(message, is_silent): (String, bool)| Errors {
        file: path.to_owned(),
        problems: vec![Problem::without_position(message)],
        is_silent,
    };
    let text = text(path).map_err(unread)?;
    parse_file(path, &text, reads_certificates)
}

/// As [`load`], for a text that the file had before.
///
/// # Errors
///
/// All problems, in the order of the text.
pub fn load_again(path: &Path, text: &str) -> Result<Config, Errors> {
    parse_file(path, text, true)
}

fn parse_file(path: &Path, text: &str, reads_certificates: bool) -> Result<Config, Errors> {
    let errors = |problems| Errors {
        file: path.to_owned(),
        problems,
        is_silent: false,
    };
    let unread = |message: String| errors(vec![Problem::without_position(message)]);
    let file =
        std::path::absolute(path).map_err(|error| unread(format!("no such path: {error}")))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let config = read(text, Some(folder), Some(&file), reads_certificates).map_err(errors)?;
    Ok(Config {
        text: text.into(),
        ..config
    })
}

/// The text of the file; otherwise what is wrong, and whether that is only that it does not respond.
fn text(path: &Path) -> Result<String, (String, bool)> {
    let bytes = read_patiently(path, FILE_BYTES_MAX + 1).map_err(|error| {
        let is_silent = error.kind() == io::ErrorKind::TimedOut;
        (format!("cannot read the file: {error}"), is_silent)
    })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the file has more than {FILE_BYTES_MAX} bytes");
        return Err((message, false));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        (format!("line {line} is not UTF-8"), false)
    })
}

fn read(
    text: &str,
    base: Option<&Path>,
    file: Option<&Path>,
    reads_certificates: bool,
) -> Result<Config, Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader::new(text, base, SCHEMA);
    reader.reads_certificates = reads_certificates;
    // It has secrets too, such as those of `signed_url` and of backends.
    let own = file.map(|file| NamedFile {
        line: None,
        path: file.to_owned(),
    });
    reader.secrets.get_mut().extend(own);
    reader.syntax(document.get_ref(), errors);
    let root = Section::root(&reader, document.get_ref());
    let upstreams = Upstreams::read(&root);
    let config = config(&root);
    let addresses: Vec<_> = config
        .listen
        .iter()
        .map(|one| one.address.clone())
        .collect();
    let mailboxes = Mailboxes::read(&root, &config.mailbox_store, &config.limits);
    let uploads = upload::Roots::default();
    let references = References {
        upstreams: &upstreams,
        mailboxes: &mailboxes,
        variants: config.disk.variants.as_deref(),
        messages: config.mailbox_store.folder.as_deref(),
        logs: &log::Logs::new(&config.log),
        limits: &rate_limit::RateLimits::default(),
        listen: &addresses,
        acme: &config.acme,
        tls: config.tls.folder.as_deref(),
        uploads: &uploads,
        spool_bytes: config.limits.spool_bytes,
    };
    let sites = site::sites(&root, config.server.headers.clone(), references);
    listen::check_tls(&root, &config.listen, &sites);
    upstreams.note_unused(&reader);
    mailboxes.note_unused(&reader);
    mailboxes.note_publishers(&root, &config.listen, &sites);
    bypass::note(&sites, &upstreams, &reader);
    let mut config = Config {
        sites,
        upstreams: upstreams.into_list(),
        mailboxes: mailboxes.all,
        ..config
    };
    config.secrets = reader.take_secrets();
    config.notes = reader.take_notes();
    let problems = reader.into_problems();
    if problems.is_empty() {
        return Ok(config);
    }
    Err(of_another_server(text).map_or(problems, |problem| vec![problem]))
}

/// The one problem to report for a configuration of another server.
fn of_another_server(text: &str) -> Option<Problem> {
    let (server, line) = recognise::recognise(text)?;
    let help = "a file for Levity is TOML, and as little as `[[site]]` with `root = \"/srv/www\"` beneath it will do";
    Some(Problem {
        message: format!("this is a configuration of {server}, not one for Levity"),
        position: Some(Source::new(text).position(&line)),
        help: Some(help.to_owned()),
    })
}

/// Reads everything except sites and what they refer to.
fn config(root: &Section<'_>) -> Config {
    let listen = listen::listen(root);
    Config {
        server: server(&root.child("server")),
        disk: disk::disk(&root.child("disk")),
        log: log::log(&root.child("log")),
        admin: listen::admin(&root.child("admin"), &listen),
        control: listen::control(&root.child("admin"), &listen),
        limits: limits::read(&root.child("limits")),
        tls: tls::read(&root.child("tls")),
        acme: acme::read(&root.child("acme"), &listen::ports(&listen)),
        listen,
        own_names: None,
        sites: Vec::new(),
        upstreams: Vec::new(),
        mailbox_store: store::read(&root.child("mailbox_store")),
        mailboxes: Vec::new(),
        secrets: Vec::new(),
        notes: Vec::new(),
        text: "".into(),
    }
}

fn server(section: &Section<'_>) -> Server {
    Server {
        workers: section.optional_count("workers"),
        trusted_proxies: trusted_proxies(section),
        etag: section.word_or_default("etag"),
        request_id: headers::name(section, "request_id"),
        headers: headers::of_responses(&section.child("headers"), &[]),
    }
}

fn trusted_proxies(section: &Section<'_>) -> TrustedProxies {
    let mut trusted = TrustedProxies::default();
    for given in section.names("trusted_proxies").unwrap_or_default() {
        let text = given.text;
        if text == "unix" {
            trusted.unix = true;
            continue;
        }
        match text.parse() {
            Ok(network) => trusted.networks.push(network),
            Err(help) => {
                let help = match text.starts_with("unix:") {
                    true => "\"unix\" trusts whoever connects over a Unix socket".to_owned(),
                    false => help,
                };
                given.refuse_with(format!("`{text}` is not a network"), help);
            }
        }
    }
    trusted
}
