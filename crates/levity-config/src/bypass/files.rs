//! Other paths that lead to guarded files, and paths of files that are not for clients.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::folders::Folders;
use super::table::{Table, Tables};
use crate::model::Site;
use crate::pattern::Pattern;
use crate::pattern_index::PatternIndex;
use crate::reader::NamedFile;
use crate::root::resolved;

/// Those of `files` that lie beneath a root, each with its paths: by its name in the root, where it may be a link, and by that of
/// its folder, since roots are known without links.
pub(super) fn beneath_roots<'s, 'a>(
    files: &'s [NamedFile],
    sites: &'a [Site],
    folders: &mut Folders<'a>,
) -> Vec<(&'s NamedFile, [PathBuf; 2])> {
    let locations = sites.iter().flat_map(Site::locations);
    let roots = locations.filter_map(|location| location.root.as_deref());
    let roots: HashSet<_> = roots.map(|root| folders.get(root)).collect();
    let named = |file: &'s NamedFile| {
        let folder = resolved(file.path.parent()?, folders.may_look_up);
        let names = [
            folder.join(file.path.file_name()?),
            resolved(&file.path, false),
        ];
        let mut above = names.iter().flat_map(|name| name.ancestors());
        above
            .any(|folder| roots.contains(folder))
            .then_some((file, names))
    };
    files.iter().filter_map(named).collect()
}

/// The table that sends, among those for which `may_be` holds, what is in the folder of a file with these names, and the path of the
/// file there.
pub(super) fn served<'s, 'a>(
    names: &[PathBuf],
    sites: &'s [Tables<'a>],
    mappings: &Mappings<'_>,
    may_be: impl Fn(&Table<'a>) -> bool,
) -> Option<(&'s Table<'a>, String)> {
    for name in names {
        for root in name.ancestors() {
            let beneath = name.strip_prefix(root).ok()?;
            for mapping in mappings.get(root).into_iter().flatten() {
                let path = mapping.path_of(beneath)?;
                let pattern = Pattern::Exact(path.clone());
                if let Some(open) = mapping.serving(sites, &pattern, beneath, |table| {
                    table.sends_files() && may_be(table)
                }) {
                    return Some((open, path));
                }
            }
        }
    }
    None
}

/// How tables lead from paths to files.
pub(super) struct Mapping<'a> {
    /// The number of the site.
    site: usize,
    strip_prefix: &'a str,
    /// The tables that lead so.
    tables: PatternIndex,
    /// Which [kinds](crate::gates::Gates::kinds) of gates one of them lacks.
    lacks: [bool; 3],
}

impl Mapping<'_> {
    /// The table that serves what is `beneath` the root at `path`, if `may_be` holds for it.
    fn serving<'s, 'a>(
        &self,
        sites: &'s [Tables<'a>],
        path: &Pattern,
        beneath: &Path,
        may_be: impl Fn(&Table<'a>) -> bool,
    ) -> Option<&'s Table<'a>> {
        let is_it = |table: &Table<'a>| may_be(table) && table.shows(beneath);
        sites[self.site].first_asked_of(&self.tables, path, is_it)
    }

    /// False if none of the tables [lets by](Table::lets_by) whom `guarded` stops: asked for each pair of sites with one root.
    fn may_let_by(&self, guarded: &Table<'_>) -> bool {
        let mut kinds = guarded.location.gates.kinds().into_iter().zip(self.lacks);
        kinds.any(|(has, lacks)| has && lacks)
    }

    /// The path of the file `beneath` the root.
    fn path_of(&self, beneath: &Path) -> Option<String> {
        let beneath = beneath.to_str()?;
        Some(format!("{}/{beneath}", self.strip_prefix))
    }

    /// The path of the folder `beneath` the root.
    fn folder_of(&self, beneath: &Path) -> Option<String> {
        let path = self.path_of(beneath)?;
        Some(match path.ends_with('/') {
            true => path,
            false => format!("{path}/"),
        })
    }
}

/// The mappings to each root, each once.
pub(super) type Mappings<'a> = HashMap<&'a Path, Vec<Mapping<'a>>>;

pub(super) fn mappings<'a>(sites: &'a [Tables<'_>]) -> Mappings<'a> {
    let mut mappings = Mappings::new();
    for (site, tables) in sites.iter().enumerate() {
        // Where those of the site are among the mappings to their root.
        let mut own = HashMap::new();
        for (number, table) in tables.all.iter().enumerate() {
            let Some(root) = table.root.as_deref().filter(|_| !table.location.internal) else {
                continue;
            };
            let of_root = mappings.entry(root).or_default();
            let strip_prefix = table.strip_prefix();
            let at = *own.entry((root, strip_prefix)).or_insert(of_root.len());
            if at == of_root.len() {
                of_root.push(Mapping {
                    site,
                    strip_prefix,
                    tables: PatternIndex::default(),
                    lacks: [false; 3],
                });
            }
            of_root[at].tables.push(table.start(), number);
            for (lacks, has) in of_root[at]
                .lacks
                .iter_mut()
                .zip(table.location.gates.kinds())
            {
                *lacks |= !has;
            }
        }
    }
    mappings
}

/// The note about other paths that lead, without the gates, to the files that `guarded` of the site of that number has.
pub(super) fn alias(
    site: usize,
    guarded: &Table<'_>,
    sites: &[Tables<'_>],
    mappings: &Mappings<'_>,
) -> Option<String> {
    let (root, path) = (guarded.root.as_ref()?, guarded.path.as_ref()?);
    let files = files(root, guarded.strip_prefix(), path);
    for other_root in files.ancestors() {
        let beneath = files.strip_prefix(other_root).ok()?;
        let of_root = mappings.get(other_root).into_iter().flatten();
        for mapping in of_root.filter(|mapping| mapping.may_let_by(guarded)) {
            let is_same = other_root == &**root && mapping.strip_prefix == guarded.strip_prefix();
            let alias = match path {
                // How routes of one site go before each other is noted there.
                _ if is_same && mapping.site == site => continue,
                _ if is_same => path.clone(),
                Pattern::Exact(_) => Pattern::Exact(mapping.path_of(beneath)?),
                Pattern::Prefix(_) => Pattern::Prefix(mapping.folder_of(beneath)?),
                _ => continue,
            };
            if mapping.site == site && alias == *path {
                continue;
            }
            let open = mapping.serving(sites, &alias, beneath, |table| table.lets_by(guarded));
            if let Some(open) = open {
                return Some(format!(
                    "files of {} have gates here that they have not at `{alias}`, where {} serves the same files; give it \
                     the gates, or a `root` without these files",
                    guarded.owner(),
                    open.shown()
                ));
            }
        }
    }
    None
}

/// The file of an exact path, or the folder of others. A pattern with stars or expressions may have files anywhere beneath the
/// root.
fn files(root: &Path, strip_prefix: &str, path: &Pattern) -> PathBuf {
    match path {
        Pattern::Exact(text) | Pattern::Prefix(text) => {
            let rest = text.strip_prefix(strip_prefix).unwrap_or(text);
            root.join(rest.trim_matches('/'))
        }
        _ => root.to_owned(),
    }
}
