//! Notes about ways around gates: requests that get, without a gate, what a route or site guards. And about secrets and logs in folders
//! that are served.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::model::{Location, Site};
use crate::reader::{NamedFile, Reader};
use crate::upstream::read::Upstreams;

mod application;
mod files;
mod folders;
mod mounts;
mod named;
mod names;
mod table;

use application::applications;
use files::{Mappings, alias, beneath_roots, mappings, served};
use folders::Folders;
use mounts::{mounts, other_way};
use named::named_elsewhere;
use names::{beneath_name, beneath_star, name_without_slash};
use table::{Table, Tables, is_guarded, refuses};

/// Notes each route and site with gates beside which there is a way to an upstream or to its files, and each secret and log beneath a
/// root.
/// May block.
pub(crate) fn note(sites: &[Site], upstreams: &Upstreams, reader: &Reader<'_>) {
    let may_look_up = reader.is_loaded;
    let mut folders = Folders::new(may_look_up);
    let secrets = reader.secrets.borrow();
    let secrets = beneath_roots(&secrets, sites, &mut folders);
    let logs = reader.logs.borrow();
    let logs = beneath_roots(&logs, sites, &mut folders);
    let mut locations = sites.iter().flat_map(Site::locations);
    let is_closed = |location: &Location| is_guarded(&location.gates) || refuses(location);
    if secrets.is_empty() && logs.is_empty() && !locations.any(is_closed) {
        return;
    }
    let applications = applications(upstreams);
    let sites: Vec<Tables<'_>> = sites
        .iter()
        .map(|site| Tables::new(site, &applications, &mut folders))
        .collect();
    let mappings = mappings(&sites);
    let mounts = mounts(&sites);
    let what = "nobody gets it, but move it to a folder that is not served";
    note_served(&secrets, (&sites, &mappings), |_| true, what, reader);
    // Whoever may read what is beside a log with gates may read it.
    let what = "all clients can read this log; move it to a folder that is not served";
    note_served(&logs, (&sites, &mappings), Table::lets_all_by, what, reader);
    for (number, tables) in sites.iter().enumerate() {
        for (line, note) in named_elsewhere(tables) {
            reader.note_at(Some(line), &note);
        }
        for closed in &tables.all {
            if let Some(note) = beneath_star(closed, tables) {
                reader.note_at(Some(closed.line), &closed.noted(note));
            }
        }
        for guarded in tables.all.iter().filter(|table| table.guards()) {
            let name = name_without_slash(guarded, tables);
            let beneath = beneath_name(guarded, tables);
            let alias = alias(number, guarded, &sites, &mappings)
                .or_else(|| other_way(number, guarded, &sites, &mounts));
            for note in [name, beneath, alias].into_iter().flatten() {
                reader.note_at(Some(guarded.line), &guarded.noted(note));
            }
        }
    }
}

/// Notes each of `files`, once, that a table sends for which `may_be` holds. `what` says what comes of that.
fn note_served<'a>(
    files: &[(&NamedFile, [PathBuf; 2])],
    (sites, mappings): (&[Tables<'a>], &Mappings<'_>),
    may_be: impl Fn(&Table<'a>) -> bool,
    what: &str,
    reader: &Reader<'_>,
) {
    let mut seen = HashSet::new();
    for (file, names) in files.iter().filter(|(file, _)| seen.insert(&file.path)) {
        if let Some((table, path)) = served(names, sites, mappings, &may_be) {
            let (file_path, open) = (file.path.display(), table.shown());
            let note = format!("{file_path} lies beneath a `root`, at `{path}` of {open}: {what}");
            reader.note_at(Some(file.line.as_ref().unwrap_or(table.line)), &note);
        }
    }
}
