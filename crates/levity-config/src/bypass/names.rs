//! Paths that other servers and applications take for the guarded one.

use std::path::Path;

use super::table::{Table, Tables};
use crate::answer::SAMPLE;
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

/// The note about paths beneath those of a pattern such as `/X*`, which is guarded or refused, if they are served to all: in other
/// servers a prefix goes on behind a slash.
pub(super) fn beneath_star(closed: &Table<'_>, tables: &Tables<'_>) -> Option<String> {
    let Some(Pattern::Glob(glob)) = &closed.path else {
        return None;
    };
    let start = glob.as_str().strip_suffix('*')?;
    // `**` goes on, and behind a slash one star does, too.
    if start.ends_with(['*', '/']) || !(closed.guards() || closed.refuses()) {
        return None;
    }
    let folder = sample(start);
    let path = Pattern::Exact(format!("{folder}/{SAMPLE}"));
    let is_open = |table: &Table<'_>| {
        table.serves()
            && match closed.refuses() {
                true => table.lets_all_by(),
                false => table.lets_by(closed),
            }
    };
    let open = tables.first_asked(&path, is_open)?;
    Some(format!(
        "`{start}*` ends where a segment ends, and paths beneath it are not closed: {} serves `{folder}/*`; write `{start}**`",
        open.shown()
    ))
}

/// A path that a pattern with stars and braces matches: with nothing for a star, and the first word of braces.
fn sample(glob: &str) -> String {
    let mut sample = String::new();
    let mut rest = glob;
    while let Some(at) = rest.find(['*', '{']) {
        let (before, after) = rest.split_at(at);
        sample.push_str(before);
        let words = after
            .strip_prefix('{')
            .and_then(|words| words.split_once('}'));
        match words {
            Some((words, after)) => {
                sample.push_str(words.split(',').next().unwrap_or_default());
                rest = after;
            }
            // A segment is not empty.
            None => {
                let is_segment = before.is_empty() || before.ends_with('/');
                sample.push_str(if is_segment { SAMPLE } else { "" });
                rest = after.trim_start_matches('*');
            }
        }
    }
    sample + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_match_their_patterns() {
        for text in [
            "/a",
            "/a*",
            "/*/a",
            "/**/a*",
            "/{b,c}/d*",
            "/a{b,c}*d",
            "/a**",
            "*.png",
        ] {
            let pattern = Pattern::parse(text).expect(text);
            let glob = match &pattern {
                Pattern::Glob(glob) => glob.as_str(),
                _ => text,
            };
            let path = sample(glob);
            assert!(pattern.matches(path.as_bytes()), "{text}: {path}");
        }
    }
}
