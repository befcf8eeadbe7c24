//! From TOML files to a [`Config`].

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf, absolute};

use crate::absent_roots::AbsentRoots;
use crate::address::Address;
use crate::document::{INCLUDE, document};
use crate::features::{self, Feature};
use crate::files::{Files, Wrong};
use crate::hidden::Hidden;
use crate::keys::SCHEMA;
use crate::location::References;
use crate::mailbox::read::Mailboxes;
use crate::mailbox::store;
use crate::model::{Config, Server};
use crate::network::TrustedProxies;
use crate::problem::{Errors, Problem};
use crate::reader::{NamedFile, Reader};
use crate::section::Section;
use crate::source::Source;
use crate::upstream::read::Upstreams;
use crate::variables::Variables;
use crate::{
    acme, bypass, disk, headers, limits, listen, log, rate_limit, recognise, site, tls, upload,
};

impl Default for Config {
    fn default() -> Self {
        let reader = Reader::new(Source::new("", None), SCHEMA);
        config(&Section::empty(&reader, ""))
    }
}

/// Parses the text of a configuration file. Makes no system call: relative paths stay relative, folders need not exist, and no
/// variable is set.
///
/// # Errors
///
/// All problems, in the order of the text.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    parse_with(text, &Variables::default())
}

/// The same with these variables.
pub(crate) fn parse_with(text: &str, variables: &Variables) -> Result<Config, Vec<Problem>> {
    let reader = Reader::new(Source::new(text, None), SCHEMA);
    read(reader, variables, &Files::default())
}

/// Parses a configuration that no file has. Relative paths are relative to `folder`, every root must exist, and no variable is set.
/// May block.
///
/// # Errors
///
/// All problems, in the order of the text.
pub fn parse_beneath(folder: &Path, text: &str) -> Result<Config, Vec<Problem>> {
    let mut reader = Reader::new(Source::new(text, Some(folder)), SCHEMA);
    reader.is_loaded = true;
    reader.reads_certificates = true;
    read(reader, &Variables::default(), &Files::default())
}

/// Reads and parses a configuration file and those that it includes. Relative paths are relative to the folder of the file in which
/// they stand, and every root must exist. `variables` are the values of `${NAME}`. May block.
///
/// # Errors
///
/// All problems, in the order of the files; also when one cannot be read, is not UTF-8 or has more than 1 MiB.
pub fn load(path: &Path, variables: &Variables) -> Result<Config, Errors> {
    load_without_roots(path, variables, AbsentRoots::None)
}

/// The same for a server: some roots may be absent, as at a start. One missing disk is no reason to serve nothing.
///
/// # Errors
///
/// As those of [`load`], without those of these roots.
pub fn load_without_roots(
    path: &Path,
    variables: &Variables,
    absent: AbsentRoots,
) -> Result<Config, Errors> {
    load_files(Files::read(path, variables)?, variables, true, absent)
}

/// The same for whoever reads the certificates of sites: here these files are not touched, and may be missing.
///
/// # Errors
///
/// As those of [`load`], without those of certificates.
pub fn load_without_certificates(path: &Path, variables: &Variables) -> Result<Config, Errors> {
    let files = Files::read(path, variables)?;
    load_files(files, variables, false, AbsentRoots::None)
}

/// Where a server is asked.
#[derive(Debug)]
pub struct AdminPlaces {
    /// The socket by which it is controlled.
    pub control: Option<PathBuf>,
    /// The address of its pages.
    pub listen: Option<Address>,
}

/// Where a server with this configuration is asked. Errors elsewhere do not matter: the server has read its files before they were
/// made. May block.
///
/// # Errors
///
/// When the main file cannot be read; unless `is_enough` holds for the places, also when `[admin]` has errors, or is in none of the
/// files and one of them cannot be read.
pub fn load_admin(
    path: &Path,
    variables: &Variables,
    is_enough: fn(&AdminPlaces) -> bool,
) -> Result<AdminPlaces, Errors> {
    let files = Files::read(path, variables)?;
    let mut reader = Reader::new(Source::of(files.parts()), SCHEMA);
    let document = document(&mut reader, variables);
    tell_of_files(&mut reader, &files);
    let root = Section::root(&reader, &document);
    root.names(INCLUDE);
    let listen = listen::listen(&root);
    let admin = root.child("admin");
    let places = AdminPlaces {
        control: listen::control(&admin, &listen),
        listen: listen::admin(&admin, &listen).map(|admin| admin.listen),
    };
    let is_unread = match root.has("admin") {
        true => {
            !root.has_table("admin")
                || admin.has("control") && places.control.is_none()
                || admin.has("listen") && places.listen.is_none()
        }
        false => files.is_incomplete(),
    };
    if is_unread && !is_enough(&places) {
        let problems = recognised(reader.take_problems(), &reader.source);
        return Err(errors(&files, problems));
    }
    Ok(places)
}

fn errors(files: &Files, problems: Vec<Problem>) -> Errors {
    Errors {
        file: files.main(),
        is_silent: files.is_silent && problems.len() == files.problems.len(),
        problems,
    }
}

/// As [`load_without_roots`], for texts that the files had before.
///
/// # Errors
///
/// All problems, in the order of the files.
pub fn load_again(
    files: &Files,
    variables: &Variables,
    absent: AbsentRoots,
) -> Result<Config, Errors> {
    load_files(files.clone(), variables, true, absent)
}

fn load_files(
    files: Files,
    variables: &Variables,
    reads_certificates: bool,
    absent_roots: AbsentRoots,
) -> Result<Config, Errors> {
    let mut reader = Reader::new(Source::of(files.parts()), SCHEMA);
    reader.is_loaded = true;
    reader.reads_certificates = reads_certificates;
    reader.absent_roots = absent_roots.clone();
    reader.credentials = credentials(variables);
    // They have secrets too, such as those of `signed_url` and of backends.
    let own = files.paths().map(|path| NamedFile {
        line: None,
        path: path.to_owned(),
    });
    reader.secrets.get_mut().extend(own);
    let config = read(reader, variables, &files);
    let config = config.map_err(|problems| errors(&files, problems))?;
    Ok(Config {
        files,
        absent_roots,
        ..config
    })
}

/// The folder of the credentials of the service (systemd.exec(5)).
fn credentials(variables: &Variables) -> Option<PathBuf> {
    let folder = variables.get("CREDENTIALS_DIRECTORY").ok().flatten()?;
    Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute())
}

/// Reads the texts of `reader`, which are those of `files` if there are some.
fn read(
    mut reader: Reader<'_>,
    variables: &Variables,
    files: &Files,
) -> Result<Config, Vec<Problem>> {
    let document = document(&mut reader, variables);
    tell_of_files(&mut reader, files);
    features::check(&mut reader, &document, Feature::is_built);
    let root = Section::root(&reader, &document);
    // The files that it names have been read.
    root.names(INCLUDE);
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
    note_passed_over(&reader, files);
    let problems = reader.take_problems();
    if !problems.is_empty() {
        return Err(recognised(problems, &reader.source));
    }
    Ok(Config {
        sites,
        upstreams: upstreams.into_list(),
        mailboxes: mailboxes.all,
        secrets: reader.take_secrets(),
        paths: reader.paths.take(),
        notes: reader.take_notes(),
        hidden: reader.strings.hidden(),
        ..config
    })
}

/// Notes the files that seem to be meant for `include`, except those that the configuration names.
fn note_passed_over(reader: &Reader<'_>, files: &Files) {
    let paths = reader.paths.borrow();
    let named: HashSet<_> = paths.iter().map(|named| named.path.as_path()).collect();
    let folder = files.paths().next().and_then(Path::parent);
    let is_named = |path: &Path| {
        let Ok(path) = absolute(path) else {
            return false;
        };
        // Beside the main file lie files for other programs as well.
        path.parent() == folder || named.contains(path.as_path())
    };
    for (span, note) in files.notes_about_passed_over(is_named) {
        reader.note(&span, note);
    }
}

/// Notes and reports what was found when `files` were read.
fn tell_of_files(reader: &mut Reader<'_>, files: &Files) {
    reader.is_incomplete = files.is_incomplete();
    for (span, text) in &files.notes {
        match span {
            Some(span) => reader.note(span, text.clone()),
            None => reader.note_at(None, text),
        }
    }
    for (span, wrong) in &files.problems {
        match wrong {
            Wrong::Name(text) => reader.report(span, text.as_str(), None),
            Wrong::File(problem) => reader.report_file(span, problem.clone()),
        }
    }
}

/// The problems to report: files of another server have one each.
fn recognised(problems: Vec<(Option<usize>, Problem)>, source: &Source<'_>) -> Vec<Problem> {
    let number = |start: Option<usize>| start.map_or(0, |start| source.number(start));
    let foreign = source.parts();
    let foreign = foreign.map(|(start, text)| of_another_server(text, start, source));
    let foreign: Vec<_> = foreign.collect();
    let mut seen = BTreeSet::new();
    let shown = |(start, problem)| match &foreign[number(start)] {
        None => Some(problem),
        Some(instead) => seen.insert(number(start)).then(|| instead.clone()),
    };
    problems.into_iter().filter_map(shown).collect()
}

/// The one problem to report for a configuration of another server.
fn of_another_server(text: &str, start: usize, source: &Source<'_>) -> Option<Problem> {
    let (server, line) = recognise::recognise(text)?;
    let help = "a file for Levity is TOML, and as little as `[[site]]` with `root = \"/srv/www\"` beneath it will do";
    Some(Problem {
        message: format!("this is a configuration of {server}, not one for Levity"),
        file: source.line(start).file,
        position: Some(source.position(&(start + line.start..start + line.end))),
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
        paths: Vec::new(),
        notes: Vec::new(),
        hidden: Hidden::default(),
        files: Files::default(),
        absent_roots: AbsentRoots::None,
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
