//! Notes about ways around gates: requests that get, without a gate, what a route or site guards.

use std::collections::HashSet;

use crate::model::Site;
use crate::reader::Reader;
use crate::upstream::read::Upstreams;

mod application;
mod files;
mod folders;
mod mounts;
mod names;
mod table;

use application::applications;
use files::{alias, mappings, served_secret};
use folders::Folders;
use mounts::{mounts, other_way};
use names::{beneath_name, beneath_star, name_without_slash};
use table::{Tables, is_guarded, refuses};

/// Notes each route and site with gates beside which there is a way to an upstream or to its files. May block.
pub(crate) fn note(sites: &[Site], upstreams: &Upstreams, reader: &Reader<'_>) {
    let mut locations = sites.iter().flat_map(Site::locations);
    if !locations.any(|location| is_guarded(&location.gates) || refuses(location)) {
        return;
    }
    let may_look_up = reader.base.is_some();
    let mut folders = Folders::new(may_look_up);
    let applications = applications(upstreams);
    let sites: Vec<Tables<'_>> = sites
        .iter()
        .map(|site| Tables::new(site, &applications, &mut folders))
        .collect();
    let mappings = mappings(&sites);
    let mounts = mounts(&sites);
    let mut seen = HashSet::new();
    for secret in reader.secrets.borrow().iter() {
        let note = || served_secret(&secret.path, &sites, &mappings, may_look_up);
        let is_new = seen.insert(&secret.path);
        if let Some(note) = is_new.then(note).flatten() {
            reader.note_at(secret.line, note);
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
