//! Paths that other servers and applications take for the guarded one.

use std::path::Path;

use super::table::{Table, Tables};
use crate::pattern::Pattern;

/// The note about the path `/X` beside a guarded `/X/*`, if it gets to an upstream without the gates: applications often
/// take it for `/X/`.
pub(super) fn name_without_slash(guarded: &Table<'_>, tables: &Tables<'_>) -> Option<String> {
    let Some(Pattern::Prefix(folder)) = &guarded.path else {
        return None;
    };
    let name = folder.strip_suffix('/').filter(|name| !name.is_empty())?;
    let path = Pattern::Exact(name.to_owned());
    let is_open = |table: &Table<'_>| table.upstream().is_some() && table.lets_by(guarded);
    let open = tables.first_asked(&path, is_open)?;
    Some(format!(
        "`{folder}*` has gates that `{name}`, without the slash, has not: {} sends that path to the upstream `{}`; add a route \
         `{name}` with the same gates, or with `redirect = {{ to = \"{folder}\" }}`",
        open.shown(),
        open.upstream()?
    ))
}

/// The note about paths beneath a guarded `/X`, if they are served without the gates: in other servers `/X` stands for them,
/// too. A name with an extension is taken for that of a file, beneath which there is nothing.
pub(super) fn beneath_name(guarded: &Table<'_>, tables: &Tables<'_>) -> Option<String> {
    let Some(Pattern::Exact(name)) = &guarded.path else {
        return None;
    };
    let is_file = Path::new(name).extension().is_some();
    if name.ends_with('/') || is_file || !guarded.serves() {
        return None;
    }
    let folder = Pattern::Prefix(format!("{name}/"));
    let is_open = |table: &Table<'_>| table.serves() && table.lets_by(guarded);
    let open = tables.first_asked(&folder, is_open)?;
    Some(format!(
        "`{name}` is that path alone, and paths beneath it do not have its gates: {} serves `{folder}`; guard `{folder}` too",
        open.shown()
    ))
}
