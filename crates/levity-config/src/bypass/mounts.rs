//! Other paths that lead to a guarded application.

use std::collections::HashMap;

use super::application::Application;
use super::table::{Table, Tables};
use crate::pattern::Pattern;

/// The tables that lead to an application, each by its site and its number there, by the start of the paths that the
/// application gets from them.
pub(super) type Mounts<'a> = HashMap<(&'a Application, &'a str), Vec<(usize, usize)>>;

pub(super) fn mounts<'a>(sites: &'a [Tables<'_>]) -> Mounts<'a> {
    let mut mounts = Mounts::new();
    for (site, tables) in sites.iter().enumerate() {
        for (number, table) in tables.all.iter().enumerate() {
            let is_plain = |path: &&Pattern| matches!(path, Pattern::Exact(_) | Pattern::Prefix(_));
            let path = table.path.as_ref().filter(is_plain);
            if let (Some(application), Some(path)) = (&table.application, path) {
                let key = (application, inner_start(table, path));
                mounts.entry(key).or_default().push((site, number));
            }
        }
    }
    mounts
}

/// The start of the paths that the application gets from the table for those of `path`.
fn inner_start<'p>(table: &Table<'_>, path: &'p Pattern) -> &'p str {
    let start = path.start();
    match start.strip_prefix(table.strip_prefix()).unwrap_or(start) {
        "" => "/",
        rest => rest,
    }
}

/// How many tables [`other_way`] looks at for one that is guarded, with those before each of them: a bound on the time for files
/// with thousands of routes.
const LOOKS_MAX: usize = 100_000;

/// The note about another way, without the gates, to the application that `guarded` of the site of that number asks.
pub(super) fn other_way(
    site: usize,
    guarded: &Table<'_>,
    sites: &[Tables<'_>],
    mounts: &Mounts<'_>,
) -> Option<String> {
    let (application, path) = (guarded.application.as_ref()?, guarded.path.as_ref()?);
    let mut matchers = guarded.matchers.iter();
    if !matchers.all(|matcher| matcher.when.clients.is_empty()) {
        return None;
    }
    let inner = inner_start(guarded, path);
    let slashes = inner.match_indices('/').map(|(at, _)| at + 1);
    let exact = Some(inner.len()).filter(|_| !inner.ends_with('/'));
    let candidates = slashes
        .chain(exact)
        .filter_map(|end| mounts.get(&(application, &inner[..end])))
        .flatten();
    let mut looks = LOOKS_MAX;
    for &(other_site, number) in candidates {
        looks = looks.checked_sub(number + 1)?;
        let tables = &sites[other_site];
        let open = &tables.all[number];
        let alias = match path {
            _ if open.strip_prefix() == guarded.strip_prefix() => path.clone(),
            Pattern::Exact(_) => Pattern::Exact(format!("{}{inner}", open.strip_prefix())),
            Pattern::Prefix(_) => Pattern::Prefix(format!("{}{inner}", open.strip_prefix())),
            _ => continue,
        };
        // How routes of one site go before each other is noted there.
        let is_other = other_site != site || alias != *path;
        if is_other
            && open.matches(&alias)
            && open.has_fewer_gates(guarded)
            && !tables.is_taken(number, &alias)
        {
            return Some(format!(
                "{} has gates that `{alias}` has not, where {} asks the same application, by the upstream `{}`; give it the \
                 gates, or make it `internal`",
                guarded.owner(),
                open.shown(),
                open.upstream()?
            ));
        }
    }
    None
}
