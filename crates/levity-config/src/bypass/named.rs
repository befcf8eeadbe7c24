//! Files that the configuration names, and that belong to a route with other rules.

use std::collections::HashSet;

use super::table::{Table, Tables};
use crate::line::Line;
use crate::pattern::Pattern;
use crate::tries::Try;

/// The notes about the pages and scripts that tables of a site name, each with the line of the first table with that note.
pub(super) fn named_elsewhere<'a>(tables: &Tables<'a>) -> Vec<(&'a Line, String)> {
    let mut seen = HashSet::new();
    let mut notes = Vec::new();
    for table in tables.all.iter().filter(|table| !is_closed(table)) {
        let pages = pages_of_errors(table).into_iter();
        let pages = pages.filter_map(|path| sent_with_errors(table, tables, &path));
        let answers = answers(table).into_iter();
        let answers = answers.filter_map(|(key, path)| refused(table, tables, key, &path));
        // Tables inherit these keys.
        notes.extend(
            pages
                .chain(answers)
                .filter(|(_, note)| seen.insert(note.clone())),
        );
    }
    notes
}

/// The note about a page for errors that requests for it do not get without a gate.
fn sent_with_errors<'a>(
    table: &Table<'a>,
    tables: &Tables<'a>,
    path: &str,
) -> Option<(&'a Line, String)> {
    let page = Pattern::Exact(path.to_owned());
    let has_gates = |other: &Table<'_>| other.guards() && table.lets_by(other);
    let guarded = tables.first_asked(&page, has_gates)?;
    let note = format!(
        "`error_pages` sends `{path}` to whoever gets the error, also to those whom {} does not let in",
        guarded.shown()
    );
    Some((table.line, table.noted(note)))
}

/// The note about a page or script that answers what else is asked for, if a request for it is refused.
fn refused<'a>(
    table: &Table<'a>,
    tables: &Tables<'a>,
    key: &'static str,
    path: &str,
) -> Option<(&'a Line, String)> {
    let closed = tables.first_asked(&Pattern::Exact(path.to_owned()), is_closed)?;
    let note = format!(
        "`{key}` leads to `{path}`, which {} refuses: requests that get there are refused too",
        closed.shown()
    );
    Some((table.line, table.noted(note)))
}

/// Whether nobody gets anything here.
fn is_closed(table: &Table<'_>) -> bool {
    table.refuses() || table.location.gates.refuses_all()
}

fn pages_of_errors(table: &Table<'_>) -> Vec<String> {
    let pages = table.location.options.error_pages.iter();
    pages.map(|(_, path)| path_of(table, path)).collect()
}

/// The keys that name a page or a script, and their paths.
fn answers(table: &Table<'_>) -> Vec<(&'static str, String)> {
    let proxying = &table.location.proxying;
    if table.root.is_none() && table.upstream().is_none() {
        return Vec::new();
    }
    let pages = proxying.tries.iter().flatten().filter_map(|one| match one {
        Try::Path(path) => Some(("try", path_of(table, path))),
        _ => None,
    });
    let script = proxying.script_index.iter();
    let script = script.filter(|_| table.upstream().is_some());
    let script = script.map(|name| ("script_index", path_of(table, &format!("/{name}"))));
    pages.chain(script).collect()
}

fn path_of(table: &Table<'_>, path: &str) -> String {
    format!("{}{path}", table.strip_prefix())
}
