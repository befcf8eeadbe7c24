//! Notes about ways around gates: requests that get, without a gate, what a route or site guards. And about secrets in folders that
//! are served.

use std::collections::HashSet;

use crate::model::{Location, Site};
use crate::reader::Reader;
use crate::upstream::read::Upstreams;

mod application;
mod files;
mod folders;
mod mounts;
mod names;
mod table;

use application::applications;
use files::{alias, beneath_roots, mappings, served_secret};
use folders::Folders;
use mounts::{mounts, other_way};
use names::{beneath_name, beneath_star, name_without_slash};
use table::{Tables, is_guarded, refuses};

/// Notes each route and site with gates beside which there is a way to an upstream or to its files, and each secret beneath a root.
/// May block.
pub(crate) fn note(sites: &[Site], upstreams: &Upstreams, reader: &Reader<'_>) {
    let may_look_up = reader.base.is_some();
    let mut folders = Folders::new(may_look_up);
    let secrets = reader.secrets.borrow();
    let secrets = beneath_roots(&secrets, sites, &mut folders);
    let mut locations = sites.iter().flat_map(Site::locations);
    let is_closed = |location: &Location| is_guarded(&location.gates) || refuses(location);
    if secrets.is_empty() && !locations.any(is_closed) {
        return;
    }
    let applications = applications(upstreams);
    let sites: Vec<Tables<'_>> = sites
        .iter()
        .map(|site| Tables::new(site, &applications, &mut folders))
        .collect();
    let mappings = mappings(&sites);
    let mounts = mounts(&sites);
    let mut seen = HashSet::new();
    for (secret, names) in secrets {
        let place = || served_secret(&names, &sites, &mappings);
        let is_new = seen.insert(&secret.path);
        if let Some((table, path)) = is_new.then(place).flatten() {
            let (secret_path, open) = (secret.path.display(), table.shown());
            let note = format!(
                "{secret_path} lies beneath a `root`, at `{path}` of {open}: nobody gets it, but move it to a folder that is not served"
            );
            reader.note_at(secret.line.unwrap_or(table.line), note);
        }
    }
    for (number, tables) in sites.iter().enumerate() {
        for closed in &tables.all {
            if let Some(note) = beneath_star(closed, tables) {
                reader.note_at(closed.line, note);
            }
        }
        for guarded in tables.all.iter().filter(|table| table.guards()) {
            let name = name_without_slash(guarded, tables);
            let beneath = beneath_name(guarded, tables);
            let alias = alias(number, guarded, &sites, &mappings)
                .or_else(|| other_way(number, guarded, &sites, &mounts));
            for note in [name, beneath, alias].into_iter().flatten() {
                reader.note_at(guarded.line, note);
            }
        }
    }
}
