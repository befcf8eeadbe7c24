//! What to write in place of a key that does not exist.

use crate::foreign;
use crate::schema::{Schema, Table};
use crate::suggest::{listed, nearest};

/// What to do about the key `name` of `table`, which does not exist.
pub(crate) fn help(schema: Schema, table: &Table, name: &str) -> String {
    let misspelt = || {
        let nearest = nearest(name, schema.names(table))?;
        Some(format!("did you mean `{nearest}`?"))
    };
    foreign::key(table.path, name)
        .map(|(_, help)| help.to_owned())
        .or_else(|| of_routes(schema, table, name))
        .or_else(misspelt)
        .or_else(|| of_headers(table, name))
        .or_else(|| elsewhere(schema, name))
        .unwrap_or_else(|| format!("known here: {}", listed(schema.names(table))))
}

/// What to do about a table of routes that stands in a site.
fn of_routes(schema: Schema, table: &Table, name: &str) -> Option<String> {
    let mut of_routes = schema.children(schema.table("site.route"));
    (table.path == "site" && of_routes.any(|child| child == name)).then(|| {
        format!(
            "`{name}` belongs to `[[site.route]]`; for a whole site add a route with path `/*`, last"
        )
    })
}

/// What to do about the name of a header among the kinds of changes to headers.
fn of_headers(table: &Table, name: &str) -> Option<String> {
    let last = table.path.rsplit('.').next()?;
    matches!(last, "headers" | "request_headers").then(|| {
        format!("headers stand in `set`, `add` or `remove`: `set = {{ {name} = \"VALUE\" }}`")
    })
}

/// The tables that have a key or table of this name, of another server's name for it, or of one spelt almost like
/// it.
fn elsewhere(schema: Schema, name: &str) -> Option<String> {
    let Schema(tables) = schema;
    let other = |table: &'static Table| Some((table.key_also(name)?, table));
    if let Some((key, table)) = tables.iter().find_map(other) {
        return Some(format!("it is `{}` of `{}`", key.name, table.heading()));
    }
    let is_beneath = |table: &&Table| {
        table
            .path
            .rsplit_once('.')
            .is_some_and(|(_, last)| last == name)
    };
    if let Some(table) = tables.iter().find(is_beneath) {
        return Some(format!("it is `{}`", table.heading()));
    }
    let known = || tables.iter().flat_map(|table| table.keys);
    let nearest = nearest(name, known().map(|key| key.name))?;
    let has_it = |table: &&Table| table.keys.iter().any(|key| key.name == nearest);
    let headings = tables.iter().filter(has_it).map(Table::heading);
    let headings = listed(headings.collect::<Vec<_>>().iter().map(String::as_str));
    Some(if nearest == name {
        format!("`{name}` is a key of {headings}")
    } else {
        format!("did you mean `{nearest}` of {headings}?")
    })
}
